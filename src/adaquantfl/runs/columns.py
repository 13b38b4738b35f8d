"""The columns of a run's history, declared once: summary, CSV, trackers, tables, plots and docs read them here.

A new column is one entry of `COLUMNS` and its value in the lines of the history.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import fmean
from typing import Any, Literal


@dataclass(frozen=True)
class Column:
    """One column: what it is, what becomes of it over a run, and how it is shown.

    >>> COLUMNS["test_accuracy"].axis, COLUMNS["paper_bits"].summary
    ('Test accuracy (%)', 'paper_bits')
    """

    name: str  # in a line of the history; "seconds.train" is `train` in the line's table `seconds`
    about: str  # what it is, in a plain sentence
    unit: str = ""  # "b", "B" or "s"; "%": a share, shown times 100
    section: str = ""  # the runs that have it, where not every run does
    summary: str = ""  # its key in summary.json; "": it has none
    over_run: Literal["last", "total", "mean"] = "last"  # how the summary's value is made of the rounds' values
    initial: str = ""  # the summary's key for its value before the first round
    scalar: str = ""  # its name in a tracker; "": `name`
    label: str = ""  # of its axis in plots; "": it is not drawn
    scale: Literal["linear", "log", "log2"] = "log"  # of that axis; "log2": drawn as steps, one per round
    x: int = 0  # its place among the horizontal axes to choose from; it grows from 0. 0: it is none of them
    caption: str = ""  # of the table that says how much of it each method needed to reach a loss
    head: str = ""  # of its column in the report's table of runs; "": it is not in that table

    @property
    def factor(self) -> int:
        """What a value is multiplied by where it is drawn."""
        return 100 if self.unit == "%" else 1

    @property
    def axis(self) -> str:
        """The label of a vertical axis."""
        return f"{self.label} (%)" if self.unit == "%" else self.label


_ALL = (
    Column("round", "The number of the round, from 1.", summary="rounds",
           label="Round", x=3, caption="Rounds to reach a training loss", head="rounds"),
    Column("s", "Quantization levels of the round; their mean where clients choose; null without quantization.",
           scalar="quantization/s", label="Quantization levels s", scale="log2"),
    Column("bits_per_element", "Bits per element in the paper's code, of the client with the most levels.",
           summary="mean_bits_per_element", over_run="mean",
           scalar="quantization/bits", label="Bits per element b", scale="log2"),
    Column("lr", "The learning rate."),
    Column("round_loss", "The mean loss of the round's mini-batches, over its clients.",
           scalar="loss/round", label="Round loss (mini-batches)"),
    Column("loss", "The global training loss after the round, every `evaluate_every` rounds and at the end.",
           summary="final_loss", initial="initial_loss", scalar="loss/train", label="Training loss", head="final loss"),
    Column("rule_loss", "The global training loss after a round where only the rule asked for it.",
           section='`loss = "full"`', scalar="loss/rule"),
    Column("test_accuracy", "The share of the test set that the model gets right; measured together with `loss`.",
           unit="%", summary="final_accuracy", initial="initial_accuracy",
           scalar="accuracy/test", label="Test accuracy", scale="linear", head="test accuracy"),
    Column("test_loss", "The loss on the test set; measured together with `loss`.",
           section="a task without accuracy", summary="final_test_loss", initial="initial_test_loss",
           scalar="loss/test", label="Test loss", head="test loss"),
    Column("undone", "True where the rule restored an earlier model and the round's update was dropped.",
           section="`undo`, or a rule that rejects rounds", summary="undone_rounds", over_run="total"),
    Column("paper_bits", "Uplink bits of one client by the paper's formula, since the start; of the paper's quantizer.",
           unit="b", summary="paper_bits", scalar="traffic/paper_bits", label="Bits sent by one client", x=2,
           caption="Bits to reach a training loss: uplink of one client by the paper's formula",
           head="bits per client"),
    Column("wire_bytes_up", "Bytes that all clients sent, since the start: frames with headers, losses.",
           unit="B", summary="wire_bytes_up", scalar="traffic/up_bytes", label="Bytes sent by all clients", x=1,
           caption="Bytes to reach a training loss: measured uplink of all clients together", head="bytes up"),
    Column("wire_bytes_down", "Bytes that all clients received, since the start: plans and models.",
           unit="B", summary="wire_bytes_down", scalar="traffic/down_bytes", head="bytes down"),
    Column("payload_bytes_up", "The part of `wire_bytes_up` that is the frames' bodies.",
           unit="B", summary="payload_bytes_up", scalar="traffic/payload_up_bytes"),
    Column("payload_bytes_down", "The part of `wire_bytes_down` that is the bodies of models and their changes.",
           unit="B", summary="payload_bytes_down", scalar="traffic/payload_down_bytes"),
    Column("clients", "The number of clients whose update was used."),
    Column("missing", "The clients that did not take part, each with the reason.",
           section="a round that lacks a client"),
    Column("clipped", "The clients whose update was scaled down, each with the factor.",
           section='`norm_action = "clip"`'),
    Column("capped", "The clients that said they have more than `max_examples`, each with the number.",
           section="`aq.Server(max_examples=...)`"),
    Column("bounded", "The clients with a loss that is above 10 times the round's median or below a tenth of it. "
           "The rule saw that bound.", section="a round with such a client"),
    Column("left_out", "The clients whose update the server step did not use.", section='`step = "krum"`'),
    Column("masked_bits", "Bits that a client's masked numbers take per element of the model.",
           section="`private`", summary="mean_masked_bits", over_run="mean", scalar="private/masked_bits"),
    Column("clipped_coordinates", "Rotated coordinates beyond the largest level, of all clients together.",
           section="`private` without noise", scalar="private/clipped"),
    Column("epsilon", "The privacy that was spent since the start: epsilon at `private.delta`.",
           section="`private` with noise", summary="epsilon", scalar="private/epsilon",
           label="Epsilon", scale="linear", head="epsilon"),
    Column("refused_losses", "The clients whose loss was left out of `loss` or `rule_loss`, each with the reason.",
           section="an evaluation that refuses a loss"),
    Column("seconds.round", "Time of the round, without its evaluation.", unit="s", scalar="time/round"),
    Column("seconds.train", "Time of local training, summed over clients.", unit="s", scalar="time/train"),
    Column("seconds.encode", "Time of quantizing and encoding, summed over clients.", unit="s", scalar="time/encode"),
    Column("seconds.aggregate", "Time of decoding, adding up and applying the updates.",
           unit="s", scalar="time/aggregate"),
    Column("seconds.evaluate", "Time of the evaluation, where there was one.", unit="s", scalar="time/evaluate"),
)  # fmt: skip

COLUMNS = {column.name: column for column in _ALL}


def flat(line: Mapping[str, Any]) -> dict[str, Any]:
    """The values of a line of the history by column; those of a table that is no column have both names.

    >>> flat({"round": 3, "missing": {"1": "timeout"}, "seconds": {"train": 0.5}})
    {'round': 3, 'missing': {'1': 'timeout'}, 'seconds.train': 0.5}
    """
    found: dict[str, Any] = {}
    for key, value in line.items():
        if isinstance(value, Mapping) and key not in COLUMNS:
            found |= {f"{key}.{inner}": number for inner, number in value.items()}
        else:
            found[key] = value
    return found


def summary_of(history: Iterable[Mapping[str, Any]], start: Mapping[str, Any]) -> dict[str, Any]:
    """The summary's values of a run: each column over its history, and `start`, the columns before the first round.

    A column that no round has is None, or left out where it belongs to an optional section.

    >>> found = summary_of([{"round": 1, "loss": 1.5}, {"round": 2, "undone": True}], start={"loss": 2.3})
    >>> [found.get(key) for key in ("rounds", "initial_loss", "final_loss", "final_accuracy", "undone_rounds")]
    [2, 2.3, 1.5, None, 1]
    """
    rows = [flat(line) for line in history]
    found: dict[str, Any] = {}
    for name, column in COLUMNS.items():
        if column.initial and (name in start or not column.section):
            found[column.initial] = start.get(name)
        values = [row[name] for row in rows if name in row]
        if column.summary and (values or not column.section):
            found[column.summary] = _over_run(column, values)
    return found


def _over_run(column: Column, values: list[Any]) -> Any:
    if column.over_run == "last":
        return values[-1] if values else None
    known = [value for value in values if value is not None]
    if column.over_run == "total":
        return sum(known)
    return fmean(known) if known else None
