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
from adaquantfl.codecs.frame import traits_struct
from adaquantfl.quantizers.registry import by_tag, find, names

ROOT = Path(__file__).parents[1]


def test_every_fault_that_the_core_can_name_is_named() -> None:
    (codes,) = re.findall(r"enum aq_code \{(.*?)\};", (ROOT / "core" / "aq.h").read_text(), re.S)
    assert re.findall(r"AQ_([A-Z_]+)\b(?=,|\s|$)", re.sub(r"/\*.*?\*/", "", codes, flags=re.S)) == list(core.CODES)


def test_the_core_and_the_quantizers_agree_on_every_tag() -> None:
    for tag in sorted(tag for name in names() for tag in find(name).tags.values() if tag < 128):
        ours, cores = traits_struct(by_tag(tag)[0]), core.traits_of(tag).contents
        fields = [field for field, _ in core.Traits._fields_]
        assert {name: getattr(ours, name) for name in fields} == {name: getattr(cores, name) for name in fields}, tag
    assert not core.traits_of(14)


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
