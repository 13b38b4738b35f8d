"""Whether a package is installed. Its name is not tried as a module: a folder of tests may have the same."""

from __future__ import annotations

from importlib.metadata import distributions


def installed(name: str) -> bool:
    return any(distributions(name=name))
