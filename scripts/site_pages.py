"""The documentation site: docs/, with the command line's page and a report that a reader can use.

    python scripts/site_pages.py [--out site]

The pages are prepared in a folder of their own, where Zensical builds the site by zensical.toml. Nothing is written
into docs/, so that none of it can be out of date. Links to files outside docs/ lead to ADAQUANTFL_REPOSITORY, such as
https://host/owner/name; without it they become the file's name.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from posixpath import normpath

from adaquantfl.cli import build_parser

ROOT = Path(__file__).parents[1]
REPORT = "demo-report.html"
COMMANDS = "<!-- commands -->"
_LINK = re.compile(r"\[([^]]+)]\(((?:\.\./)+[^)#:]*)(#[^)]*)?\)")


def build(out: Path, repository: str | None = None) -> None:
    """Build the site into `out`, which is replaced. A warning ends it."""
    with tempfile.TemporaryDirectory() as name:
        project = Path(name)
        shutil.copytree(ROOT / "docs", project / "docs")
        shutil.copy(ROOT / "zensical.toml", project)
        for folder in ("src", "scripts"):  # mkdocstrings reads the one and runs an extension of the other
            (project / folder).symlink_to(ROOT / folder)
        for page in (project / "docs").rglob("*.md"):
            folder = PurePosixPath(page.relative_to(project / "docs").parent.as_posix())
            text = without_links_out(page.read_text(encoding="utf-8"), folder, repository)
            page.write_text(text.replace(COMMANDS, command_line(build_parser())), encoding="utf-8")
        (project / "docs" / REPORT).write_text(report(ROOT / "evidence" / "records" / "demo"), encoding="utf-8")
        if subprocess.run([sys.executable, "-m", "zensical", "build", "--strict"], cwd=project, check=False).returncode:
            raise SystemExit("The site was not built: a link leads nowhere, or zensical.toml has a mistake. See above.")
        shutil.rmtree(out, ignore_errors=True)
        shutil.move(project / "site", out)


def without_links_out(markdown: str, folder: PurePosixPath, repository: str | None) -> str:
    """Links that leave docs/ lead into the repository, or without its address become the file's name."""

    def replaced(link: re.Match[str]) -> str:
        path = normpath(str("docs" / folder / link[2]))
        if path.startswith("docs/"):
            return link[0]
        return f"[{link[1]}]({repository.rstrip('/')}/blob/main/{path}{link[3] or ''})" if repository else f"`{path}`"

    return _LINK.sub(replaced, markdown)


def report(records: Path) -> str:
    """The page that `adaquantfl report` writes for these runs."""
    from adaquantfl.report.page import content, render
    from adaquantfl.runs.records import find_runs

    return render(content(find_runs([records]), records))


def command_line(parser: argparse.ArgumentParser) -> str:
    """Every command with its options, as Markdown."""
    return "\n".join(line for command in commands(parser) for line in _section(command))


def commands(parser: argparse.ArgumentParser, about: str = "") -> Iterator[tuple[argparse.ArgumentParser, str]]:
    """The commands that do something, each with its line in the list of its parent."""
    groups = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    if not groups:
        yield parser, about
    for group in groups:
        lines = {choice.dest: choice.help or "" for choice in group._choices_actions}
        for name, child in group.choices.items():
            yield from commands(child, lines.get(name, ""))


def _section(command: tuple[argparse.ArgumentParser, str]) -> list[str]:
    parser, about = command
    text = _plain(" ".join((parser.description or f"{about}.").split()))
    usage = " ".join(parser.format_usage().removeprefix("usage: ").split())
    rows = [_row(parser, action) for action in parser._actions if not isinstance(action, argparse._HelpAction)]
    table = ["| argument | meaning |", "| --- | --- |", *rows, ""] if rows else []
    example, _, more = (parser.epilog or "").partition("\n\n")
    after = ["Example:", "", f"    {example.splitlines()[-1].strip()}", ""] if example else []
    after += [_plain(" ".join(more.split())), ""] if more else []
    return [f"## {parser.prog}", "", text, "", f"    {usage}", "", *table, *after]


def _row(parser: argparse.ArgumentParser, action: argparse.Action) -> str:
    """One argument: what to write, and what the help says of it."""
    value = str(action.metavar or (f"{{{','.join(map(str, action.choices))}}}" if action.choices else action.dest))
    names = [f"{name} {value}" if action.nargs != 0 else name for name in action.option_strings] or [value]
    text = _plain(parser._get_formatter()._expand_help(action)) if action.help else ""
    shown = ", ".join(f"`{name}`" for name in names)
    return f"| {shown} | {text} |"


def _plain(text: str) -> str:
    """A sentence of the help: it begins with a capital, and its brackets are no links."""
    return text[:1].upper() + re.sub(r"([][*_`])", r"\\\1", text[1:])


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, default=ROOT / "site")
    build(parser.parse_args().out, os.environ.get("ADAQUANTFL_REPOSITORY"))
