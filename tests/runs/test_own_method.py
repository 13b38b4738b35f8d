"""Rules and quantizers from files of the user's own: the how-to works as written, and mistakes name the user's line."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import adaquantfl as aq
from adaquantfl.cli import main
from adaquantfl.engines.launch import launch
from adaquantfl.engines.own_file import VARIABLES, settings_here
from adaquantfl.quantizers import registry as quantizers
from adaquantfl.rules.registry import RULES
from adaquantfl.runs import loop
from adaquantfl.runs.config import load_config
from adaquantfl.runs.loop import Request
from adaquantfl.runs.records import find_runs
from adaquantfl.training import methods
from support import pages
from support.small_runs import TINY, interrupt_after, options

PAGE = pages.blocks(pages.ROOT / "docs" / "own-task.md")
FILES = {block.mark.removeprefix("file: "): block.code for block in PAGE if block.mark.startswith("file: ")}
RULE, QUANTIZER = "my_rule.py:Plateau", "my_quantizer.py:Largest"
Write = Callable[..., None]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Write]:
    """Write the page's files into the working directory, with a part of one replaced."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(VARIABLES["quantizer"], raising=False)

    def files(old: str = "", new: str = "") -> None:
        assert old in "".join(FILES.values())
        forget()
        for name, code in FILES.items():
            Path(name).write_text(code.replace(old, new) if old else code)

    yield files
    forget()


def forget() -> None:
    """As a new process is: what was run from files is not known."""
    for cache in (methods.own_class, methods._module):
        cache.cache_clear()
    RULES.forget()
    quantizers._TABLE.forget()


def settings(**changes: Any) -> dict[str, Any]:
    return {**TINY, "rule": RULE, "quantizer": QUANTIZER, **changes}


def test_the_commands_of_the_page_work(write: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write()
    (script,) = [block.code for block in PAGE if block.language == "console" and "my_rule.py" in block.code]
    for number, (_, *arguments) in enumerate(pages.lines(script)):
        assert main([*arguments, *options({**TINY, "rounds": 2}), "--quiet", "--out", f"out{number}"]) == 0
    assert "Plateau + Largest" in capsys.readouterr().out
    labels = {run.label for run in find_runs(sorted(tmp_path.glob("out*")))}
    assert labels == {
        "Plateau + Largest", "AdaQuantFL + Largest", "4-bit + Largest", "Plateau + rotated",
    }  # fmt: skip
    assert (tmp_path / "out0" / "my_rule.py-Plateau" / "seed-0" / "rule" / "my_rule.py").is_file()


def test_a_run_with_both_is_resumed_to_the_same_model_and_holds_to_its_files(write: Write, tmp_path: Path) -> None:
    write()
    config = load_config("demo", settings())
    whole = loop.run(config, tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        loop.run(config, tmp_path / "cut", interrupt_after(2))
    text = (tmp_path / "cut" / "config.toml").read_text()
    assert 'name = "../my_rule.py:Plateau"' in text
    assert f'sha256 = "{config.quantizer["sha256"]}"' in text
    assert len(config.quantizer["sha256"]) == 64
    assert loop.resume(tmp_path / "cut")["model_sha256"] == whole["model_sha256"]
    write("0.98", "0.97")
    with pytest.raises(aq.TaskError, match=r"my_rule.py is not the file that this run began with.*rule/"):
        loop.resume(tmp_path / "cut")
    assert load_config(tmp_path / "cut" / "config.toml", {"rule": "4bit"}).rule == {"name": "4bit"}


@pytest.mark.slow  # two workers, which load PyTorch
def test_worker_processes_know_them(write: Write, tmp_path: Path) -> None:
    write("feedback=True", "feedback=False")  # with error feedback there is one worker
    alone, two = (
        loop.run(load_config("demo", settings(rounds=2, workers=workers)), tmp_path / str(workers))
        for workers in (1, 2)
    )
    assert alone["model_sha256"] == two["model_sha256"]


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("engine", ["gloo", "flower"])
def test_clients_of_other_engines_know_them(write: Write, tmp_path: Path, engine: str) -> None:
    write()
    config = load_config("demo", settings(rounds=2))
    here = loop.run(config, tmp_path / "here")
    there = launch(engine, Request(tmp_path / "there", config))
    assert there is not None
    assert there["model_sha256"] == here["model_sha256"]


def test_a_server_cannot_name_the_file_that_a_client_runs(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write()
    sent = load_config("demo", settings()).for_clients()
    with pytest.raises(aq.TaskError, match=rf"uses the quantizer {QUANTIZER}, but this client was started without"):
        settings_here(sent)
    (tmp_path / "mine").mkdir()
    Path("my_quantizer.py").rename(Path("mine") / "my_quantizer.py")
    monkeypatch.setenv(VARIABLES["quantizer"], f"mine/{QUANTIZER}")
    assert settings_here(sent).quantizer["name"] == f"{tmp_path}/mine/{QUANTIZER}"


def line_of(name: str, words: str) -> int:
    return next(n for n, line in enumerate(Path(name).read_text().splitlines(), 1) if words in line)


def test_an_error_in_a_rule_names_its_line(write: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write('s, best, waited = state["s"], state["best"], state["waited"] + 1', "waited = 1 / 0")
    assert main(["run", "demo", *options({**TINY, "rule": RULE}), "--quiet", "--out", "out"]) == 1
    (said,) = [block.code for block in PAGE if block.mark == "output of a failing rule"]
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (
            '"waited": waited}, aq.Verdict.KEEP',
            '"waited": waited}',
            r"Plateau.judge \(my_rule.py, line 15\) returned {.*expected a state and a verdict",
        ),
        (
            'return state, aq.Plan(levels=state["s"])',
            "return 4",
            r"Plateau.plan \(my_rule.py, line 12\) returned 4; expected a state and a plan",
        ),
    ],
)
def test_a_rule_that_returns_something_else_is_told_what_to_return(
    write: Write, tmp_path: Path, old: str, new: str, words: str
) -> None:
    write(old, new)
    with pytest.raises((aq.ConfigError, aq.RuleError), match=words):
        loop.run(load_config("demo", {**TINY, "rule": RULE}), tmp_path / "run")


def test_an_error_in_a_quantizer_names_its_line(write: Write, tmp_path: Path) -> None:
    write("np.rint(vector / steps)", "np.rint(vector / steps[:3])")
    place = rf"quantize raised ValueError: .*\(my_quantizer.py, line {line_of('my_quantizer.py', '[:3]')}: return"
    with pytest.raises(aq.ConfigError, match=place):
        loop.run(load_config("demo", settings()), tmp_path / "run")


@pytest.mark.parametrize(
    ("old", "new", "method", "words"),
    [
        ("", "", "my_rule.py:Platau", "no class for the rule.*Did you mean 'Plateau'"),
        ("", "", "my_rule.py:aq", "aq in my_rule.py is <module.*expected a subclass of adaquantfl.Rule"),
        ("", "", "no_rule.py:Plateau", "There is no file .*no_rule.py, which the rule is in"),
        ('name = "plateau"', "pass", RULE, "Plateau in my_rule.py has no name"),
        ("def plan(", "def start(", RULE, "Plateau cannot be made: .* abstract method plan"),
        ("def judge(self, state, report)", "def judge(self, state)", RULE, r"Write def judge\(self, state, report\)"),
        ("import adaquantfl as aq", "import adaquantfl as aq\n1 / 0", RULE, r"ZeroDivisionError.*\(my_rule.py, line"),
    ],
)
def test_a_file_that_gives_no_rule_is_refused(write: Write, old: str, new: str, method: str, words: str) -> None:
    write(old, new)
    with pytest.raises(aq.AdaQuantError, match=words):
        load_config("demo", {"rule": method})


def test_a_quantizer_that_is_none_is_refused(write: Write) -> None:
    write()
    with pytest.raises(aq.ConfigError, match=r"expected a subclass of adaquantfl.quantizers.Quantizer"):
        load_config("demo", {"quantizer": "my_quantizer.py:Segments"})
