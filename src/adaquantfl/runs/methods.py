"""What a comparison compares: a rule, a quantizer, a codec and further settings, in one short name.

Examples:

    adaquant                                the paper's
    adaquant+lattice                        its rule, another quantizer
    my_rule.py:MyRule                       a rule of your own; a quantizer of your own likewise
    2bit+rotated@dense                      a fixed level, another quantizer, one codec
    adaquant[rule.s0=4,scope=whole]         further keys of the configuration
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ..errors import ConfigError
from ..training.methods import defaults_of, find
from ..training.own_files import names_file
from .config import config_of, merged, parse_override
from .labels import label

_NAME = re.compile(
    r"(?P<rule>[^+@\[\]]+)(\+(?P<quantizer>[^+@\[\]]+))?(@(?P<codec>[^+@\[\]]+))?(\[(?P<keys>[^\[\]]*)\])?"
)
_COMMA = re.compile(r",(?![^\[]*\])")  # not within brackets


@dataclass(frozen=True)
class Method:
    """A name and the keys of the configuration that it stands for."""

    name: str
    settings: dict[str, Any]

    @property
    def folder(self) -> str:
        """The name as a folder's: letters, digits and a few signs.

        >>> parse("adaquant[rule.s0=4]").folder
        'adaquant-rule.s0-4'
        """
        without_folders = re.sub(r"[^+@\[\]]*/", "", self.name)  # of files of the user's own
        return re.sub(r"[^A-Za-z0-9_.+@-]+", "-", without_folders).strip("-")


def parse_list(text: str) -> list[Method]:
    """The methods of `--methods`, each once.

    >>> [method.name for method in parse_list("adaquant, 2bit[tau=1,scope=whole],adaquant")]
    ['adaquant', '2bit[tau=1,scope=whole]']
    """
    return [parse(name) for name in split(text)]


def split(text: str) -> list[str]:
    """Return the names in a list with commas, each once; commas in brackets belong to a name."""
    return [name for name in dict.fromkeys(name.strip() for name in _COMMA.split(text)) if name]


def label_of(name: str) -> str:
    """Return what tables and figures call a method.

    >>> label_of("auto"), label_of("4bit+eden"), label_of("adaquant[rule.s0=4]")
    ('auto', '4-bit + eden', 'AdaQuantFL (s0 4)')
    """
    return label(config_of(merged({}, parse(name).settings)).to_dict())


def parse(name: str) -> Method:
    """A method by its name.

    >>> parse("adaquant+lattice@dense").settings
    {'rule': 'adaquant', 'quantizer': 'lattice', 'codec': 'dense'}
    """
    found = _NAME.fullmatch(name)
    if found is None:
        raise ConfigError(
            f"The method {name!r} is not RULE[+QUANTIZER][@CODEC][[KEY=VALUE,...]]. 'adaquantfl methods' lists them."
        )
    if not names_file(found["rule"]):
        find("rule", {"name": found["rule"]})
    settings: dict[str, Any] = {"rule": found["rule"]}
    settings |= {key: found[key] for key in ("quantizer", "codec") if found[key]}
    for item in (found["keys"] or "").split(","):
        if item.strip():
            key, value = parse_override(item)
            if key in settings or key == "seed":
                raise ConfigError(f"The method {name!r} sets {key} twice, or where it has no place.")
            settings[key] = value
    return Method(name, settings)


def lines(key: str, entries: Iterable[tuple[str, str, str]]) -> str:
    """Names, what they are, where they come from and their settings with the defaults, in columns."""
    rows = list(entries)
    width = max(len(name) for name, _, _ in rows)
    found = []
    for name, line, reference in rows:
        settings = ", ".join(f"{one} = {value!r}" for one, value in defaults_of(key, {"name": name}).items())
        found += [f"  {name:{width}}  {line}", f"  {'':{width}}  {reference}"]
        found += [f"  {'':{width}}  [{key}] {settings}"] if settings and key != "quantizer" else []
    return "\n".join(found)
