"""What a reader calls a method: one label for one method, the same in every file and figure, so that tables join."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from ..errors import AdaQuantError, ConfigError
from ..protocol.stages import first_plan
from ..training import own_files
from ..training.methods import build, defaults_of


def label(config: Mapping[str, Any]) -> str:
    """The method of a configuration, with whatever differs from the defaults of its rule, quantizer and server step.

    >>> label({"rule": {"name": "adaquant", "s0": 4, "rounding": "nearest"}})
    'AdaQuantFL (s0 4, nearest)'
    >>> label({"rule": {"name": "4bit"}, "quantizer": {"name": "eden"}, "step": {"name": "adam"}})
    '4-bit + eden + adam'
    """
    method = str(config["rule"]["name"])
    private = str(config.get("private", {}).get("name", "off"))
    rule = method_label(method) if private == "off" else private
    parts = [_with_notes(rule, _notes(config, "rule") + _notes(config, "private"))]
    for key, usual in {"quantizer": _usual_quantizer(method), "step": "sum"}.items():
        name = str(config.get(key, {}).get("name", "uniform" if key == "quantizer" else usual))
        if name != usual or _notes(config, key):
            parts.append(_with_notes(own_files.short(name), _notes(config, key)))
    return " + ".join(parts)


def method_label(method: str) -> str:
    """The rule as a reader knows it.

    >>> method_label("adaquant"), method_label("4bit"), method_label("fp32")
    ('AdaQuantFL', '4-bit', 'float32')
    """
    bits = fixed_bits(method)
    return f"{bits}-bit" if bits else {"adaquant": "AdaQuantFL", "fp32": "float32"}.get(method, own_files.short(method))


def fixed_bits(method: str) -> int | None:
    """The bits of a rule such as "4bit"; None for others."""
    match = re.fullmatch(r"(\d+)bit", method)
    return int(match.group(1)) if match else None


def _notes(config: Mapping[str, Any], key: str) -> list[str]:
    """The settings of a method that differ from its defaults, in words."""
    table = config.get(key, {})
    try:
        defaults = defaults_of(key, table) if table else {}
    except ConfigError:  # of a package or a version that is not here
        defaults = {}
    different = {name: value for name, value in table.items() if name in defaults and value != defaults[name]}
    return [value if isinstance(value, str) else f"{name} {value}" for name, value in different.items()]


def _with_notes(name: str, notes: Sequence[str]) -> str:
    return f"{name} ({', '.join(notes)})" if notes else name


def _usual_quantizer(method: str) -> str:
    try:
        return first_plan(build("rule", {"name": method})).quantizer or "uniform"
    except AdaQuantError:  # a rule of a file or a package that is not here
        return "uniform"
