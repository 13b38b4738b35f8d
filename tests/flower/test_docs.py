"""docs/flower.md: the block that saves and resumes does so."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from adaquantfl.protocol.arrays import EXACT_NAMES
from support.fake_flower import Client, FakeGrid, record
from support.paper_strategy import paper_strategy

PAGE = (Path(__file__).parents[2] / "docs" / "flower.md").read_text()


def test_a_server_that_is_killed_goes_on_to_the_same_model(tmp_path: Path) -> None:
    (block,) = [code for code in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL) if "load_state_dict" in code]
    names: dict[str, Any] = {}
    exec(compile(block, "docs/flower.md", "exec"), names)
    names["AdaQuantStrategy"] = paper_strategy  # with error feedback a new run does not know what clients left out
    first = record({"w": np.linspace(-1, 1, 200, dtype="f4")})

    class Dying(FakeGrid):
        def send_and_receive(self, messages: Any, **options: Any) -> Any:
            if len(self.sent) >= 6:
                raise KeyboardInterrupt
            return super().send_and_receive(messages, **options)

    clients = [Client(lambda _, array, k=k: array * np.float32(0.9 - 0.1 * k)) for k in range(2)]
    (tmp_path / "whole").mkdir()
    (tmp_path / "killed").mkdir()
    whole = names["train"](FakeGrid(clients), first, 5, tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        names["train"](Dying(clients), first, 5, tmp_path / "killed")
    resumed = names["train"](FakeGrid(clients), first, 5, tmp_path / "killed")
    assert np.array_equal(resumed["w"].numpy(), whole["w"].numpy())
    again = names["train"](FakeGrid(clients), first, 5, tmp_path / "killed")
    assert np.array_equal(again["w"].numpy(), whole["w"].numpy())


def test_every_metric_and_default_pattern_is_on_the_page() -> None:
    names = ("s", "bits_per_element", "paper_bits", "payload_bytes")
    more = ("message_bytes_up", "message_bytes_down", "ratio_up", "ratio_down", "seconds", "error", "clipped", "failed")
    for name in (*names, *more, "quantized", "plain", "refused"):
        assert f"`aq_{name}`" in PAGE
    assert [pattern for pattern in EXACT_NAMES if pattern.startswith("*running") and pattern not in PAGE] == []
