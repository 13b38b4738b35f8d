"""A method and its settings as a table: what [rule], [quantizer], [step], [downlink] and [private] name.

A method is a dataclass and the keys of its table are its fields, so a new setting is one line in the method's class. A
method of the user's own is FILE.py:CLASS: its file is run, checked, and made known by its name in this process.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import MISSING, asdict, dataclass, fields, is_dataclass
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any

from ..errors import AdaQuantError, ConfigError, RuleError, own_place
from ..names import unknown
from ..private.settings import MODES, Private
from ..protocol.downlink import DOWNLINKS, Whole
from ..protocol.step import STEPS, ServerStep
from ..quantizers import registry as quantizers
from ..quantizers.base import Quantizer
from ..rules import Rule
from ..rules import registry as rules
from .own_files import OwnFile, blamed, names_file

Table = dict[str, Any]
_BASES: dict[str, type] = {
    "rule": Rule,
    "quantizer": Quantizer,
    "step": ServerStep,
    "downlink": Whole,
    "private": Private,
}
KINDS = tuple(_BASES)
_REGISTRIES: dict[str, Any] = {"rule": rules.RULES, "step": STEPS, "downlink": DOWNLINKS, "private": MODES}
_SIGNATURES = {"rule": ("plan", "judge"), "step": ("combine", "apply"), "downlink": ("publish",)}
_TYPES = {"int": "an integer (a whole number)", "float": "a number", "str": "text", "bool": "true or false"}


@dataclass(frozen=True)
class _OfQuantizers:
    """What can be set for any quantizer."""

    norm: str = ""  # "l2" or "linf"; "": its usual one
    sparsity: int = 400  # "stc" keeps one element in this many


def as_table(value: Any) -> Table:
    """A table for a name, a table or an object; empty for "".

    >>> as_table("4bit"), as_table({"name": "adaquant", "s0": 4})
    ({'name': '4bit'}, {'name': 'adaquant', 's0': 4})
    """
    if isinstance(value, str):
        return {"name": value} if value else {}
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, tuple(_BASES.values())):
        method: Any = value
        return {"name": method.name, **_asdict(method)}
    raise ConfigError(f"{value!r}: expected the name of a method, a table with a name, or a method's object.")


def complete(key: str, value: Any) -> Table:
    """The table with every setting of its method, so that it means the same when defaults change.

    >>> complete("step", "momentum")
    {'name': 'momentum', 'eta': 0.0, 'beta': 0.9}
    """
    table = as_table(value)
    if not isinstance(value, str | Mapping):
        register(key, value)
    made = build(key, table)
    own = _asdict(made)
    if key == "quantizer":
        own = {**asdict(_OfQuantizers()), **own}
    if names_file(table["name"]) or getattr(made, "name", "") == table["name"]:  # not a name such as "4bit"
        return {"name": table["name"], **own, **table}
    return table


def _asdict(method: Any) -> Table:
    """The settings of a method that are set; TOML has no word for None."""
    if not is_dataclass(method) or isinstance(method, type):
        return {}
    return {name: value for name, value in asdict(method).items() if value is not None}


def build(key: str, table: Table) -> Any:
    """The method that a table describes; ConfigError names the key that is wrong.

    >>> build("step", {"name": "momentum", "beta": 0.5})
    Momentum(eta=0.0, beta=0.5)
    """
    given = {name: value for name, value in table.items() if name not in ("name", "sha256")}
    kind, preset = find(key, table)
    valid = settings_of(key, kind)
    for name, value in given.items():
        if name not in valid:
            what = f"{key} = {table['name']!r} has no setting named {name!r}."
            has = f"Its settings are: {', '.join(valid)}." if valid else "It has no settings."
            raise ConfigError(f"{what} {has} docs/configuration.md explains them.")
        check_type(f"{key}.{name}", value, valid[name])
    if isinstance(kind, Quantizer):  # one of ours: norm and sparsity are told to the server, not to it
        return kind
    if key == "quantizer":
        given = {name: value for name, value in given.items() if name not in _OfQuantizers.__dataclass_fields__}
    try:
        if names_file(table["name"]):
            with blamed(OwnFile.of(table["name"], key=key).path, f"{kind.__name__} cannot be made", ConfigError):
                made = kind(**{**preset, **given})
            return quantizers.register(made) if key == "quantizer" else made
        return kind(**{**preset, **given})
    except (AdaQuantError, TypeError) as error:
        raise error if isinstance(error, ConfigError) else ConfigError(f"{key}: {error}") from None


def settings_of(key: str, kind: Any) -> dict[str, str]:
    """The settings of a method's class and their types."""
    own = {field.name: _type(field.type) for field in fields(kind) if field.init} if is_dataclass(kind) else {}
    return {**{f.name: str(f.type) for f in fields(_OfQuantizers)}, **own} if key == "quantizer" else own


def defaults_of(key: str, table: Table) -> Table:
    """What a table's settings are where nothing is said; none for a method of the user's own."""
    if names_file(table["name"]):
        return {}
    kind, preset = find(key, table)
    own = {f.name: f.default for f in fields(kind) if f.default is not MISSING} if is_dataclass(kind) else {}
    return {**(asdict(_OfQuantizers()) if key == "quantizer" else {}), **own, **preset}


def find(key: str, table: Table) -> tuple[Any, Table]:
    """The class that a table names (of a quantizer of ours: the object), and the settings that its name stands for."""
    name = table.get("name", "")
    if not isinstance(name, str) or not name:
        raise ConfigError(f"{key} = {name!r}: expected the name of a {key}, such as {_EXAMPLES[key]!r}.")
    if names_file(name):
        return own_class(key, name, str(table.get("sha256", ""))), {}
    if key == "rule":
        return _rule(name)
    try:
        return (quantizers if key == "quantizer" else _REGISTRIES[key]).find(name), {}
    except AdaQuantError as error:
        raise ConfigError(str(error)) from None


_EXAMPLES = {"rule": "adaquant", "quantizer": "uniform", "step": "sum", "downlink": "exact", "private": "masked"}


def _rule(name: str) -> tuple[Any, Table]:
    if name not in rules.methods():
        raise ConfigError(rules.RULES.broken(name) or unknown("rule", name, rules.methods()))
    return rules.methods()[name]


def register(key: str, method: Any) -> None:
    """Make a method of the user's own known by its name in this process."""
    if key == "quantizer":
        quantizers.register(method)
    else:
        _REGISTRIES[key].register(type(method))


@lru_cache
def own_class(key: str, name: str, sha256: str) -> Any:
    """The class that FILE.py:CLASS names, checked and known; ConfigError says what is expected of it."""
    file, base = OwnFile.of(name, key=key), _BASES[key]
    found, place = in_file(file, file.checked(sha256))
    if not (isinstance(found, type) and issubclass(found, base)):
        shown = "adaquantfl" if key == "rule" else base.__module__.removesuffix(".base")
        raise ConfigError(f"{place} is {found!r}, expected a subclass of {shown}.{base.__name__}.")
    if not getattr(found, "name", ""):
        raise ConfigError(f"{place} has no name: write name = {found.__name__.lower()!r} in the class.")
    if key == "quantizer" and not getattr(found, "tags", None):
        raise ConfigError(
            f"{place} has no tags: write tags = {{'l2': 200}} in the class, a number from 128 to 254 a norm."
        )
    for method in _SIGNATURES.get(key, ()):
        check_signature(place, method, getattr(base, method), getattr(found, method))
    if key != "quantizer":
        _REGISTRIES[key].register(found)
    return found


def in_file(file: OwnFile, source: bytes) -> tuple[Any, str]:
    """What has this name in a file, and words for it."""
    module = _module(file.path, source)
    if not hasattr(module, file.name):
        there = [one for one, _ in inspect.getmembers(module, inspect.isclass) if not one.startswith("_")]
        raise ConfigError(f"{file.path} has no class for the {file.key}. {unknown('class', file.name, there)}")
    return getattr(module, file.name), f"{file.name} in {file.path.name}"


def check_signature(place: str, method: str, base: Any, own: Any) -> None:
    """ConfigError where a method of the user's own cannot be called as that of the base class."""
    expected = inspect.signature(base).parameters.values()
    named = {one.name: None for one in expected if one.kind is one.KEYWORD_ONLY}
    try:
        inspect.signature(own).bind(*[None] * (len(expected) - len(named)), **named)
    except TypeError as error:
        written = ", ".join("*, " * (one.name == next(iter(named), "")) + one.name for one in expected)
        raise ConfigError(f"{place}: {method} cannot be called: {error}. Write def {method}({written}).") from error


@lru_cache
def _module(path: Path, source: bytes) -> ModuleType:
    """The file, run once in a process: a rule and a quantizer may share it."""
    return OwnFile(path, "").run(source)


@contextmanager
def blamed_round(round: int) -> Iterator[None]:
    """Make what a method of the user's own raises in a round a sentence with the line of its file."""
    try:
        yield
    except AdaQuantError:
        raise
    except Exception as error:
        if place := own_place(error):
            raise RuleError(f"Round {round}: your own code raised {type(error).__name__}: {error}{place}.") from error
        raise


def check_type(key: str, value: Any, declared: str) -> None:
    """ConfigError where a value is not of the type that its field declares."""
    kinds = declared.split(" | ")
    if not set(kinds) <= _TYPES.keys() or ("float" in kinds and type(value) is int):  # 1 is a fine 1.0
        return
    if type(value).__name__ in kinds:
        if isinstance(value, float) and not math.isfinite(value):
            raise ConfigError(f"{key} = {value}: it must be a finite number.")
        return
    expected = " or ".join(_TYPES[kind] for kind in kinds)
    given = {"dict": "a section", "list": "a list"}.get(type(value).__name__) or _TYPES.get(type(value).__name__)
    shown = str(value).lower() if isinstance(value, bool) else repr(value)
    raise ConfigError(f"{key} = {shown} is {given or type(value).__name__}, but {key} must be {expected}.")


def _type(declared: Any) -> str:
    return declared if isinstance(declared, str) else getattr(declared, "__name__", str(declared))
