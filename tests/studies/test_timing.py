"""Bytes become time by the link's own rule, and the pages say what the records say."""

from collections.abc import Callable
from pathlib import Path

import pytest
import time_page

from adaquantfl.runs.config import Link
from adaquantfl.runs.records import load_run
from studies import timing

MakeRun = Callable[..., Path]
recorded = pytest.mark.skipif(
    not (time_page.RECORDS / "paper" / time_page.PANEL).is_dir(), reason="a source distribution has no records"
)
WORK = timing.Work(client=0.5, server=0.25)


def test_a_round_is_latency_computing_and_a_clients_bytes_over_its_link(make_run: MakeRun) -> None:
    run = load_run(make_run("run", losses=[1.0, 0.5]))
    link = Link(up_mbps=2, down_mbps=8, latency_ms=100)
    up, down = (8e-6 * run.history[0][f"wire_bytes_{way}"] / 4 for way in ("up", "down"))
    timed = timing.over(link, run, WORK)
    assert timed.history[0]["simulated_seconds"] == pytest.approx(0.2 + 0.75 + up / 2 + down / 8)
    assert "simulated_seconds" not in run.history[0]


def test_time_adds_up_over_rounds(make_run: MakeRun) -> None:
    run = load_run(make_run("run", "2bit", losses=[1.0, 0.5, 0.4]))  # the same bytes in every round
    first, _, last = (line["simulated_seconds"] for line in timing.over(Link(), run, WORK).history)
    assert last == pytest.approx(3 * first)


def test_every_method_is_timed_to_the_level_that_all_reached(make_run: MakeRun) -> None:
    ours, rival = (
        load_run(make_run("adaquant", losses=[1.0, 0.5, 0.3])),
        load_run(make_run("4bit", "4bit", losses=[1.0, 0.5])),
    )
    header, *rows = timing.table([ours, rival], WORK)
    assert header[0] == "To training loss 0.5"
    assert [row[:2] for row in rows] == [["AdaQuantFL", "2"], ["4-bit", "2"]]


def test_traffic_is_set_against_float32_both_ways(make_run: MakeRun) -> None:
    plain, exact = (load_run(make_run(name, losses=[1.0, 0.5])) for name in ("plain", "exact"))
    header, full, *_ = timing.traffic(plain, exact)
    assert header[0] == "2 rounds, 4 clients"
    assert full[0] == "FedAvg in float32"
    assert full[-1] == "1/1"


@recorded
def test_the_exact_downlink_leads_to_the_same_model_in_a_fiftieth_of_the_bytes() -> None:
    """Held on the records of 60 rounds of the CNN."""
    plain, exact = load_run(time_page.RECORDS / "wire"), time_page.exact()
    assert plain.summary is not None
    assert exact.summary is not None
    assert exact.summary["model_sha256"] == plain.summary["model_sha256"]
    assert exact.summary["wire_bytes_up"] == plain.summary["wire_bytes_up"]
    sent = exact.summary["wire_bytes_up"] + exact.summary["wire_bytes_down"]
    assert 50 * sent <= 2 * exact.rounds * exact.config["clients"] * 4 * exact.summary["dimension"]


@recorded
def test_the_pages_say_what_the_records_say() -> None:
    for page, blocks in time_page.parts().items():
        text = page.read_text(encoding="utf-8")
        for name, block in blocks.items():
            assert block in text, f"{page.name}, {name}: run python scripts/time_page.py"
