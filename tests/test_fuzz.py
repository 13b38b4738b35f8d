"""The fuzz harness itself: it runs clean, it repeats a batch by its number, and it finds what is planted."""

from __future__ import annotations

import json
from itertools import count
from pathlib import Path
from random import Random
from types import SimpleNamespace

import numpy as np
import pytest

import adaquantfl as aq
from adaquantfl import core
from adaquantfl.protocol import parcels
from fuzz import batch, frames, mutate
from fuzz.oracles import FrameOracle


@pytest.fixture(scope="module", autouse=True)
def seeds() -> None:
    """Made before a test breaks something on purpose, whichever test comes first in this process."""
    batch._seeds()


@pytest.mark.parametrize("mutants", [400, pytest.param(2_000, marks=pytest.mark.slow)])
def test_mutants_are_refused_or_read_as_they_must_be(mutants: int) -> None:
    done = batch.run(0, mutants)
    assert done.findings == []
    assert done.executions == mutants
    assert 0.1 < done.accepted / mutants < 0.75
    assert set(done.targets) == {
        "frame", "reply", "order", "parcel", "server_state", "client_state", "packed_state",
    }  # fmt: skip
    assert len(done.refused) > 20  # reasons
    assert done.checks["decoded and compared with the sum"] > 5


def test_a_batch_is_repeated_by_its_number() -> None:
    one, other = batch.run(3, 300), batch.run(3, 300)
    assert (one.accepted, one.refused) == (other.accepted, other.refused)


def test_seeds_are_put_together_as_they_were() -> None:
    x = np.linspace(-1, 1, 20, dtype=np.float32)
    for name in ("uniform", "lattice", "centroid"):
        frame = aq.compress(x, 3, 1, segments=[16, 4], quantizer=name)
        assert frames.take_apart(frame).build() == frame


def test_a_frame_of_no_elements_may_become_a_start_for_others() -> None:
    parts = frames.take_apart(aq.encode_float32(np.ones(4, np.float32)))
    parts.dimension = 0
    mutator = frames.Mutator([parts], [], Random(0))
    assert min(mutator.mutant()[1] for _ in range(50)) == 1


def test_a_sum_that_is_not_finite_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    def planted(data: bytes, total: np.ndarray, *_: object) -> float:
        total[0] = np.nan
        return 1.0

    monkeypatch.setattr(core, "add", planted)
    with pytest.raises(Exception, match=r"not finite|above the bound"):
        FrameOracle(Random(0)).run(aq.encode_float32(np.ones(4, np.float32)), 4)


def test_an_exception_of_another_kind_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise IndexError("planted")

    monkeypatch.setattr(parcels, "walk", broken)
    found = batch.run(2, 1_500).findings
    assert any("IndexError: planted" in words for words, _ in found)


def test_counts_are_added_up_and_findings_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state, findings = tmp_path / "state.json", tmp_path / "findings"
    monkeypatch.setattr(mutate, "BATCH", 20)
    clock = count().__next__  # a second passes from one look at it to the next
    monkeypatch.setattr(mutate, "time", SimpleNamespace(monotonic=clock, process_time=lambda: 0.0))
    arguments = ["--minutes", "0.03", "--state", str(state), "--findings", str(findings)]
    assert mutate.main(arguments) == 0
    first = json.loads(state.read_text())
    assert mutate.main(arguments) == 0
    second = json.loads(state.read_text())
    assert second["executions"] == 20 * second["next_batch"] > first["executions"]
    assert set(second["checks"]) <= {
        "decoded and compared with the sum", "described", "read by the reference decoder", "refused by decode too",
        "written and read again",
    }  # fmt: skip
    assert not findings.exists()
    planted = batch.Batch(20, findings=[("planted", b"bytes")])
    monkeypatch.setattr(batch, "run", lambda number, executions: planted)
    assert mutate.main(arguments) == 1
    assert [path.read_bytes() for path in findings.glob("*.bin")] == [b"bytes"]
