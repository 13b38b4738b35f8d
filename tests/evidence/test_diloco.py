"""The study of outer gradients: the model, the rivals as published, and an interrupted run."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from evidence.studies.senders import sparse, two_bits
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
