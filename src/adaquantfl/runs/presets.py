"""Where a configuration comes from: a preset that ships with the package, or a TOML file."""

from __future__ import annotations

import tomllib
from importlib import resources
from pathlib import Path
from typing import Any

from ..errors import ConfigError
from ..names import unknown


def preset_names() -> list[str]:
    """The presets that ship with the package."""
    folder = resources.files("adaquantfl.runs") / "preset_files"
    return sorted(item.name.removesuffix(".toml") for item in folder.iterdir() if item.name.endswith(".toml"))


def read_toml(source: str | Path) -> dict[str, Any]:
    """The keys of a preset or a TOML file, unchecked."""
    path = Path(source)
    if path.suffix == ".toml" or path.is_file():
        if not path.is_file():
            raise ConfigError(f"There is no file {source}. The presets are: {', '.join(preset_names())}.")
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            raise ConfigError(f"{source} is not a text file in UTF-8.") from None
    elif str(source) in preset_names():
        text = (resources.files("adaquantfl.runs") / "preset_files" / f"{source}.toml").read_text(encoding="utf-8")
    else:
        raise ConfigError(
            unknown("preset", source, preset_names())
            + " A file of your own ends in .toml; a task of your own is FILE.py:FUNCTION."
        )
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        hint = 'Text needs quotes in a TOML file, such as rule = "4bit".'
        raise ConfigError(f"{source} is not valid TOML: {error}. {hint}") from None
