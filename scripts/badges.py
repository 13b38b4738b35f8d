"""The badges in docs/assets/badges, from pyproject.toml: pictures in the repository, which ask no server for anything.

python scripts/badges.py
"""

from __future__ import annotations

import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs" / "assets" / "badges"
_LETTER, _AIR = 6.6, 10  # pixels: the width of a letter, and what is free at both ends


def badges() -> dict[str, str]:
    """The SVG of each badge by its file's name."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    known = [line.rpartition(" ")[2] for line in project["classifiers"] if "Python :: 3." in line]
    return {
        "version.svg": picture("version", project["version"], "#0072b2"),
        "python.svg": picture("python", f"{known[0]} to {known[-1]}", "#00765a"),
        "license.svg": picture("license", project["license"], "#57606a"),
    }


def picture(name: str, value: str, colour: str) -> str:
    """A name on grey beside a value on a colour."""
    left, right = (round(_LETTER * len(text) + 2 * _AIR) for text in (name, value))
    font = 'font-family="Verdana, DejaVu Sans, sans-serif" font-size="11" fill="#ffffff" text-anchor="middle"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + right}" height="20" role="img" '
        f'aria-label="{name}: {value}">\n'
        f'<rect width="{left}" height="20" fill="#3b424a"/>\n'
        f'<rect x="{left}" width="{right}" height="20" fill="{colour}"/>\n'
        f'<g {font}><text x="{left / 2}" y="14">{name}</text><text x="{left + right / 2}" y="14">{value}</text></g>\n'
        "</svg>\n"
    )


def main() -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, text in badges().items():
        (FOLDER / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
