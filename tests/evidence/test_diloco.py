"""The study of outer gradients: the model, the rivals as published, and an interrupted run."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from evidence.studies import diloco
from evidence.studies.diloco import Setting
from evidence.studies.senders import METHODS, sparse, two_bits
from evidence.studies.tasks.gpt import GPT

TINY = GPT(layers=1, heads=2, head=4, context=8)


def test_models_that_are_computed_together_have_their_own_losses() -> None:
    rows = torch.stack([TINY.start(seed) for seed in range(3)])
    text = torch.randint(96, (3, 5, TINY.context + 1), generator=torch.Generator().manual_seed(0))
    together = TINY.losses(TINY.parts(rows), text)
    alone = [TINY.losses(TINY.parts(rows[[one]]), text[[one]]) for one in range(3)]
    torch.testing.assert_close(together, torch.cat(alone))
    assert rows.shape[1] == sum(TINY.lengths)


def test_sparseloco_sends_64_of_4096_in_14_bits_each() -> None:
    lengths = [3 * 4096, 4096]
    vector = np.random.default_rng(0).standard_normal(sum(lengths)).astype(np.float32)
    sent = sparse(vector, lengths)
    for chunk, values in zip(vector.reshape(-1, 4096), sent.values.reshape(-1, 4096), strict=True):
        kept = np.flatnonzero(values)
        assert len(kept) == 64
        assert np.abs(chunk[kept]).min() >= np.abs(np.delete(chunk, kept)).max()
    assert 8 * sent.plain / len(vector) == pytest.approx(0.219 + 8 * 32 / len(vector), abs=1e-3)
    assert sent.size < sent.plain


def test_two_bits_are_the_means_of_their_steps() -> None:
    values = np.array([-3.0, -1.0, -1.2, 1.0, 1.2, 3.0], dtype=np.float32)
    codes, table = two_bits(values)
    for code in np.unique(codes):
        assert table[code] == pytest.approx(values[codes == code].mean())


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(diloco.SIZES, "small", Setting(TINY, rounds=4, batch=1, start=3, rate=1e-3, checkpoint_every=2))
    monkeypatch.setattr(diloco, "INNER_STEPS", 2)


@pytest.mark.slow
@pytest.mark.usefixtures("tiny")
@pytest.mark.parametrize("name", ["int4", "sparseloco"])
def test_an_interrupted_run_ends_in_the_same_record(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    diloco.record("small", name, 0, tmp_path / "work", tmp_path / "whole")
    play, rounds = diloco.Run.round, []

    def interrupted(run: diloco.Run) -> None:
        rounds.append(len(run.history))
        if len(rounds) == 4:
            raise KeyboardInterrupt
        play(run)

    monkeypatch.setattr(diloco.Run, "round", interrupted)
    with pytest.raises(KeyboardInterrupt):
        diloco.record("small", name, 0, tmp_path / "work", tmp_path / "again")
    diloco.record("small", name, 0, tmp_path / "work", tmp_path / "again")
    assert rounds == [0, 1, 2, 3, 2, 3]
    whole, again = (
        json.loads((tmp_path / out / "small" / name / "seed-0.json").read_text()) for out in ("whole", "again")
    )
    assert whole == again


@pytest.mark.slow
@pytest.mark.usefixtures("tiny")
def test_the_table_compares_with_float32_of_the_same_seed(tmp_path: Path) -> None:
    for name in ("float32", "int8"):
        diloco.record("small", name, 1, tmp_path / "work", tmp_path)
    lines = diloco.table("small", tmp_path).splitlines()
    assert len(lines) == 4
    runs = diloco.records("small", tmp_path)
    above = runs["int8"][1]["final_loss"] / runs["float32"][1]["final_loss"] - 1
    assert f"{100 * above:+.2f} %" in lines[-1]
    assert METHODS["int8"].title in lines[-1]
