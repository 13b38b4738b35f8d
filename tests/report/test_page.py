"""The report in a real browser: it loads from a file, asks for nothing, and answers to mouse and keyboard."""

from __future__ import annotations

import csv
import json
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("websockets")

from adaquantfl.report import watch
from adaquantfl.report.page import write_report
from adaquantfl.runs.records import find_runs
from support import browser
from support.browser import Tab
from support.processes import HANG_SECONDS, wait_until

PROGRAM = browser.find()
pytestmark = [
    pytest.mark.slow,  # a browser
    pytest.mark.skipif(PROGRAM is None, reason=f"no browser: none of {', '.join(browser.NAMES)} is installed"),
]

PLOTS = ["loss", "accuracy", "levels", "bits", "traffic", "wire"]
LINES = "[...document.querySelectorAll('#plot-{} .method .mean')].map(path => path.getAttribute('d'))"
TIP = "document.querySelector('#plot-{} .tip').innerText"


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    assert PROGRAM is not None
    with browser.started(PROGRAM, tmp_path_factory.mktemp("profile")) as port:
        yield port


@pytest.fixture(scope="module")
def page(comparison: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = shutil.copytree(comparison, tmp_path_factory.mktemp("page") / "runs")
    return write_report(find_runs([folder]), folder)


@pytest.fixture
def tab(port: int, page: Path) -> Iterator[Tab]:
    tab = Tab(port)
    tab.resize(1280, 800)
    tab.open(page.as_uri())
    yield tab
    tab.close()


def test_it_loads_from_a_file_without_an_error_or_a_request(tab: Tab, page: Path) -> None:
    assert tab.do("[...document.querySelectorAll('.plot:not([hidden])')].map(plot => plot.id)") == [
        f"plot-{name}" for name in PLOTS
    ]
    for name in PLOTS:
        drawn = tab.do(LINES.format(name))
        assert len(drawn) == (4 if name == "levels" else 5), name  # float32 has no levels
        assert all(path.startswith("M") and "NaN" not in path and path.count(",") > 5 for path in drawn)
    assert tab.complaints == []
    assert set(tab.requests) == {page.as_uri()}


def test_the_axis_can_be_chosen_with_the_keyboard(tab: Tab) -> None:
    before = tab.do(LINES.format("loss"))
    tab.do("document.querySelector('#plot-loss .x').focus()")
    tab.press("ArrowDown")
    label = "[...document.querySelectorAll('#plot-loss .label')].map(text => text.textContent).join()"
    assert "Bits sent by one client" in tab.do(label)
    assert tab.do(LINES.format("loss")) != before
    tab.press("ArrowDown")
    assert "Round" in tab.do(label)
    choices = tab.do("[...document.querySelector('#plot-loss .x').options].map(option => option.value)")
    assert choices == ["wire_bytes_up", "paper_bits", "round"]  # these runs have no time
    tab.press("Tab", "Tab")
    assert tab.do("document.activeElement.className") == "log-y"
    logarithmic = tab.do(LINES.format("loss"))
    tab.press(" ")
    assert tab.do(LINES.format("loss")) != logarithmic


def test_arrow_keys_read_exact_values(tab: Tab, page: Path) -> None:
    tab.do("document.querySelector('#plot-loss .csv').focus()")
    tab.press("Tab")
    assert tab.do("document.activeElement.className") == "canvas"
    runs = [run for run in find_runs([page.parent]) if run.method == "adaquant"]
    losses = [np.mean([run.history[at]["loss"] for run in runs]) for at in (-1, -3)]
    bytes_up = [np.mean([run.history[at]["wire_bytes_up"] for run in runs]) for at in (-1, -3)]
    for loss, sent, number in zip(losses, bytes_up, (60, 58), strict=True):
        tip = tab.do(TIP.format("loss"))
        for words in ("AdaQuantFL", f"{float(f'{loss:.6g}')}", f"{sent:,.0f} B", f"round {number}", "mean of 2 seeds"):
            assert words in tip
        tab.press("ArrowLeft")
    tab.press("ArrowDown")
    assert tab.do(TIP.format("loss")).startswith("2-bit")
    assert tab.do("document.querySelector('#plot-loss .unseen').textContent").startswith("2-bit")  # read aloud
    tab.press("Escape")
    assert tab.do("document.querySelector('#plot-loss .tip').hidden")


def box_of(tab: Tab, what: str) -> tuple[float, float, float, float]:
    """Where an element is in the window: left, top, width, height."""
    tab.do(f"document.querySelector('{what}').scrollIntoView({{block: 'center'}})")
    script = f"(() => {{ const box = document.querySelector('{what}').getBoundingClientRect();"
    left, top, width, height = tab.do(script + " return [box.x, box.y, box.width, box.height] })()")
    return left, top, width, height


def test_dragging_zooms_and_a_double_click_shows_everything(tab: Tab) -> None:
    before = tab.do(LINES.format("loss"))
    left, top, width, height = box_of(tab, "#plot-loss svg")
    ticks = "[...document.querySelectorAll('#plot-loss .axes text:not(.label)')].map(text => text.textContent)"
    everything = tab.do(ticks)
    tab.drag(left + 0.4 * width, top + 0.3 * height, left + 0.7 * width, top + 0.6 * height)
    assert tab.do(LINES.format("loss")) != before
    assert tab.do(ticks) != everything
    assert not tab.do("document.querySelector('#plot-loss .reset').hidden")
    assert tab.do("document.querySelector('#plot-loss rect.zoom')") is None
    assert tab.do(LINES.format("accuracy"))  # the other plots are as they were
    tab.double_click(left + 0.5 * width, top + 0.5 * height)
    assert tab.do(LINES.format("loss")) == before
    assert tab.do("document.querySelector('#plot-loss .reset').hidden")
    tab.drag(left + 0.4 * width, top + 0.5 * height, left + 0.7 * width, top + 0.5 * height + 2)  # flat: along x only
    zoomed = tab.do("plots[0].zoom.ranges")
    assert zoomed["y"] == pytest.approx(tab.do("plots[0].full.y"))
    assert zoomed["x"][0] > tab.do("plots[0].full.x[0]")
    tab.do("document.querySelector('#plot-loss .reset').click()")
    assert tab.do(LINES.format("loss")) == before
    assert tab.complaints == []


def test_a_plot_is_saved_as_a_picture_and_as_numbers(tab: Tab, page: Path, tmp_path: Path) -> None:
    tab.call("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path))
    for kind in ("png", "csv"):
        tab.do(f"document.querySelector('#plot-loss .{kind}').click()")
        file = tmp_path / f"adaquantfl-loss.{kind}"
        wait_until(lambda file=file: file.is_file() and file.stat().st_size > 0, HANG_SECONDS, f"{file} is saved")
    assert (tmp_path / "adaquantfl-loss.png").read_bytes().startswith(b"\x89PNG")
    rows = list(csv.DictReader((tmp_path / "adaquantfl-loss.csv").open()))
    assert {row["method"] for row in rows} == {"AdaQuantFL", "2-bit", "4-bit", "8-bit", "float32"}
    runs = [run for run in find_runs([page.parent]) if run.method == "4bit"]
    last = [row for row in rows if row["method"] == "4-bit"][-1]
    assert float(last["loss"]) == pytest.approx(np.mean([run.history[-1]["loss"] for run in runs]), rel=1e-6)
    assert float(last["wire_bytes_up"]) == np.mean([run.history[-1]["wire_bytes_up"] for run in runs])
    assert last["seeds"] == "2"
    assert tab.complaints == []


def test_the_legend_hides_and_shows_a_method(tab: Tab) -> None:
    tab.do("document.querySelectorAll('#legend button')[1].focus()")
    tab.press("Enter")
    assert tab.do("document.activeElement.getAttribute('aria-pressed')") == "false"
    assert len(tab.do(LINES.format("loss"))) == 4
    assert "2-bit" not in tab.do("document.querySelector('#plot-loss svg').getAttribute('aria-label')")
    tab.press(" ")
    assert tab.do("document.activeElement.getAttribute('aria-pressed')") == "true"
    assert len(tab.do(LINES.format("loss"))) == 5


def test_everything_that_can_be_used_has_a_name(tab: Tab) -> None:
    usable = {"button", "combobox", "checkbox", "link", "region", "group", "image", "DisclosureTriangle"}
    tree = tab.call("Accessibility.getFullAXTree")["nodes"]
    found = [node for node in tree if not node.get("ignored") and node["role"]["value"] in usable]
    nameless = [node["role"]["value"] for node in found if not node.get("name", {}).get("value")]
    assert {node["role"]["value"] for node in found} >= {"button", "combobox", "checkbox", "group", "image"}
    assert not [role for role in nameless if role != "group"], nameless  # a <details> is a group without a name


def test_a_watched_run_appears_on_the_page_without_loading_it_again(port: int, page: Path, tmp_path: Path) -> None:
    run = shutil.copytree(page.parent / "adaquant" / "seed-0", tmp_path / "run")
    (run / "summary.json").unlink()
    lines = (run / "history.jsonl").read_text().splitlines(keepends=True)
    (run / "history.jsonl").write_text("".join(lines[:20]))
    with watch.serve([run], port=0) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        tab = Tab(port)
        tab.open(server.address)
        tab.until("document.querySelector('#status').textContent.includes('round 20')")
        tab.do("window.same = true; document.querySelector('[data-section=runs] details').open = true")
        before = tab.do(LINES.format("loss"))
        with (run / "history.jsonl").open("a") as history:
            history.write("".join(lines[20:40]) + json.dumps({"round": 41})[:5])  # and a half-written line
        tab.until("document.querySelector('#status').textContent.includes('round 40')")
        assert tab.do("window.same && document.querySelector('[data-section=runs] details').open")
        assert tab.do(LINES.format("loss")) != before
        assert tab.complaints == []
        assert all(address.startswith(server.address) for address in tab.requests)
        tab.close()
        server.shutdown()
