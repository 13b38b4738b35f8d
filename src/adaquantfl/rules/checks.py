"""Checks that several rules share, and those of what a rule returns."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import AdaQuantError, RuleError, own_place
from ..theory import MAX_LEVELS
from .base import Plan, Report, Rule, Seen, State, Verdict


def check_start(s0: float, name: str = "s0") -> None:
    """Refuse a number of levels that no rule can start with."""
    if isinstance(s0, bool) or not isinstance(s0, int | float) or not 0 < s0 <= MAX_LEVELS:
        raise RuleError(f"{name} = {s0!r}: the levels at the start are a number above 0, up to {MAX_LEVELS}.")


def check_loss(loss: float) -> float:
    """Return the loss at the start, by which rules divide."""
    if not math.isfinite(loss) or loss <= 0:
        raise RuleError(
            f"f(w_0) = {loss!r}: the rule divides by the loss at the start, which must be finite and above 0. "
            "Check the model's initialisation and the data."
        )
    return loss


def planned(rule: Rule, state: State, seen: Seen) -> tuple[State, Plan]:
    """Return what `rule.plan` returns, with plain numbers; RuleError with the rule's file and line otherwise."""
    returned = _called(rule, rule.plan, state, seen)
    match returned:
        case (dict() as after, Plan() as plan):
            pass
        case _:
            raise _wrong(rule.plan, returned, "a state and a plan: return state, aq.Plan(levels=...)")
    numbers = {name: getattr(plan, name) for name in ("max_error", "resolution", "downlink_error", "loss_due")}
    if isinstance(plan.levels, Mapping):
        levels: Any = {int(client): _number(rule, "levels", s, MAX_LEVELS) for client, s in plan.levels.items()}
    else:
        levels = None if plan.levels is None else _number(rule, "levels", plan.levels, MAX_LEVELS)
    if sum(one is not None for one in (levels, plan.max_error, plan.resolution)) > 1:
        raise _wrong(rule.plan, plan, "only one of levels, max_error and resolution")
    plain: dict[str, Any] = {}
    for name, value in numbers.items():
        least = -math.inf if name == "loss_due" else 0.0
        plain[name] = None if value is None else _number(rule, name, value, math.inf, least)
    survey = tuple(_number(rule, "survey", s, MAX_LEVELS) for s in plan.survey)
    return _plain(rule, rule.plan, after), replace(plan, levels=levels, survey=survey, **plain)


def judged(rule: Rule, state: State, report: Report) -> tuple[State, Verdict]:
    """Return what `rule.judge` returns; RuleError with the rule's file and line where it is something else."""
    returned = _called(rule, rule.judge, state, report)
    match returned:
        case (dict() as after, Verdict() as verdict):
            return _plain(rule, rule.judge, after), verdict
    raise _wrong(rule.judge, returned, "a state and a verdict: return state, aq.Verdict.KEEP")


def _called(rule: Rule, method: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return method(*arguments)
    except AdaQuantError:
        raise
    except Exception as error:
        where = own_place(error) or f" ({_place(method)})"
        name = f"{type(rule).__name__}.{method.__name__}"
        raise RuleError(f"{name} raised {type(error).__name__}: {error}{where}.") from error


def _number(rule: Rule, name: str, value: Any, most: float, least: float = 0.0) -> float:
    if isinstance(value, np.integer | np.floating):
        value = value.item()
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not (number and least < value <= most):
        allowed = f"a number above {least:g}, up to {most:g}"
        raise _wrong(rule.plan, value, allowed, f"as {name} ")
    return value  # type: ignore[no-any-return]


def _plain(rule: Rule, method: Callable[..., Any], state: State) -> State:
    """The state, if it can be written down and read back."""

    def walk(value: Any, at: str) -> Any:
        match value:
            case None | bool() | int() | float() | str():
                return value
            case np.integer() | np.floating():
                return value.item()
            case list() | tuple():
                return [walk(one, f"{at}[{place}]") for place, one in enumerate(value)]
            case dict() if all(isinstance(key, str) for key in value):
                return {key: walk(one, f"{at}[{key!r}]") for key, one in value.items()}
        raise _wrong(
            method, value, "a state of numbers, text, lists, and dictionaries with text keys, which can be saved",
            f"{at} = ",
        )  # fmt: skip

    return {key: walk(value, f"state[{key!r}]") for key, value in state.items()}


def _wrong(method: Callable[..., Any], returned: Any, expected: str, what: str = "") -> RuleError:
    shown = repr(returned)
    shown = shown if len(shown) <= 80 else f"{shown[:77]}..."
    return RuleError(f"{method.__qualname__} ({_place(method)}) returned {what}{shown}; expected {expected}.")


def _place(method: Callable[..., Any]) -> str:
    """The file and the line in which a method is defined."""
    try:
        return f"{Path(inspect.getsourcefile(method) or '?').name}, line {inspect.getsourcelines(method)[1]}"
    except (OSError, TypeError):  # defined in a console
        return f"{method.__module__}"
