"""The binding knows what the core knows, and passes on what goes wrong."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import adaquantfl as aq
from adaquantfl import core
from adaquantfl.codecs.frame import Known, read_frame, traits_struct
from adaquantfl.quantizers.registry import by_tag, find, names

ROOT = Path(__file__).parents[1]


def test_every_fault_that_the_core_can_name_has_a_sentence() -> None:
    (codes,) = re.findall(r"enum aq_code \{(.*?)\};", (ROOT / "core" / "aq.h").read_text(), re.S)
    assert re.findall(r"AQ_([A-Z_]+)\b(?=,|\s|$)", re.sub(r"/\*.*?\*/", "", codes, flags=re.S)) == list(core.SENTENCES)


def test_the_core_and_the_quantizers_agree_on_every_tag() -> None:
    for tag in sorted(tag for name in names() for tag in find(name).tags.values() if tag < 128):
        ours, cores = traits_struct(by_tag(tag)[0]), core.traits_of(tag)
        fields = [field for field, _ in core.Traits._fields_]
        assert {name: getattr(ours, name) for name in fields} == {name: getattr(cores, name) for name in fields}, tag
    assert core.traits_of(14) is None


def test_an_interrupt_in_the_middle_of_shared_work_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    x = np.ones(2_000_000, dtype=np.float32)
    aq.set_threads(2)
    monkeypatch.setattr(core, "over_ranges", interrupted)
    for work in (lambda: aq.compress(x, 3, 1, "fixed"), lambda: aq.quantize(x, 3, 1, quantizer="centroid")):
        with pytest.raises(KeyboardInterrupt):
            work()
    monkeypatch.undo()
    assert aq.decode(aq.compress(x, 3, 1, "fixed")) == aq.quantize(x, 3, 1)  # and is not raised again


def test_without_its_library_the_import_says_how_to_build_it(tmp_path: Path) -> None:
    code = (
        "import pathlib, adaquantfl\n"
        "pathlib.Path.with_name = lambda path, name: pathlib.Path('no', name)\n"
        "try:\n    adaquantfl.quantize\nexcept ImportError as error:\n    print(error)\n"
        "import adaquantfl.core\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 1
    assert "python hatch_build.py" in done.stderr


def test_a_difference_for_an_empty_array_moves_nothing() -> None:
    weights = np.zeros(0, dtype=np.float16)
    hostile = aq.diff(np.zeros(100, np.float16), np.ones(100, np.float16))
    header = bytearray(aq.diff(weights, weights))
    with pytest.raises(aq.FrameError):
        aq.patch(weights, bytes(header) + hostile[len(header) :])
    with pytest.raises(aq.FrameError, match="moves element 7 of 3"):
        core.move(np.zeros(3, np.uint16), np.array([7]), np.array([1]), 1)


def test_what_cannot_be_written_is_not_patched() -> None:
    old, new = np.zeros(9, dtype=np.float32), np.ones(9, dtype=np.float32)
    difference = aq.diff(old, new)
    old.flags.writeable = False
    with pytest.raises(aq.QuantizeError, match="can be written"):
        aq.patch(old, difference, out=old)
    assert not old.any()


def test_a_large_fixed_frame_for_a_receiver_who_knows_is_no_longer_than_it_is() -> None:
    d = 300_000
    segments = np.ones(d, dtype=np.int64)
    known = Known(0, d, segments)
    frame = aq.compress(np.ones(d, dtype=np.float32), 1, 1, "fixed", segments, known=known)
    assert read_frame(frame, d, known).written() == aq.compress(np.ones(d, np.float32), 1, 1, "fixed", segments)
