"""What pip installs: the wheel has all it needs, the sdist can test itself, and the core works without the extras."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from email import message_from_string
from email.message import Message
from importlib.metadata import distribution
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "adaquantfl"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
CORE = ("numpy",)
pytestmark = pytest.mark.slow  # it builds the sdist and a wheel

EVERYTHING = """
import numpy as np
import adaquantfl as aq

x = np.linspace(-1, 1, 1000, dtype=np.float32)
key = aq.stream_key(seed=0, round=1, client=2)
frame = aq.compress(x, s=3, key=key, codec="fixed")
assert aq.decode(frame) == aq.quantize(x, s=3, key=key)
total = aq.Accumulator(1000)
total.add(frame, 0.5)
total.result()
rule = aq.AdaQuant(s0=2)
state, plan = rule.plan(rule.init(), aq.Seen(bits=0, dimension=1000, loss=2.3, eta=0.1))
server, client = aq.Server({"w": x}, downlink="exact", codec="fixed"), aq.Client(0)
server.receive(0, client.reply({"w": client.open(server.open([0])[0])["w"] + 1}, loss=1.0))
server.close()
from adaquantfl.rules.registry import methods
from adaquantfl.runs.config import load_config, preset_names
assert all(load_config(name).make_rule() for name in preset_names())
print(aq.__version__, plan.levels, aq.theory.bits_per_element(3), len(methods()) > 20, aq.__file__)
open("frame", "wb").write(aq.encode_float32(x))  # `inspect` compiles nothing for it
"""

USER = """
import adaquantfl as aq
import numpy as np

frame: bytes = aq.compress(np.ones(8, dtype=np.float32), s=3, key=aq.stream_key(0, 1, 2))
levels: aq.Levels = aq.decode(frame)
total = aq.Accumulator(dimension=8)
total.add(frame, weight=0.5)
rule: aq.AdaQuant = aq.AdaQuant(s0=2)
plan: aq.Plan = rule.plan(rule.init(), aq.Seen(bits=0, dimension=8, loss=2.3, eta=0.1))[1]
wrong: str = aq.paper_bits(8, 3)
"""


def run(command: list[str | Path], folder: Path) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return subprocess.run(command, cwd=folder, env=clean, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the sdist, and the wheel that was built from it."""
    out = tmp_path_factory.mktemp("dist")
    done = run([sys.executable, "-m", "build", "--no-isolation", "--outdir", out, ROOT], out)
    assert done.returncode == 0, done.stdout + done.stderr
    return out


@pytest.fixture(scope="module")
def wheel(built: Path) -> Path:
    (path,) = built.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def core(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an empty environment with the wheel and the core's dependencies alone, as `pip install` leaves it.

    The dependencies are links to the ones that the tests run with: nothing is fetched.
    """
    folder = tmp_path_factory.mktemp("core")
    venv.create(folder, symlinks=True)
    packages = next(folder.glob("lib/python*/site-packages"))
    for name in CORE:
        found = distribution(name)
        for top in {file.parts[0] for file in found.files or () if file.parts[0] not in ("..", "__pycache__")}:
            (packages / top).symlink_to(Path(str(found.locate_file(top))))
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(packages)
    return folder / "bin" / "python"


def metadata(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return message_from_string(archive.read(name).decode())


def test_the_wheel_has_every_file_of_the_package_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    ours = {path for path in SOURCE.rglob("*") if path.is_file() and "__pycache__" not in path.parts}
    assert names == {f"adaquantfl/{path.relative_to(SOURCE).as_posix()}" for path in ours}
    (library,) = (name for name in names if name.startswith("adaquantfl/libaq."))
    assert wheel.stem.split("-")[2:4] == ["py3", "none"]
    kinds = {Path(name).suffix for name in names - {library}}
    assert kinds == {".py", ".typed", ".toml", ".npz", ".txt", ".html", ".css", ".js"}
    for name in ("py.typed", "report/page_files/page.html", "training/data/LICENSE-fashion-mnist.txt"):
        assert f"adaquantfl/{name}" in names


def test_the_wheel_says_what_it_needs(wheel: Path) -> None:
    about = metadata(wheel)
    assert about["Version"] == PROJECT["version"]
    assert about.get_all("Provides-Extra") == ["dev", "docs", "flower", "nvflare", "private", "tensorboard", "train"]
    needed = [line for line in about.get_all("Requires-Dist") or [] if "extra ==" not in line]
    assert sorted(re.split(r"[<>=]", line)[0] for line in needed) == ["numpy"]
    assert about.get_all("License-File") == ["LICENSE", "NOTICE"]


def test_the_sdist_has_all_that_its_tests_read(built: Path) -> None:
    (path,) = built.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    for folder in ("core", "src", "tests", "benchmarks", "docs", "examples", "scripts"):
        files = {file for file in (ROOT / folder).rglob("*") if file.is_file() and not _leftover(file)}
        files -= {*(ROOT / "tests" / "evidence").rglob("*"), ROOT / "tests" / "test_site.py"}  # they read records
        assert {file.relative_to(ROOT).as_posix() for file in files} <= names
    for name in (
        "hatch_build.py",
        "LICENSE",
        "NOTICE",
        "README.md",
        "CONTRIBUTING.md",
        "Makefile",
        "constraints.txt",
        "constraints-nvflare.txt",
        "CITATION.cff",
    ):
        assert name in names
    assert "fuzz/mutate.py" in names
    left_out = (".ci", "evidence", "tests/evidence", ".git/", "fuzz/corpus", "fuzz/findings")
    assert not [name for name in names if _leftover(Path(name)) or name.startswith(left_out)]


def _leftover(path: Path) -> bool:
    return "__pycache__" in path.parts or path.suffix == ".pyc" or ".hypothesis" in path.parts or path.stem == "libaq"


def _pinned() -> str:
    return (ROOT / "constraints.txt").read_text() + (ROOT / "constraints-nvflare.txt").read_text()


def test_what_tests_build_with_is_pinned() -> None:
    pins = dict(re.findall(r"^([\w.-]+)==(\S+)$", _pinned(), re.MULTILINE))
    known = {name.lower().replace("_", "-") for name in pins}
    for extra in PROJECT["optional-dependencies"].values():
        for requirement in extra:
            name = re.split(r"[\[<>=]", requirement)[0].lower()
            assert name in known or name == "adaquantfl", name


def test_the_core_works_without_the_extras(core: Path, tmp_path: Path) -> None:
    done = run([core, "-c", EVERYTHING], tmp_path)
    assert done.returncode == 0, done.stderr
    version, s, bits, rules, where = done.stdout.split()
    assert (version, s, bits, rules) == (PROJECT["version"], "3", "2", "True")
    assert Path(where).is_relative_to(core.parents[1])  # the wheel's, not the source tree's
    for arguments, words in (
        (["--version"], version),
        (["--help"], "inspect"),
        (["methods"], "feddq"),
        (["inspect", "frame"], "float32"),
        (["data", "list"], "fashion-mnist-sample"),
    ):
        done = run([core, "-m", "adaquantfl", *arguments], tmp_path)
        assert done.returncode == 0, done.stderr
        assert words in done.stdout


@pytest.mark.parametrize(
    ("arguments", "extra"),
    [
        (["run", "demo"], "train"),
        (["run", "demo", "--engine", "flower"], "train,flower"),
        (["run", "demo", "--engine", "gloo"], "train"),
        (["compare", "demo"], "train"),
        (["reproduce", "fmnist-cnn-iid"], "train"),
        (["report", "."], "train"),
        (["data", "get", "fashion-mnist"], "train"),
    ],
)
def test_what_the_core_cannot_do_names_the_extra(core: Path, arguments: list[str], extra: str, tmp_path: Path) -> None:
    done = run([core, "-m", "adaquantfl", *arguments], tmp_path)
    assert done.returncode == 1
    assert re.findall(r"needs .+ The extras? .+: pip install '(.+)'", done.stderr) == [f"adaquantfl[{extra}]"], (
        done.stderr
    )
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("code", "extra"),
    [("import adaquantfl.flower", "flower"), ("import adaquantfl as aq; aq.run('demo', 'mine')", "train")],
)
def test_a_name_that_needs_an_extra_asks_for_it(core: Path, code: str, extra: str, tmp_path: Path) -> None:
    done = run([core, "-c", code], tmp_path)
    assert re.search(rf"pip install '(adaquantfl|\.)\[{extra}\]'$", done.stderr.splitlines()[-1])


def test_a_users_types_are_checked_against_the_wheel(core: Path, tmp_path: Path) -> None:
    (tmp_path / "user.py").write_text(USER)
    command = [sys.executable, "-m", "mypy", "--strict", "--python-executable", core, "--cache-dir", tmp_path / "cache"]
    done = run([*command, "user.py"], tmp_path)
    assert done.stdout.splitlines() == [
        f"user.py:{USER.splitlines().index('wrong: str = aq.paper_bits(8, 3)') + 1}: error: Incompatible types in "
        'assignment (expression has type "int", variable has type "str")  [assignment]',
        "Found 1 error in 1 file (checked 1 source file)",
    ]
