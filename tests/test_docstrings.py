"""Every public name says what it is for and shows it in an example; the examples themselves run as doctests."""

from __future__ import annotations

import importlib
import inspect
from doctest import DocTestParser
from typing import Any

import pytest

import adaquantfl as aq
from adaquantfl import theory

# What has no docstring of its own.
CONSTANTS = {"adaquantfl.__version__", "adaquantfl.rules.ROUNDINGS"}


def exported(module: str) -> list[str]:
    return [f"{module}.{name}" for name in importlib.import_module(module).__all__]


def formulas() -> list[str]:
    return [
        f"{theory.__name__}.{name}"
        for name, value in vars(theory).items()
        if not name.startswith("_") and getattr(value, "__module__", None) == theory.__name__
    ]


def methods(owner: type) -> list[str]:
    """The public methods and properties that the class itself defines; a class without them has fields alone."""
    return [
        f"{owner.__module__}.{owner.__name__}.{name}"
        for name, value in vars(owner).items()
        if not name.startswith("_") and (inspect.isfunction(value) or isinstance(value, property | staticmethod))
    ]


NAMES = [
    *exported("adaquantfl"),
    *exported("adaquantfl.rules"),
    *formulas(),
    *(name for owner in (aq.Levels, aq.Accumulator) for name in methods(owner)),
    *(name for owner in (theory.BoundConstants, theory.AdaptiveBound) for name in methods(owner)),
]


def found(path: str) -> Any:
    parts = path.split(".")
    for depth in range(len(parts) - 1, 0, -1):
        try:
            value: Any = importlib.import_module(".".join(parts[:depth]))
        except ModuleNotFoundError:
            continue
        for part in parts[depth:]:
            value = getattr(value, part)
        return value
    raise AssertionError(path)


def shows_itself(value: Any) -> bool:
    return bool(
        DocTestParser().get_examples(
            vars(value).get("__doc__") or "" if inspect.isclass(value) else value.__doc__ or ""
        )
    )


@pytest.mark.parametrize("name", sorted(set(NAMES) - CONSTANTS))
def test_every_public_name_has_an_example(name: str) -> None:
    assert shows_itself(found(name)), f"{name} has no docstring with an example (>>>)"


def test_the_flower_names_have_examples() -> None:
    pytest.importorskip("flwr")
    for name in exported("adaquantfl.flower"):
        assert shows_itself(found(name)), name


def test_a_name_without_an_example_is_noticed() -> None:
    def plain() -> None:
        """No example."""

    class Child(aq.AdaQuant):
        pass  # what it inherits is not its own

    assert not shows_itself(plain)
    assert not shows_itself(Child)
