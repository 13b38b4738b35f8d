"""The tables of docs/flower.md, docs/how-to/pytorch.md and the examples, from what the examples printed."""

from __future__ import annotations

import contextlib
import io
import re
from statistics import fmean, stdev
from typing import Any

from adaquantfl.report.tables import amount, significant
from evidence.pages.marked import RECORDS, ROOT, read
from evidence.studies import diloco as training
from evidence.studies import traces

NAMES = {"auto": "default: `auto`, `late`", "adaquant": '`rule="adaquant"`, `exact`', "fp32": "float32"}
Rounds = dict[str, list[dict[str, Any]]]


def flower() -> str:
    """Return the last round's loss and accuracy, and the bytes from the second round on."""
    runs: Rounds = read("flower-example")["runs"]
    sent = {
        name: [sum(one[f"kB_{way}"] for one in rounds[1:]) for way in ("up", "down")] for name, rounds in runs.items()
    }
    rows = [
        f"| after {len(runs['fp32'])} rounds | loss | test accuracy | up | down | both ways, times less |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for name, title in NAMES.items():
        last, (up, down) = runs[name][-1], sent[name]
        less = "" if name == "fp32" else f"{sum(sent['fp32']) / (up + down):.0f}"
        accuracy = f"{100 * last['accuracy']:.1f} %"
        rows.append(f"| {title} | {last['loss']:.3f} | {accuracy} | {up:,.0f} kB | {down:,.0f} kB | {less} |")
    return "\n".join(rows)


def strategies() -> str:
    """Return Flower's strategies with and without the two lines: accuracy after some rounds, and bytes."""
    record = read("flower-strategies")
    looked = (3, 10, 20)
    deviation = max(
        stdev(run["accuracy"][-1] for run in record["runs"] if (run["strategy"], run["ours"]) == pair)
        for pair in {(run["strategy"], run["ours"]) for run in record["runs"]}
    )
    rows = [
        f"| strategy | {' | '.join(f'after {number} rounds' for number in looked)} | times fewer bytes |",
        "| --- |" + " ---: |" * (len(looked) + 1),
    ]
    for name in dict.fromkeys(run["strategy"] for run in record["runs"]):
        plain, ours = (
            [run for run in record["runs"] if run["strategy"] == name and run["ours"] is quantized]
            for quantized in (False, True)
        )
        cells = []
        for number in looked:
            values = [[100 * run["accuracy"][number - 1] for run in runs] for runs in (plain, ours)]
            cells.append(f"{fmean(values[0]):.1f}→{fmean(values[1]):.1f}")
        rounds = len(ours[0]["kB_up"]) - 1
        float32 = 2 * len(ours) * rounds * record["clients"] * 4 * record["dimension"] / 1000
        sent = sum(sum(run[f"kB_{way}"][1:]) for run in ours for way in ("up", "down"))
        rows.append(f"| {name} | {' | '.join(cells)} | {float32 / sent:.0f} |")
    return "\n".join([*rows, "", f"The deviations over the seeds after 20 rounds are at most {100 * deviation:.1f}."])


def saved() -> str:
    """Return the README's sentence on what the two lines saved in the example app."""
    runs: Rounds = read("flower-example")["runs"]
    sent = {name: sum(one["kB_up"] + one["kB_down"] for one in runs[name][1:]) for name in ("auto", "fp32")}
    ours, plain = (100 * runs[name][-1]["accuracy"] for name in ("auto", "fp32"))
    return (
        f"In [examples/flower](examples/flower/README.md), a small CNN with {len(runs['auto'])} rounds, they sent "
        f"{sent['fp32'] / sent['auto']:.0f} times fewer bytes, both directions together, at {ours:.1f} % test accuracy "
        f"instead of {plain:.1f} %. That leaves out the first round, which sends the whole model."
    )


def round_printed() -> str:
    """Return what the README's round prints."""
    (code,) = re.findall(r"```python\n([^`]*aq\.Server[^`]*)```", (ROOT / "README.md").read_text(encoding="utf-8"))
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(compile(code, "README.md", "exec"), {})
    return f"<!-- output -->\n```text\n{printed.getvalue()}```"


def lora() -> str:
    """Return bytes and loss of the first, the last, and all rounds."""
    runs: Rounds = read("flower-lora")["runs"]
    count = len(runs["fp32"])
    lines = [
        f"| | up, round 1 | up, round {count} | up, all | down, round {count} | test loss after round {count} |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for name in ("fp32", "auto"):
        first, last, total = runs[name][0], runs[name][-1], sum(one["kB_up"] for one in runs[name])
        sizes = [first["kB_up"], last["kB_up"], total, last["kB_down"]]
        lines.append(f"| {NAMES[name]} | {' | '.join(f'{size:,.1f} kB' for size in sizes)} | {last['test_loss']:.3f} |")
    return "\n".join(lines)


def diloco() -> str:
    return training.table("small", RECORDS / "diloco")


def own_task() -> str:
    """Return what all clients sent to reach a training loss, in MB."""
    levels = (3, 2.7, 2)
    rows = [
        f"| bytes up of all clients, MB | {' | '.join(f'to loss {level:g}' for level in levels)} | lowest loss |",
        "| --- |" + " ---: |" * (len(levels) + 1),
    ]
    for method, (run,) in traces.load(RECORDS / "own-task.jsonl").items():
        sent = [run.at(level, run.bytes_up) for level in levels]
        cells = [significant(size / 1e6) if size else "—" for size in sent]
        rows.append(f"| `{method}` | {' | '.join(cells)} | {run.lowest:.2f} |")
    return "\n".join(rows)


def outer_step() -> str:
    """Return loss and bytes of one process for each `noise`."""
    record = read("benchmarks/outer_step")
    whole = amount(record["float32_bytes"], "B")
    rows = [
        f"| `noise` | loss after 8 rounds | after 16 | bytes, where float32 has {whole} |",
        "| ---: | ---: | ---: | ---: |",
    ]
    for row in record["rows"]:
        cells = f"{row['loss_8']:.3f} | {row['loss_16']:.3f} | {amount(row['bytes'], 'B')}"
        rows.append(f"| {row['noise']:g}{', the default' if row['noise'] == 1 else ''} | {cells} |")
    return "\n".join(rows)


def flower_share() -> str:
    """Return what the mod and the strategy take of a round's time."""
    short, long = read("benchmarks/flower_share")["runs"]
    mod, server = (f"{1000 * short[f'{who}_seconds']:.0f} ms" for who in ("mod", "server"))
    return (
        f"For this app's {short['dimension']:,} parameters the mod takes {mod} per message, on one core. The strategy "
        f"takes {server} per round of four clients. That is {short['share']:.0%} of a round with the example's "
        f"{short['steps']} local steps, and {long['share']:.1%} with an epoch of {long['steps']} steps. If the clients "
        "train at the same time on cores of their own, it is "
        f"{short['share_in_parallel']:.0%} and {long['share_in_parallel']:.1%}."
    )
