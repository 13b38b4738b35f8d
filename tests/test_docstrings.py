"""Every public name shows itself in an example; the examples themselves run as doctests."""

from __future__ import annotations

import importlib
import inspect
from typing import Any

import pytest

from support.installed import installed

CONSTANTS = {"__version__", "ROUNDINGS", "report"}  # no docstring of their own; `report` is a module that can be called
MODULES = ["adaquantfl", "adaquantfl.rules", *(["adaquantfl.flower"] if installed("flwr") else [])]


def shows_itself(value: Any) -> bool:
    text = vars(value).get("__doc__") if inspect.isclass(value) else value.__doc__  # not what a class inherits
    return ">>> " in (text or "")


@pytest.mark.parametrize("module", MODULES)
def test_every_public_name_has_an_example(module: str) -> None:
    there = importlib.import_module(module)
    assert [name for name in sorted(set(there.__all__) - CONSTANTS) if not shows_itself(getattr(there, name))] == []
