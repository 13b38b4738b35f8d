"""Mistyped commands: answered before PyTorch is loaded, in words that say what to do."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import adaquantfl as aq
from adaquantfl.cli import main
from adaquantfl.cli.extras import EXTRAS
from adaquantfl.runs import other_words
from adaquantfl.runs.config import KEYS, load_config, parse_override
from support import small_runs
from support.run_files import write_run

ROOT = Path(__file__).parents[1]
TINY = small_runs.options(small_runs.TINY)

# Each is refused by a process that has not loaded PyTorch; all in one process, since starting one takes longer.
MISTAKES = [
    ["run", "dmo"],
    ["run", "mine.toml"],
    ["run", "mine.py:task"],
    ["run", "demo", "--set", "taus=3"],
    ["run", "demo", "--set", "rounds=abc"],
    ["run", "demo", "--set", "rounds=0"],
    ["run", "demo", "--set", "rule=3bits"],
    ["run", "demo", "--set", "quantizer=unifrom"],
    ["run", "demo", "--set", "codec=zip"],
    ["run", "demo", "--set", "device=gpu"],
    ["run", "demo", "--set", "optimizer=adam"],
    ["run", "demo", "--set", "model=resnet"],
    ["run", "demo", "--set", "model=resnet18"],
    ["run", "demo", "--set", "dataset=mnist"],
    ["run", "demo", "--set", "partition=noniid"],
    ["run", "demo", "--set", "clients=20000"],
    ["run", "demo", "--out", "taken"],
    ["run", "--resume", "nowhere"],
    ["run", "--resume", "taken"],
    ["run", "--resume", "taken", "--set", "eta=0.2"],
    ["compare", "demo", "--methods", "adaquant,3bits"],
    ["compare", "demo", "--methods", "adaquant[rule.s0=0]"],
    ["compare", "demo", "--set", "epochs=3"],
    ["compare", "demo", "--seeds", "0"],
    ["report", "nowhere"],
    ["export", "nowhere", "model.pt"],
    ["data", "get", "mnist"],
]
PLAY = """
import json, sys
from adaquantfl.cli import main
loaded = {}
for arguments in json.loads(sys.argv[1]):
    try:
        code = main(arguments)
    except SystemExit as stop:
        code = stop.code
    assert code in (1, 2), (arguments, code)
    if loaded := [name for name in ("torch", "matplotlib", "flwr") if name in sys.modules]:
        sys.exit(f"{arguments} loaded {loaded}")
"""


def test_a_mistake_is_refused_before_pytorch_is_loaded(tmp_path: Path) -> None:
    write_run(tmp_path / "taken", losses=[1.0], finished=False, dataset="fashion-mnist-sample")
    command = [sys.executable, "-c", PLAY, json.dumps(MISTAKES)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "Starting" not in done.stderr
    assert len(done.stderr.splitlines()) == len(MISTAKES)
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]


@pytest.mark.parametrize(
    ("word", "key"),
    [
        ("lr", "eta"),
        ("learning_rate", "eta"),
        ("epochs", "tau"),
        ("local-epochs", "tau"),
        ("batch", "batch_size"),
        ("gpu", "device"),
        ("cuda", "device"),
        ("num_clients", "clients"),
        ("num_rounds", "rounds"),
        ("fraction_fit", "clients_per_round"),
        ("bits", "rule"),
        ("levels", "rule"),
        ("strategy", "rule"),
        ("num_workers", "workers"),
        ("Dirichlet_alpha", "partition"),
    ],
)
def test_a_word_of_another_tool_is_answered_with_what_to_do_here(word: str, key: str) -> None:
    with pytest.raises(aq.ConfigError) as caught:
        parse_override(f"{word}=1")
    assert re.search(rf"\b{key}\b", str(caught.value).partition("There is no key")[2])
    assert "Did you mean" not in str(caught.value)
    with pytest.raises(aq.ConfigError, match=re.escape(key)):
        load_config("demo", {word: 1})


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ("--rounds", "--set rounds=VALUE"),
        ("--lr", "The learning rate is `eta`"),
        ("--num-rounds", "such as rounds=100"),
    ],
)
def test_a_key_that_is_typed_as_an_option_is_answered_too(
    option: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["run", "demo", option, "3"])
    assert stop.value.code == 2
    assert words in capsys.readouterr().err


def test_every_answer_names_keys_that_exist_and_shadows_none() -> None:
    assert not {*other_words._OTHERS, *other_words.RENAMED} & set(KEYS)
    assert len(other_words._OTHERS) <= 30
    named = {key for answer in other_words._OTHERS.values() for key in re.findall(r"`(\w+)`", answer)}
    assert named <= set(KEYS)
    for answer in set(other_words._OTHERS.values()):
        for text in re.findall(r"\b(\w+=[\w.:]+)", answer):
            assert parse_override(text)[0] in KEYS


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("rounds = abc", "line 2: rounds = abc: rounds must be an integer"),
        ("eta = fast", "eta must be a number"),
        ("nesterov = yes", "nesterov must be true or false"),
        ("rule = 4bit", 'text needs quotes in a TOML file: rule = "4bit"'),
        ("rounds = 'abc'", "rounds = 'abc' is text, but rounds must be an integer"),
        ("rounds = [1", "not valid TOML"),
    ],
)
def test_a_word_in_a_toml_file_is_held_to_the_type_of_its_key(tmp_path: Path, line: str, words: str) -> None:
    (tmp_path / "mine.toml").write_text(f'dataset = "fashion-mnist-sample"\n{line}\n')
    with pytest.raises(aq.ConfigError, match=re.escape(words)):
        load_config(tmp_path / "mine.toml")


def test_a_method_of_another_name_is_answered_with_ours() -> None:
    for name, ours in {"fedavg": "fp32", "QSGD": "16bit", "fedprox": "prox"}.items():
        with pytest.raises(aq.ConfigError, match=ours):
            load_config("demo", {"rule": name})


def test_resuming_is_refused_without_a_checkpoint(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = write_run(tmp_path / "run", losses=[1.0], finished=False, dataset="fashion-mnist-sample")
    before = (run / "history.jsonl").read_bytes()
    assert main(["run", "--resume", str(run)]) == 1
    errors = capsys.readouterr().err
    assert "has no checkpoint, so there is nothing to resume" in errors
    assert "--resume" not in errors
    assert (run / "history.jsonl").read_bytes() == before
    assert main(["run", "demo", "--out", str(run)]) == 1
    errors = capsys.readouterr().err
    assert "already holds a run. Remove it, or choose another folder" in errors
    (run / "checkpoint").mkdir()
    (run / "checkpoint" / "state.npz").write_bytes(b"")
    assert main(["run", "demo", "--out", str(run)]) == 1
    assert f"Resume it with: adaquantfl run --resume {run}" in capsys.readouterr().err


def test_resuming_is_not_advised_where_it_would_end_in_the_same_way(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wild = [*TINY, "--set=eta=1e25", "--set=rounds=30"]
    assert main(["run", "demo", *wild, "--out", str(tmp_path / "run")]) == 1
    errors = capsys.readouterr().err
    assert "Resuming would end in the same way" in errors
    assert "--resume" not in errors


def test_every_module_is_in_the_extra_that_is_named_for_it() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    packages = {"PIL": "pillow", "tomli_w": "tomli-w", "httpx": "flwr", "ray": "flwr"}  # Flower brings the last two
    for module, extra in EXTRAS.items():
        assert any(needed.startswith(packages.get(module, module)) for needed in extras[extra]), module
