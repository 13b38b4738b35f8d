"""Private and small at once: secure aggregation, and differential privacy within it.

`Server` and `Client` are sans-I/O, as `aq.Server` and `aq.Client` are, and need the extra `private`. The modes, which a
configuration names, need nothing.
"""

from __future__ import annotations

from typing import Any

from .settings import Central, Distributed, Masked, Off, Private

_MODULES = {"Server": "server", "Client": "client", "BudgetSpent": "accounting"}

__all__ = ["BudgetSpent", "Central", "Client", "Distributed", "Masked", "Off", "Private", "Server"]


def __getattr__(name: str) -> Any:
    """Import what needs the extra when it is first used; ImportError says how to get it."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    try:
        return getattr(import_module(f".{_MODULES[name]}", __name__), name)
    except ModuleNotFoundError as error:
        raise ImportError(f"Private rounds need {error.name}. Run: pip install 'adaquantfl[private]'") from error
