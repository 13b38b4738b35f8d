"""Presets say what the paper says, and mistakes get a sentence with the nearest valid name."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import pytest
import tomli_w

import adaquantfl as aq
from adaquantfl.runs import reproduce
from adaquantfl.runs.config import KEYS, Config, load_config, parse_override, preset_names

PANELS = {
    "fmnist-cnn-iid": ("fashion-mnist", "cnn", "iid", 8, 1.0),
    "fmnist-cnn-decay": ("fashion-mnist", "cnn", "iid", 8, 0.9),
    "fmnist-cnn-sorted": ("fashion-mnist", "cnn", "sorted", 8, 1.0),
    "cifar-resnet18-iid": ("cifar-10", "resnet18", "iid", 4, 1.0),
    "cifar-resnet18-decay": ("cifar-10", "resnet18", "iid", 4, 0.9),
    "cifar-resnet18-sorted": ("cifar-10", "resnet18", "sorted", 4, 1.0),
}


def test_the_presets_are_the_papers_six_panels_and_the_demo() -> None:
    assert set(preset_names()) == {*PANELS, "demo"}
    assert set(reproduce.PRESETS) == set(PANELS)


@pytest.mark.parametrize("name", PANELS)
def test_a_panel_has_the_papers_settings(name: str) -> None:
    c = load_config(name)
    assert (c.dataset, c.model, c.partition, c.clients, c.eta_decay) == PANELS[name]
    assert (c.tau, c.eta, c.rule["s0"], c.rule["interval"]) == (10, 0.1, 2, 16)
    assert (c.target_loss, c.eta_decay_every) == (0.02, 100)
    assert (c.rule["rounding"], c.rule["guard"], c.loss, c.method) == ("power", True, "full", "adaquant")
    assert (c.quantizer["name"], c.downlink["name"], c.step["name"]) == ("uniform", "exact", "sum")
    assert (c.batch_size, c.scope) == (10 if c.model == "cnn" else 64, "whole")


def test_the_variable_rate_falls_by_a_tenth_every_hundred_rounds() -> None:
    c = load_config("fmnist-cnn-decay")
    assert [c.learning_rate(k) for k in (0, 99, 100, 250)] == pytest.approx([0.1, 0.1, 0.09, 0.081])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("clints = 8", ["clints", "Did you mean 'clients'"]),
        ("tau = 'ten'", ["tau", "is text", "must be an integer"]),
        ("tau = true", ["tau", "true or false", "a whole number"]),
        ("eta = -0.1", ["eta", "above 0"]),
        ("eta = nan", ["eta", "finite"]),
        ("clients = 0", ["clients", "at least 1"]),
        ("rule = 'adaquan'", ["Did you mean 'adaquant'"]),
        ("[rule]\nname = 'adaquant'\ns00 = 3", ["'s00'", "s0, interval, guard, rounding"]),
        ("[step]\nname = 'adam'\nbeta2 = true", ["step.beta2", "must be a number"]),
        ("scope = 'tensors'", ["scope", "'tensor'"]),
        ("loss = 'ful'", ["Did you mean 'full'"]),
        ("[rule]\nname = 'adaquant'\nrounding = 'nearst'", ["Did you mean 'nearest'"]),
        ("[rule]\nname = 'adaquant'\ns0 = 100000", ["s0", "65535"]),
        ("clients_per_round = 9", ["only 8 clients"]),
        ("rule = 'adaquant'\nclients_per_round = 2", ["set loss = 'round'"]),
        ("downlink = 'exct'", ["Did you mean 'exact'"]),
        ("max_update_norm = 'ten'", ["'10x'"]),
        ("optimizer = 'adamw'\nmomentum = 0.9", ["momentum = 0.9 does not go with optimizer = 'adamw'"]),
        ("tau = 2\nrule = 4bit", ["not valid TOML", "line 2", "Text needs quotes"]),
    ],
)
def test_a_mistake_in_a_file_is_named(tmp_path: Path, text: str, words: list[str]) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(text)
    with pytest.raises(aq.ConfigError) as caught:
        load_config(path)
    assert "mine.toml" in str(caught.value)
    for word in words:
        assert word in str(caught.value)


def test_a_configuration_written_down_is_read_back(tmp_path: Path) -> None:
    config = load_config("demo", {"scope": 512, "rule.guard": False, "quantizer": "rotated"})
    (tmp_path / "config.toml").write_text(tomli_w.dumps(config.to_dict()))
    assert load_config(tmp_path / "config.toml") == config


def test_overrides_are_read_as_toml_and_bare_words_as_text() -> None:
    assert parse_override("eta = 0.05") == ("eta", 0.05)
    assert parse_override("partition=dirichlet(0.3)") == ("partition", "dirichlet(0.3)")
    assert parse_override("rule.guard=false") == ("rule.guard", False)
    assert parse_override("rule=4bit") == ("rule", "4bit")
    for wrong in ("eta", "eta=", "=3"):
        with pytest.raises(aq.ConfigError, match="KEY=VALUE"):
            parse_override(wrong)
    with pytest.raises(aq.ConfigError, match="Did you mean 'eta'"):
        parse_override("etaa=1")


def test_every_key_can_be_overridden() -> None:
    config = load_config("demo")
    for key, value in config.to_dict().items():
        assert load_config("demo", {key: value}) == config
    assert set(config.to_dict()) == set(KEYS) - {"task", "task_sha256"}
    assert len(KEYS) <= 40


def test_a_method_is_a_name_a_table_or_an_object() -> None:
    named = Config(rule="adaquant")
    assert named == Config(rule={"name": "adaquant"}) == Config(rule=aq.AdaQuant())
    assert Config(step=aq.Adam(eta=0.5)).step == {"name": "adam", **asdict(aq.Adam(eta=0.5))}
    assert Config(rule="4bit").make_rule() == aq.Fixed(bits=4)


def test_what_is_not_named_is_what_the_rule_names() -> None:
    paper, ours = Config(rule="adaquant"), Config()
    assert (paper.quantizer["name"], paper.downlink["name"]) == ("uniform", "exact")
    assert (ours.rule["name"], ours.quantizer["name"], ours.downlink["name"]) == ("auto", "centroid", "late")
    assert Config(rule="auto", downlink={"error": 0.3}).downlink == {"name": "late", "private": False, "error": 0.3}
