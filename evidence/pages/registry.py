"""Every part of README, docs and examples that is made from records: {mark: (page, function)}, and the figures."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from evidence.pages import (
    columns,
    demo,
    devices,
    downlink,
    engines,
    examples,
    floor,
    hostile,
    nvflare,
    paper,
    peers,
    performance,
    private,
    quantizers,
    sensitivity,
)
from evidence.pages.marked import ROOT, fill

MARKS: dict[str, tuple[str, Callable[[], str]]] = {
    "flower-saved": ("README.md", examples.saved),
    "round-printed": ("README.md", examples.round_printed),
    "compared": ("README.md", floor.compared),
    "demo-printed": ("docs/index.md", demo.printed),
    "demo-seeds": ("evidence/details/results.md", demo.seeds),
    "history-columns": ("docs/configuration.md", columns.columns),
    "paper-glance": ("docs/results.md", paper.glance),
    "paper-sample": ("evidence/details/results.md", partial(paper.tables, paper.SAMPLE)),
    "paper-cheapest": ("evidence/details/results.md", paper.cheapest),
    "paper-aims": ("evidence/details/results.md", paper.aims),
    "paper-headlines": ("evidence/details/results.md", paper.headlines),
    "paper-whole-headline": ("evidence/details/results.md", partial(paper.elsewhere, paper.WHOLE)),
    "paper-whole": ("evidence/details/results.md", partial(paper.tables, paper.WHOLE)),
    "paper-batch-headline": ("evidence/details/results.md", partial(paper.elsewhere, paper.BATCHES)),
    "paper-batch": ("evidence/details/results.md", partial(paper.tables, paper.BATCHES)),
    "paper-slower-headline": ("evidence/details/results.md", partial(paper.elsewhere, paper.SLOWER)),
    "paper-slower": ("evidence/details/results.md", partial(paper.tables, paper.SLOWER)),
    "paper-resnet-headline": ("evidence/details/results.md", partial(paper.elsewhere, paper.RESNET)),
    "paper-resnet": ("evidence/details/results.md", partial(paper.tables, paper.RESNET)),
    "floor-ahead": ("evidence/details/rivals.md", floor.ahead),
    "floor-trials": ("evidence/details/rivals.md", floor.trials),
    "floor-methods": ("docs/rivals.md", floor.methods),
    "floor-tasks": ("evidence/details/rivals.md", floor.tasks),
    "floor-details": ("evidence/details/rivals.md", floor.details),
    "floor-constants": ("evidence/details/rivals.md", floor.best_constants),
    "floor-luck": ("evidence/details/rivals.md", floor.chance),
    "floor-decomfl": ("docs/rivals.md", floor.decomfl),
    "paper-stall": ("docs/results.md", paper.stalled),
    "floor-aims": ("docs/rivals.md", floor.aims),
    "floor-lag": ("evidence/details/rivals.md", floor.lags),
    "mean": ("evidence/details/rivals.md", quantizers.mean),
    "few": ("evidence/details/rivals.md", quantizers.few),
    "rate-bound": ("evidence/details/rivals.md", quantizers.bound),
    "constants-of-auto": ("docs/theory.md", sensitivity.constants),
    "traffic": ("evidence/details/performance.md", downlink.traffic),
    "machines": ("evidence/details/performance.md", performance.machines),
    "targets": ("evidence/details/performance.md", performance.targets),
    "others": ("docs/performance.md", performance.others),
    "speeds": ("evidence/details/performance.md", performance.speeds),
    "bodies": ("evidence/details/performance.md", performance.bodies),
    "updates": ("evidence/details/performance.md", performance.updates),
    "load": ("docs/performance.md", performance.load),
    "round": ("docs/performance.md", performance.one_round),
    "densities": ("evidence/details/performance.md", performance.densities),
    "sizes": ("evidence/details/performance.md", performance.sizes),
    "federation": ("evidence/details/performance.md", performance.federation),
    "deployment": ("evidence/details/performance.md", performance.deployment),
    "private-accuracy": ("docs/private.md", private.accuracy),
    "private-time": ("docs/private.md", private.times),
    "resources": ("evidence/details/performance.md", performance.resources),
    **{
        f"peers-{name}": (
            f"{'docs/performance' if name in ('summary', 'behind') else 'evidence/details/peers'}.md",
            partial(peers.part, name),
        )
        for name in peers.PARTS
    },
    "gloo-bytes": ("evidence/details/performance.md", engines.traffic),
    "gloo-time": ("evidence/details/performance.md", engines.time),
    "devices": ("docs/how-to/fifty-devices.md", devices.table),
    "flower-example": ("docs/flower.md", examples.flower),
    "flower-strategies": ("docs/flower.md", examples.strategies),
    "flower-example-readme": ("examples/flower/README.md", examples.flower),
    "flower-share": ("examples/flower/README.md", examples.flower_share),
    "outer-step": ("examples/outer_step/README.md", examples.outer_step),
    "diloco-small": ("docs/how-to/pytorch.md", examples.diloco),
    "flower-lora": ("docs/how-to/pytorch.md", examples.lora),
    "flower-lora-readme": ("examples/flower_lora/README.md", examples.lora),
    "own-task": ("examples/own_task/README.md", examples.own_task),
    "nvflare": ("docs/nvflare.md", nvflare.table),
    "hostile": ("evidence/details/hostile.md", hostile.attacks),
}
FIGURES: dict[str, Callable[[Path], None]] = {
    "bytes.png": floor.draw,
    "paper.png": demo.draw,
    "results.svg": paper.draw,
    "rate-bound.svg": quantizers.draw_bound,
    "scale.png": performance.draw,
}


def pages() -> Iterator[tuple[Path, str]]:
    """Yield every page that has marks, and its text as the records have it."""
    for name in dict.fromkeys(page for page, _ in MARKS.values()):
        text = (ROOT / name).read_text(encoding="utf-8")
        for mark, (page, function) in MARKS.items():
            if page == name:
                text = fill(text, mark, function())
        yield ROOT / name, text


def main() -> None:
    """Bring every page and every figure up to date."""
    for path, text in pages():
        path.write_text(text, encoding="utf-8")
    for name, draw in FIGURES.items():
        draw(ROOT / "docs" / "figures" / name)
