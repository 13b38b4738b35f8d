"""The rivals' tables say what the records say, and call a missed target by its name."""

from __future__ import annotations

from pathlib import Path

import pytest

from adaquantfl.runs.records import RunRecord
from evidence.pages import readme_figure, rivals_page
from evidence.studies import rivals


def run(method: str, seed: int, sent: list[int], losses: list[float]) -> RunRecord:
    history = [
        {"round": k + 1, "s": 1.0, "loss": loss, "wire_bytes_up": total, "paper_bits": 1}
        for k, (total, loss) in enumerate(zip(sent, losses, strict=True))
    ]
    return RunRecord(Path(method) / f"seed-{seed}", {"method": method, "seed": seed}, history, {})


GROUPS = {
    "cost-aware+centroid": [run("cost-aware", 0, [1000, 2000, 3000], [0.9, 0.5, 0.4])],
    "dadaquant-time": [run("dadaquant-time", 0, [2000, 4000, 6000], [0.9, 0.6, 0.5])],
    "adaquant": [run("adaquant", 0, [9000, 18_000, 27_000], [0.8, 0.5, 0.3])],
}


def test_the_level_is_one_that_every_run_reached() -> None:
    assert rivals.level(GROUPS) == 0.5


def test_methods_are_in_the_order_of_their_bytes_and_measured_against_ours() -> None:
    grid = rivals.table(GROUPS, 0.5)
    assert [row[0] for row in grid[1:]] == ["`cost-aware+centroid`", "`dadaquant-time`", "`adaquant`"]
    assert [row[2] for row in grid[1:]] == ["1.00", "3.00", "9.00"]
    assert [row[4] for row in grid[1:]] == ["1.00", "1.50", "1.00"]


def test_a_target_is_met_or_called_missed() -> None:
    assert "9.0 times our bytes (met, 1 of 3 seeds)" in rivals_page.beside_paper(GROUPS)
    assert "(met, 1 of 3 seeds)" in rivals_page.beside_dadaquant(GROUPS, 0)
    slower = {**GROUPS, "cost-aware+centroid": [run("cost-aware", 0, [1000, 2000, 3000, 4000], [0.9, 0.8, 0.7, 0.5])]}
    assert "**missed**" in rivals_page.beside_dadaquant(slower, 0)  # fewer bytes, but more rounds
    alone = {name: group for name, group in GROUPS.items() if name != "dadaquant-time"}
    assert rivals_page.beside_dadaquant(alone, 3) == "DAdaQuant diverged with 3 of 3 seeds"


def test_a_method_that_did_not_get_there_has_no_ratio() -> None:
    stuck = {**GROUPS, "2bit": [run("2bit", 0, [10, 20, 30], [0.9, 0.9, 0.9])]}
    assert rivals.table(stuck, 0.5)[-1][2] == "—"


@pytest.mark.skipif(not rivals_page.RECORDS.is_dir(), reason="a source distribution has no records")
@pytest.mark.parametrize("records", rivals_page.STUDIES.values(), ids=lambda path: path.name)
def test_the_page_says_what_the_records_say(records: Path) -> None:
    page = rivals_page.PAGE.read_text(encoding="utf-8")
    assert rivals_page.rules(records) in page, "run python evidence/pages/rivals_page.py"


def test_the_readmes_table_says_what_the_records_say() -> None:
    text = readme_figure.README.read_text(encoding="utf-8")
    assert readme_figure.table() in text, "run python evidence/pages/readme_figure.py"
