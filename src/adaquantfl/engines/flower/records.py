"""How calls and answers travel in Flower's records: text, numbers and bytes, nothing that could run code."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from flwr.app import ConfigRecord, RecordDict

from ...errors import FrameError
from ...flower.records import KEY, ORDER, PARCEL, REPLY, bytes_in, split_order
from ...protocol.downlink import digest_in, held_parcel
from ...protocol.messages import Order
from ...protocol.server import Server
from ..calls import Call, Failure, Trained
from .nodes import printable


class Questions:
    """The messages of one carry, all about the server's model. config: the run's, as TOML."""

    def __init__(self, config: str, server: Server, calls: list[Call]) -> None:
        self.calls, self._config = calls, config
        self._whole = Order.unpack(server.view([-1], whole=True)[-1])
        self.digest = digest_in(self._whole.parcel)  # of the model
        self._held = held_parcel(self._whole.parcel)
        self._parcels: dict[bytes, ConfigRecord] = {}  # the same for many nodes

    def write(self, places: Sequence[int], holds: bytes) -> RecordDict:
        """These calls for a node that holds the model with the digest `holds`; empty: it holds none."""
        record = ConfigRecord({"config": self._config})
        calls = [self.calls[place] for place in places]
        record["calls"] = json.dumps([[call.name, call.client, *call.numbers] for call in calls])
        first, *others = (Order.unpack(call.order) for call in calls)
        if holds == self.digest:
            first = replace(first, parcel=self._held, layout="")
        elif not holds:  # whatever the server thinks that its client holds
            first = replace(first, parcel=self._whole.parcel, layout=self._whole.layout)
        record[f"{ORDER}.0"], parcel = split_order(first.pack())
        for number, order in enumerate(others, start=1):  # the first one has brought the model
            record[f"{ORDER}.{number}"] = replace(order, parcel=self._held, layout="").pack()
        return RecordDict({KEY: record, PARCEL: self._parcels.setdefault(parcel, ConfigRecord({PARCEL: parcel}))})


def read_question(content: RecordDict) -> tuple[str, list[Call]]:
    """The configuration's text, and the calls with their orders."""
    record, parcel = content.config_records[KEY], bytes_in(content.config_records[PARCEL], PARCEL)
    calls = []
    for number, (name, client, start, stop) in enumerate(json.loads(str(record["calls"]))):
        order = bytes_in(record, f"{ORDER}.{number}") + (b"" if number else parcel)
        calls.append(Call(name, client, order, (start, stop)))
    return str(record["config"]), calls


def write_answers(answers: Sequence[Any]) -> RecordDict:
    """What a node answers, in the order of the calls."""
    record, lines = ConfigRecord(), list[dict[str, Any]]()
    for number, answer in enumerate(answers):
        if isinstance(answer, Failure):
            lines.append({"failure": answer.reason, "model_needed": answer.model_needed})
        elif isinstance(answer, Trained):
            record[f"{REPLY}.{number}"] = answer.reply
            lines.append({"train": answer.train_seconds, "encode": answer.encode_seconds})
        else:
            lines.append({"value": answer})
    record["answers"] = json.dumps(lines)
    return RecordDict({KEY: record})


def read_answers(content: RecordDict, calls: Sequence[Call]) -> list[Any]:
    """The answers to these calls. FrameError where they are not answers to them: a node may send anything."""
    try:
        record = content.config_records[KEY]
        lines = json.loads(str(record["answers"]))
        if len(lines) != len(calls):
            raise ValueError(f"{len(lines)} answers to {len(calls)} calls")
        return [_answer(call, line, record, n) for n, (call, line) in enumerate(zip(calls, lines, strict=True))]
    except Exception as error:
        raise FrameError(f"It cannot be read ({printable(f'{type(error).__name__}: {error}')}).") from error


def _answer(call: Call, line: dict[str, Any], record: ConfigRecord, number: int) -> Any:
    if "failure" in line:
        return Failure(printable(str(line["failure"])), line.get("model_needed") is True)
    if call.name == "train":
        reply = bytes_in(record, f"{REPLY}.{number}")
        return Trained(reply, _number(line["train"]), _number(line["encode"]))
    if call.name != "correct":
        return _number(line["value"])
    start, stop = call.numbers
    right = line["value"]
    if type(right) is not int or not 0 <= right <= stop - start:
        raise ValueError(f"{right!r} right answers of {stop - start}")
    return right


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{value!r} is not a number")
    return float(value)
