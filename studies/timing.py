"""The time to a loss over links of given speeds, from the bytes that runs really sent.

The same local work took each record as long as the machine's load at the time made it, so every run here is given one
measured computing time; what differs between methods is then their bytes and their rounds.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from adaquantfl.codecs.raw import frame_size
from adaquantfl.report import figures, tables
from adaquantfl.runs.config import Link
from adaquantfl.runs.link import ReplyTiming, round_seconds
from adaquantfl.runs.records import RunRecord, group_runs

if TYPE_CHECKING:  # matplotlib takes a second to import
    from matplotlib.figure import Figure

LINKS: dict[str, Link] = {
    "1 Mbit/s": Link(up_mbps=1, down_mbps=1),
    "1 up, 10 down": Link(up_mbps=1, down_mbps=10),
    "10 Mbit/s": Link(up_mbps=10, down_mbps=10),
    "100 Mbit/s": Link(up_mbps=100, down_mbps=100),
    "1000 Mbit/s": Link(up_mbps=1000, down_mbps=1000),
}


@dataclass(frozen=True)
class Work:
    """Seconds of computing a round: of a client, its encoding included, and of the server."""

    client: float
    server: float
    encoding: float = 0.0  # as much of the client's

    @staticmethod
    def measured(benchmark: Path, clients: int) -> Work:
        """From the record of benchmarks/round.py, whose workers share this many clients."""
        took = json.loads(benchmark.read_text(encoding="utf-8"))
        share = took["workers"] / clients
        training, encoding = share * took["local_sgd_seconds"], share * took["encode_seconds_per_worker"]
        return Work(training + encoding, took["aggregate_seconds"], encoding)


def over(link: Link, run: RunRecord, work: Work) -> RunRecord:
    """The run with simulated_seconds, as if it had been played over this link."""
    timed = replace(link, compute_seconds=work.client)
    total, up, down, history = 0.0, 0, 0, []
    for line in run.history:
        n = line["clients"]
        each_up, each_down = (line["wire_bytes_up"] - up) // n, (line["wire_bytes_down"] - down) // n
        up, down = line["wire_bytes_up"], line["wire_bytes_down"]
        heard = [ReplyTiming(client, each_up, 0.0, 0.0) for client in range(n)]
        total += work.server + round_seconds(timed, run.seed, heard, dict.fromkeys(range(n), each_down))
        history.append({**line, "simulated_seconds": total})
    return replace(run, history=history)


def common_level(runs: Sequence[RunRecord]) -> float:
    """The lowest loss, to two digits, that every run reached."""
    return tables.round_up(max(value for run in runs if (value := run.lowest()) is not None))


def table(runs: Sequence[RunRecord], work: Work) -> list[list[str]]:
    """A row a run: rounds and bytes of a client to the common loss, and the time over each link."""
    level = common_level(runs)
    grid = [[f"To training loss {level:g}", "rounds", "a client's bytes up", "down", *LINKS]]
    for label, run in named(runs).items():
        rounds, n = _rounds(run, level), run.config["clients"]
        sent = [tables.amount(run.history[rounds - 1][key] / n, "B") for key in ("wire_bytes_up", "wire_bytes_down")]
        cells = []
        for link in LINKS.values():
            seconds = _seconds(run, link, work, level)
            share = rounds * (work.client + work.server) / seconds
            cells.append(f"{tables.amount(seconds, 's')} ({share:.0%})")
        grid.append([label, str(rounds), *sent, *cells])
    return grid


def verdicts(runs: Sequence[RunRecord], work: Work) -> list[str]:
    """For each link, a sentence: who is there first, and how much that is worth."""
    level, sentences = common_level(runs), []
    for name, link in LINKS.items():
        seconds = {label: _seconds(run, link, work, level) for label, run in named(runs).items()}
        first, last = min(seconds, key=seconds.__getitem__), max(seconds, key=seconds.__getitem__)
        ratio = seconds[last] / seconds[first]
        worth = f"{ratio:.2f} times as long" if ratio < 10 else f"{ratio:.0f} times as long"
        sentences.append(
            f"**{name}**: {first} is there first, in {tables.amount(seconds[first], 's')}; {last} takes {worth}."
        )
    return sentences


def figure(runs: Sequence[RunRecord], work: Work, names: Sequence[str]) -> Figure:
    """The loss against time, a pair of axes for each of these links."""
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(figures.RC):
        picture = Figure(figsize=(1.2 + 4.1 * len(names), 4.4), layout="constrained")
        (grid,) = picture.subplots(1, len(names), sharey=True, squeeze=False)
        for axes, name in zip(grid, names, strict=True):
            figures.panel(axes, [over(LINKS[name], run, work) for run in runs], "loss", "simulated_seconds", "log")
            axes.set_title(name)
            if axes is not grid[0]:
                axes.set_ylabel("")
        figures.legend(picture, list(grid), columns=6)
    return picture


def with_exact_downlink(plain: RunRecord, exact: RunRecord) -> tuple[RunRecord, RunRecord]:
    """The same training with both downlinks, told apart by that setting alone."""
    own = {"downlink": "model"}, {"downlink": "exact"}
    return replace(plain, config={**plain.config, **own[0]}), replace(exact, config={**plain.config, **own[1]})


def traffic(plain: RunRecord, exact: RunRecord) -> list[list[str]]:
    """Bytes up and down with both downlinks and with float32 both ways, for the rounds that both have."""
    rounds, n = min(plain.rounds, exact.rounds), exact.config["clients"]
    whole = frame_size((exact.summary or {})["dimension"])
    rows: Mapping[str, tuple[float, float]] = {
        "FedAvg in float32": (n * rounds * whole, n * rounds * whole),
        "AdaQuantFL, downlink model": _sent(plain, rounds),
        "AdaQuantFL, downlink exact": _sent(exact, rounds),
    }
    full = sum(rows["FedAvg in float32"])
    header = [f"{rounds} rounds, {n} clients", "up", "down", "both", "a client and round: up", "down"]
    return [
        [*header, "of float32"],
        *(
            [
                name,
                *(tables.amount(value, "B") for value in (up, down, up + down, up / rounds / n, down / rounds / n)),
                f"1/{full / (up + down):.3g}",
            ]
            for name, (up, down) in rows.items()
        ),
    ]


def by_round(exact: RunRecord, chosen: Sequence[int]) -> list[list[str]]:
    """What a client sent and received in these rounds."""
    grid = [["round", "s", "a client's bytes up", "down"]]
    for number in chosen:
        line, before = exact.history[number - 1], exact.history[number - 2] if number > 1 else {}
        each = [(line[key] - before.get(key, 0)) / line["clients"] for key in ("wire_bytes_up", "wire_bytes_down")]
        grid.append([str(number), str(line["s"]), *(f"{value:,.0f}" for value in each)])
    return grid


def named(runs: Sequence[RunRecord]) -> dict[str, RunRecord]:
    """One run a label."""
    return {label: group[0] for label, group in group_runs(runs).items()}


def _rounds(run: RunRecord, level: float) -> int:
    hit = run.bits_to_loss(level)
    assert hit is not None  # the level is one that every run reached
    return hit[0]


def _seconds(run: RunRecord, link: Link, work: Work, level: float) -> float:
    return float(over(link, run, work).history[_rounds(run, level) - 1]["simulated_seconds"])


def _sent(run: RunRecord, rounds: int) -> tuple[int, int]:
    line = run.history[rounds - 1]
    return line["wire_bytes_up"], line["wire_bytes_down"]
