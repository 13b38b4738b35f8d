"""TensorBoard hears of every round and changes nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tensorboardX.proto.event_pb2 import Event

import adaquantfl as aq
from adaquantfl.runs import loop as runner
from adaquantfl.runs import tracking
from adaquantfl.runs.config import Config, load_config
from support.small_runs import TINY

SMALL = {**TINY, "evaluate_every": 2}


def events(path: Path) -> list[Event]:
    """The records of an event file: a length, its checksum, the event, its checksum."""
    data, found = path.read_bytes(), []
    while data:
        length = int.from_bytes(data[:8], "little")
        found.append(Event.FromString(data[12 : 12 + length]))
        data = data[16 + length :]
    return found


def scalars(folder: Path) -> dict[tuple[str, int], float]:
    """(name, step) -> value over all event files, later ones last; a restart voids what it plays again."""
    known: dict[tuple[str, int], float] = {}
    for path in sorted(folder.iterdir()):
        for event in events(path):
            if event.HasField("session_log"):
                known = {key: value for key, value in known.items() if key[1] < event.step}
            known |= {(value.tag, event.step): value.simple_value for value in event.summary.value}
    return known


def test_a_tracked_run_is_the_same_run_and_goes_on_after_a_stop(tmp_path: Path) -> None:
    plain = runner.run(load_config("demo", SMALL), tmp_path / "plain")
    assert not (tmp_path / "plain" / tracking.FOLDER).exists()

    def stop(config: Config, state: object, line: dict[str, Any] | None) -> None:
        if line and line["round"] == 3:
            raise KeyboardInterrupt

    out = tmp_path / "tracked"
    with pytest.raises(KeyboardInterrupt):
        runner.run(load_config("demo", {**SMALL, "tracking": "tensorboard"}), out, stop)
    summary = runner.resume(out)
    assert summary["model_sha256"] == plain["model_sha256"]
    found = scalars(out / tracking.FOLDER)
    assert sorted(step for name, step in found if name == "loss/train") == [2, 4]
    assert sorted(step for name, step in found if name == "quantization/s") == [1, 2, 3, 4]
    assert found["loss/train", 4] == pytest.approx(summary["final_loss"])
    assert found["traffic/up_bytes", 4] == summary["wire_bytes_up"]


def test_a_missing_package_is_named_before_anything_is_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracking, "find_spec", lambda name: None)
    with pytest.raises(aq.ConfigError, match=r"pip install 'adaquantfl\[tensorboard\]'"):
        runner.run(load_config("demo", {**SMALL, "tracking": "tensorboard"}), tmp_path / "run")
    assert not (tmp_path / "run").exists()
