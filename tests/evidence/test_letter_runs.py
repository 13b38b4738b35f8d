"""The runs to the letter: each record has the settings that the command would run today."""

from __future__ import annotations

from pathlib import Path

import pytest

from adaquantfl.runs.config import load_config
from evidence.studies import letter, letter_runs

RECORDED = sorted(
    path
    for panel in letter_runs.PANELS
    for path in (Path(__file__).parents[2] / letter.RECORDS / panel).glob("*/seed-*")
)
OF_OTHER_RULES = {"error", "harm", "repair"}  # whose defaults have changed since


@pytest.mark.parametrize("record", RECORDED, ids=lambda path: "/".join(path.parts[-3:]))
def test_a_record_has_the_settings_of_its_panel(record: Path) -> None:
    panel, method, seed = record.parts[-3:]
    there = load_config(record / "config.toml").to_dict()
    if there["clients_per_round"] == there["clients"]:
        there["clients_per_round"] = 0  # all of them, in other words
    wanted = letter_runs.job(panel, method, int(seed.removeprefix("seed-"))).config.to_dict()
    assert {key for key in there | wanted if there.get(key) != wanted.get(key)} <= OF_OTHER_RULES


def test_what_is_unknown_is_named_before_anything_runs(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(letter_runs.reproduce, "carry_out_to_any_end", lambda *_: pytest.fail("it ran"))
    for wrong in (["fmnist-sample-cnn"], ["--methods", "no-such-method"], ["--seeds", "one"]):
        with pytest.raises(SystemExit):
            letter_runs.main(wrong)
        assert wrong[-1] in capsys.readouterr().err
