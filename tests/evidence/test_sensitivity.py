"""The study changes one setting of AdaQuantFL at a time and records every run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import adaquantfl as aq
from adaquantfl.cli import main
from adaquantfl.runs.config import load_config
from evidence.studies import sensitivity
from support.small_runs import TINY, options

MakeRun = Callable[..., Path]


def test_each_run_differs_from_the_preset_in_one_setting() -> None:
    base = load_config("sensitivity").to_dict()
    jobs = sensitivity.jobs([], {}, Path("w"))
    changed = [{k: v for k, v in job.config.to_dict().items() if v != base[k] and k != "seed"} for job in jobs]
    assert max(map(len, changed)) == 1
    for key, values in sensitivity.VALUES.items():
        assert base[key] in values
        assert {change[key] for change in changed if key in change} == {*values} - {base[key]}


def test_every_setting_has_three_seeds_and_the_first_seed_comes_first() -> None:
    jobs = sensitivity.jobs([], {}, Path("w"))
    seeds = [job.config.seed for job in jobs]
    assert seeds == sorted(seeds)
    assert seeds.count(0) == seeds.count(1) == seeds.count(2) == len({job.out.parent for job in jobs})


def test_it_is_played_and_recorded_from_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sensitivity, "SEEDS", 1)
    monkeypatch.setattr(sensitivity, "VALUES", {"rounding": ("nearest", "power")})
    command = ["reproduce", "sensitivity", "--quiet", *options({**TINY, "rounds": 1})]
    assert main(command) == 0
    assert main(command) == 0
    assert capsys.readouterr().out.count("has a record already") == 2
    records = sorted((tmp_path / sensitivity.RECORDS).glob("*/seed-0/summary.json"))
    assert [path.parts[-3] for path in records] == ["preset", "rounding-power"]


def test_the_table_has_means_and_deviations_at_a_loss_that_all_reached(make_run: MakeRun, tmp_path: Path) -> None:
    for seed, last in enumerate((0.2, 0.3)):
        make_run(f"preset/seed-{seed}", seed=seed, losses=[1.0, last])
        make_run(f"s0-4/seed-{seed}", seed=seed, losses=[1.0, 1.0, last + 0.05])
    groups = sensitivity.load(tmp_path)
    assert sensitivity.common_level(groups) == 0.35
    header, preset, coarse = sensitivity.table(groups)
    assert header[1:3] == ["rounds to loss 0.35", "paper's bits, a client (Mb)"]
    assert preset[:2] == ["preset", "2.00 ± 0.00"]
    assert preset[4] == "0.250 ± 0.071"
    assert coarse[:2] == ["s0 = 4", "3.00 ± 0.00"]


def test_the_figure_has_a_row_for_each_setting(make_run: MakeRun, tmp_path: Path) -> None:
    make_run("preset/seed-0", losses=[1.0, 0.5])
    make_run("rounding-power/seed-0", losses=[1.0, 0.5])
    picture = sensitivity.figure(sensitivity.load(tmp_path))
    assert [label.get_text() for label in picture.axes[0].get_yticklabels()] == ["preset", "rounding = power"]


def test_a_method_is_refused() -> None:
    with pytest.raises(aq.ConfigError, match="leave --method away"):
        sensitivity.jobs(["2bit"], {}, Path("w"))
