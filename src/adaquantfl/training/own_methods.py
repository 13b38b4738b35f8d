"""Rules and quantizers from the user's own files: run, checked, and made known by their names in this process."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any

from ..errors import AdaQuantError, ConfigError, RuleError, own_place
from ..names import unknown
from ..quantizers import registry as quantizers
from ..quantizers.base import Quantizer
from ..rules import Rule
from ..rules import registry as rules
from ..rules.registry import RuleEntry
from .own_files import OwnFile, blamed, names_file


@contextmanager
def blamed_round(round: int) -> Iterator[None]:
    """Make what a rule or a quantizer of the user's own raises in a round a sentence with the line of its file."""
    try:
        yield
    except AdaQuantError:
        raise
    except Exception as error:
        if place := own_place(error):
            raise RuleError(f"Round {round}: your own code raised {type(error).__name__}: {error}{place}.") from error
        raise


def find_method(name: str, sha256: str = "") -> RuleEntry | None:
    """The rule that `method` names: one of the table, or FILE.py:CLASS. None where there is none."""
    if not names_file(name):
        return rules.methods().get(name)
    kind = _rule(name, sha256)

    def build(config: Any) -> Rule:
        with blamed(OwnFile.of(name, key="method").path, f"{kind.__name__} cannot be made", ConfigError):
            return kind.of_config(config)

    about = (kind.__doc__ or "").strip().partition("\n")[0]
    return RuleEntry(build, about, name, kind.usual_quantizer)


def find_quantizer(name: str, sha256: str = "") -> Quantizer:
    """The quantizer that `quantizer` names: one of the table, or FILE.py:CLASS."""
    return _quantizer(name, sha256) if names_file(name) else quantizers.find(name)


@lru_cache
def _rule(name: str, sha256: str) -> type[Rule]:
    found, place = _load(name, sha256, "method")
    if not (isinstance(found, type) and issubclass(found, Rule)):
        raise ConfigError(f"{place} is {found!r}, expected a subclass of adaquantfl.Rule.")
    if not found.name:
        raise ConfigError(f"{place} has no name: write name = {found.__name__.lower()!r} in the class.")
    if inspect.isabstract(found):
        missing = ", ".join(sorted(found.__abstractmethods__))
        raise ConfigError(f"{place} lacks the method {missing}, which every rule has.")
    for method in ("plan", "judge", "wants_loss"):
        expected = inspect.signature(getattr(Rule, method)).parameters.values()
        named = {one.name: None for one in expected if one.kind is one.KEYWORD_ONLY}
        try:
            inspect.signature(getattr(found, method)).bind(*[None] * (len(expected) - len(named)), **named)
        except TypeError as error:
            written = [("*, " * (one.name == next(iter(named), "")) + one.name) for one in expected]
            raise ConfigError(
                f"{place}: {method} cannot be called: {error}. Write def {method}({', '.join(written)})."
            ) from error
    return rules.register(found)


@lru_cache
def _quantizer(name: str, sha256: str) -> Quantizer:
    found, place = _load(name, sha256, "quantizer")
    if isinstance(found, type) and issubclass(found, Quantizer):
        with blamed(OwnFile.of(name, key="quantizer").path, f"{place} cannot be made", ConfigError):
            found = found()
    if not isinstance(found, Quantizer):
        raise ConfigError(f"{place} is {found!r}, expected a subclass of adaquantfl.quantizers.Quantizer.")
    return quantizers.register(found)


def _load(name: str, sha256: str, key: str) -> tuple[Any, str]:
    """What the file has by this name, and the words for it in errors."""
    file = OwnFile.of(name, key=key)
    module = _module(file.path, file.checked(sha256))
    if not hasattr(module, file.name):
        there = [one for one, _ in inspect.getmembers(module, inspect.isclass) if not one.startswith("_")]
        raise ConfigError(f"{file.path} has no class for the {key}. {unknown('class', file.name, there)}")
    return getattr(module, file.name), f"{file.name} in {file.path.name}"


@lru_cache
def _module(path: Path, source: bytes) -> ModuleType:
    """The file, run once in a process: a rule and a quantizer may share it."""
    return OwnFile(path, "").run(source)
