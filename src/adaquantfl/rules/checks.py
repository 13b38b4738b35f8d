"""Checks that several rules share, and those of what a rule returns."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from ..errors import AdaQuantError, RuleError, raised_at, returned
from ..quantizers import registry as quantizers
from ..theory import MAX_LEVELS
from .base import Need, Plan, Report, Rule, Seen, State, Verdict


def check_start(s0: float, name: str = "s0") -> None:
    """Refuse a number of levels that no rule can start with."""
    if isinstance(s0, bool) or not isinstance(s0, int | float) or not 0 < s0 <= MAX_LEVELS:
        raise RuleError(f"{name} = {s0!r}: the levels at the start are a number above 0, up to {MAX_LEVELS}.")


def started(rule: Rule) -> State:
    """Return what `rule.init` returns; RuleError with the rule's file and line where it is something else."""
    state = _called(rule, rule.init)
    if not isinstance(state, dict):
        raise wrong(rule.init, state, "a dictionary, the state before the first round")
    if not (isinstance(rule.needs, frozenset) and all(isinstance(one, Need) for one in rule.needs)):
        raise RuleError(f"{type(rule).__name__}.needs = {rule.needs!r}: expected a frozenset such as {{aq.Need.LOSS}}.")
    return _plain(rule.init, state)


def planned(rule: Rule, state: State, seen: Seen, clients: Collection[int] = ()) -> tuple[State, Plan]:
    """Return what `rule.plan` returns, with plain numbers; RuleError with the rule's file and line otherwise.

    clients: those of the round, each of which needs levels.
    """
    match _called(rule, rule.plan, state, seen):
        case (dict() as after, Plan() as plan):
            pass
        case made:
            raise wrong(rule.plan, made, "a state and a plan: return state, aq.Plan(levels=...)")

    def number(name: str, value: Any, most: float = math.inf, least: float = 0.0) -> Any:
        value = value.item() if isinstance(value, np.integer | np.floating) else value
        if isinstance(value, bool) or not isinstance(value, int | float) or not least < value <= most:
            raise wrong(rule.plan, value, f"a number above {least:g}, up to {most:g}", f"as {name} ")
        return value

    levels: Any = plan.levels
    if isinstance(levels, Mapping):
        levels = {client: number("levels", s, MAX_LEVELS) for client, s in levels.items()}
        if missing := [client for client in clients if client not in levels]:
            raise wrong(rule.plan, plan.levels, f"levels for every client of the round; client {missing[0]} has none")
    elif levels is not None:
        levels = number("levels", levels, MAX_LEVELS)
    if sum(one is not None for one in (levels, plan.max_error, plan.resolution)) > 1:
        raise wrong(rule.plan, plan, "only one of levels, max_error and resolution")
    for name, kind in {"balanced": bool, "feedback": bool | None}.items():
        if not isinstance(value := getattr(plan, name), kind):
            raise wrong(rule.plan, value, "True or False", f"as {name} ")
    if plan.quantizer not in ("", *quantizers.names()):
        raise wrong(rule.plan, plan.quantizer, f"one of {', '.join(quantizers.names())}", "as quantizer ")
    numbers = {"levels": levels, "loss_due": number("loss_due", plan.loss_due, least=-math.inf)}
    for name in ("max_error", "resolution", "downlink_error"):
        if (given := getattr(plan, name)) is not None:
            numbers[name] = number(name, given)
    return _plain(rule.plan, after), replace(plan, **numbers)


def judged(rule: Rule, state: State, report: Report) -> tuple[State, Verdict]:
    """Return what `rule.judge` returns; RuleError with the rule's file and line where it is something else."""
    match _called(rule, rule.judge, state, report):
        case (dict() as after, Verdict() as verdict):
            return _plain(rule.judge, after), verdict
        case made:
            raise wrong(rule.judge, made, "a state and a verdict: return state, aq.Verdict.KEEP")


def wrong(method: Callable[..., Any], value: Any, expected: str, what: str = "") -> RuleError:
    """Return the error for something that a method of a rule must not return."""
    return RuleError(returned(method, value, expected, what))


def _called(rule: Rule, method: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return method(*arguments)
    except (AdaQuantError, MemoryError):
        raise
    except Exception as error:
        name = f"{type(rule).__name__}.{method.__name__}"
        raise RuleError(f"{name} raised {type(error).__name__}: {error}{raised_at(error, method)}.") from error


def _plain(method: Callable[..., Any], state: State) -> State:
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
        raise wrong(
            method, value, "numbers, text, lists, or dictionaries with text keys, which can be saved", f"{at} = "
        )

    plain: State = walk(state, "state")
    return plain
