"""Every part of README, docs and examples that is made from records: {mark: (page, function)}, and the figures."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from evidence.pages import (
    columns,
    demo,
    downlink,
    engines,
    examples,
    floor,
    hostile,
    nvflare,
    paper,
    peers,
    performance,
    quantizers,
)
from evidence.pages.marked import ROOT, fill

MARKS: dict[str, tuple[str, Callable[[], str]]] = {
    "demo-table": ("README.md", demo.table),
    "libraries": ("README.md", peers.readme),
    "rivals-table": ("README.md", floor.against),
    "bytes-table": ("README.md", floor.readme),
    "history-columns": ("docs/configuration.md", columns.columns),
    "scalars": ("docs/how-to/runs.md", columns.scalars),
    "paper-glance": ("docs/results.md", paper.glance),
    "paper-sample": ("docs/results.md", partial(paper.tables, paper.SAMPLE)),
    "paper-cheapest": ("docs/results.md", paper.cheapest),
    "paper-aims": ("docs/results.md", paper.aims),
    "paper-headlines": ("docs/results.md", paper.headlines),
    "paper-whole-headline": ("docs/results.md", partial(paper.elsewhere, paper.WHOLE)),
    "paper-whole": ("docs/results.md", partial(paper.tables, paper.WHOLE)),
    "paper-batch-headline": ("docs/results.md", partial(paper.elsewhere, paper.BATCHES)),
    "paper-batch": ("docs/results.md", partial(paper.tables, paper.BATCHES)),
    "paper-slower-headline": ("docs/results.md", partial(paper.elsewhere, paper.SLOWER)),
    "paper-slower": ("docs/results.md", partial(paper.tables, paper.SLOWER)),
    "paper-resnet-headline": ("docs/results.md", partial(paper.elsewhere, paper.RESNET)),
    "paper-resnet": ("docs/results.md", partial(paper.tables, paper.RESNET)),
    "crossing": ("docs/results.md", paper.crossing),
    "floor-ahead": ("docs/rivals.md", floor.ahead),
    "floor-trials": ("docs/rivals.md", floor.trials),
    "floor-methods": ("docs/rivals.md", floor.methods),
    "floor-tasks": ("docs/rivals.md", floor.tasks),
    "floor-details": ("docs/rivals.md", floor.details),
    "floor-constants": ("docs/rivals.md", floor.best_constants),
    "floor-luck": ("docs/rivals.md", floor.chance),
    "floor-aims": ("docs/rivals.md", floor.aims),
    "floor-lag": ("docs/rivals.md", floor.lags),
    "quantizers": ("docs/rivals.md", quantizers.quantizers),
    "mean": ("docs/rivals.md", quantizers.mean),
    "few": ("docs/rivals.md", quantizers.few),
    "rate-bound": ("docs/rivals.md", quantizers.bound),
    "traffic": ("docs/downlink.md", downlink.traffic),
    "machines": ("docs/performance.md", performance.machines),
    "targets": ("docs/performance.md", performance.targets),
    "others": ("docs/performance.md", performance.others),
    "speeds": ("docs/performance.md", performance.speeds),
    "bodies": ("docs/performance.md", performance.bodies),
    "updates": ("docs/performance.md", performance.updates),
    "round": ("docs/performance.md", performance.one_round),
    "densities": ("docs/performance.md", performance.densities),
    "sizes": ("docs/performance.md", performance.sizes),
    "federation": ("docs/performance.md", performance.federation),
    "deployment": ("docs/performance.md", performance.deployment),
    "resources": ("docs/performance.md", performance.resources),
    **{f"peers-{name}": ("docs/peers.md", partial(peers.part, name)) for name in peers.PARTS},
    "gloo-bytes": ("docs/how-to/hosts.md", engines.traffic),
    "gloo-time": ("docs/how-to/hosts.md", engines.time),
    "flower-example": ("docs/flower.md", examples.flower),
    "flower-example-readme": ("examples/flower/README.md", examples.flower),
    "flower-share": ("docs/flower.md", examples.flower_share),
    "outer-step": ("docs/how-to/pytorch.md", examples.outer_step),
    "diloco-small": ("docs/how-to/pytorch.md", examples.diloco),
    "flower-lora": ("docs/how-to/pytorch.md", examples.lora),
    "flower-lora-readme": ("examples/flower_lora/README.md", examples.lora),
    "own-task": ("examples/own_task/README.md", examples.own_task),
    "patches": ("docs/how-to/transport.md", examples.patches),
    "nvflare": ("docs/nvflare.md", nvflare.table),
    "hostile": ("docs/security.md", hostile.attacks),
}
FIGURES: dict[str, Callable[[Path], None]] = {
    "bytes.png": floor.draw,
    "paper.png": demo.draw,
    "results.svg": paper.draw,
    "crossing.svg": paper.draw_crossing,
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
