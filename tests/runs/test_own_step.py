"""A server step from a user's own file: its fields are its settings, and what is wrong with it names its line."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import adaquantfl as aq
from adaquantfl.cli import main
from adaquantfl.protocol.step import STEPS
from adaquantfl.runs.config import load_config
from adaquantfl.training import methods
from support.small_runs import TINY, options

RETURNED = "return update * self.share, state"
STEP = """from dataclasses import dataclass
from typing import ClassVar
from adaquantfl.protocol.step import ServerStep

@dataclass(frozen=True)
class Mine(ServerStep):
    name: ClassVar[str] = "mine"
    share: float = 0.5

    def apply(self, update, state):
        return update * self.share, state
"""


@pytest.fixture(autouse=True)
def _fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    methods.own_class.cache_clear()
    methods._module.cache_clear()
    STEPS.forget()


def test_its_fields_are_settings_and_a_run_keeps_a_copy_of_it(tmp_path: Path) -> None:
    Path("mine.py").write_text(STEP)
    settings = {**TINY, "rounds": 2, "step": "mine.py:Mine", "step.share": 0.25}
    assert main(["run", "demo", *options(settings), "--quiet", "--out", "run"]) == 0
    record = aq.load("run")
    assert record.label == "AdaQuantFL + Mine"
    assert (record.config["step"]["share"], record.config["step"]["name"]) == (0.25, "mine.py:Mine")
    assert (tmp_path / "run" / "step" / "mine.py").read_text() == STEP
    with pytest.raises(aq.ConfigError, match=r"step.share = 'half' is text, but step.share must be a number"):
        load_config("demo", {"step": "mine.py:Mine", "step.share": "half"})


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (RETURNED, "return None", r"apply \(mine.py, line 10\) returned None; expected"),
        ("update * self.share", "update * float('nan')", r"apply \(mine.py, line 10\) returned NaN or infinity"),
        ("update * self.share", "update * self.shape", r"AttributeError: .*\(mine.py, line 11: return"),
        (
            "def apply(self, update, state)",
            "def combine(self, updates)",
            r"line 10\) returned \[\]; expected a Combined",
        ),
    ],
)
def test_a_wrong_one_is_told_what_is_expected_and_where(
    old: str, new: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    body = STEP.replace(RETURNED, "return []") if "combine" in new else STEP
    Path("mine.py").write_text(body.replace(old, new))
    settings = {**TINY, "rounds": 1, "step": "mine.py:Mine"}
    assert main(["run", "demo", *options(settings), "--quiet", "--out", "run"]) == 1
    assert re.search(words, capsys.readouterr().err)
