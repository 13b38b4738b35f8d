from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from adaquantfl.errors import DataError
from adaquantfl.runs.records import find_runs, group_runs, load_run

MakeRun = Callable[..., Path]
KEYS = ("round", "paper_bits", "wire_bytes_up")


def test_bits_to_loss_is_the_first_evaluated_round_at_or_below_the_target(make_run: MakeRun) -> None:
    run = load_run(make_run("run", "2bit", losses=[2.0, None, 0.5, 0.7, 0.4]))
    a_round = 3 * 1_000_000 + 32
    assert [(run.reached(0.5) or {})[key] for key in KEYS] == [3, 3 * a_round, 3 * 40_000]
    assert [(run.reached(0.49) or {})[key] for key in KEYS] == [5, 5 * a_round, 5 * 40_000]
    assert run.reached(0.1) is None


def test_series_starts_at_zero_bits_when_the_first_loss_is_known(make_run: MakeRun) -> None:
    bits, losses = load_run(make_run("run", "4bit", losses=[None, 1.0])).series("loss", "paper_bits")
    np.testing.assert_array_equal(bits, [0, 2 * (5_000_000 + 32)])
    np.testing.assert_array_equal(losses, [2.3, 1.0])


def test_an_unfinished_run_is_read_from_its_history_alone(make_run: MakeRun) -> None:
    run = load_run(make_run("run", losses=[1.5, 1.0], finished=False))
    assert not run.finished
    np.testing.assert_array_equal(run.series("loss")[1], [1.5, 1.0])
    assert run.final("loss") == 1.0


def test_adaquantfl_that_leaves_levels_of_its_bits_unused_is_called_so(make_run: MakeRun) -> None:
    assert load_run(make_run("a", **{"rule.rounding": "nearest"})).label == "AdaQuantFL (nearest)"
    assert load_run(make_run("b", **{"rule.rounding": "down"})).label == "AdaQuantFL (down)"
    assert load_run(make_run("c", **{"rule.s0": 4})).label == "AdaQuantFL (s0 4)"
    own = load_run(make_run("d", "4bit", quantizer={"name": "uniform", "norm": "linf"}, step="adam"))
    assert own.label == "4-bit + uniform (linf) + adam"


def test_a_torn_last_line_is_ignored(make_run: MakeRun) -> None:
    path = make_run("run", losses=[2.0, 1.0, 0.5])
    history = path / "history.jsonl"
    history.write_bytes(history.read_bytes()[:-20])
    assert [line["round"] for line in load_run(path).history] == [1, 2]


def test_damage_before_the_last_line_is_refused_with_its_line_number(make_run: MakeRun) -> None:
    path = make_run("run", losses=[2.0, 1.0, 0.5])
    lines = (path / "history.jsonl").read_text().splitlines()
    (path / "history.jsonl").write_text("\n".join([lines[0], lines[1][:30], lines[2]]) + "\n")
    with pytest.raises(DataError, match=r"Line 2 of .*history\.jsonl is damaged"):
        load_run(path)


def test_rounds_that_go_back_are_refused(make_run: MakeRun) -> None:
    path = make_run("run", losses=[2.0, 1.0])
    history = path / "history.jsonl"
    history.write_text(history.read_text() * 2)
    with pytest.raises(DataError, match="round 1 after round 2"):
        load_run(path)


def test_a_folder_that_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no config\.toml"):
        load_run(tmp_path)
    with pytest.raises(DataError, match="No run was found"):
        find_runs([tmp_path])


def test_damaged_configuration_and_summary_are_named(make_run: MakeRun) -> None:
    path = make_run("run", losses=[1.0])
    (path / "summary.json").write_text("{")
    with pytest.raises(DataError, match=r"summary\.json is damaged"):
        load_run(path)
    (path / "config.toml").write_text("method = ")
    with pytest.raises(DataError, match=r"config\.toml is not valid TOML"):
        load_run(path)


def test_a_comparison_directory_expands_once_with_adaquantfl_first(comparison: Path) -> None:
    runs = find_runs([comparison, comparison / "2bit" / "seed-0"])
    assert len(runs) == 10
    assert [run.label for run in runs[::2]] == ["AdaQuantFL", "2-bit", "4-bit", "8-bit", "float32"]
    assert [run.seed for run in runs[:2]] == [0, 1]


def test_seeds_share_a_group_and_other_settings_do_not(make_run: MakeRun) -> None:
    runs = [load_run(make_run(f"run-{seed}", seed=seed, losses=[1.0])) for seed in range(2)]
    assert list(group_runs(runs)) == ["AdaQuantFL"]
    runs.append(load_run(make_run("other", losses=[1.0], eta=0.2)))
    assert {label: len(group) for label, group in group_runs(runs).items()} == {
        "AdaQuantFL, eta 0.1": 2,
        "AdaQuantFL, eta 0.2": 1,
    }
    runs = [load_run(make_run(name, losses=[1.0], downlink=name)) for name in ("exact", "late")]
    assert list(group_runs(runs)) == ["AdaQuantFL, downlink.name exact", "AdaQuantFL, downlink.name late"]
