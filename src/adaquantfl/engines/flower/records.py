"""How calls, the model and answers travel in Flower's records: text, numbers and bytes, nothing that could run code.

All in ConfigRecords: Flower sends a message as a tree of objects, one HTTP request for each at every hop, and an Array
would be three of them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from flwr.app import ConfigRecord, RecordDict

from ...errors import FrameError
from ...protocol.downlink import Downlink
from ...protocol.messages import Model, Plan, Reply
from ..calls import Call, Failure
from .identity import KEY
from .replies import printable

PARCEL = "parcel"  # of the record with what leads to the model
_PARTS = ("frame", "buffers", "survey")  # of a reply, as they are


class Questions:
    """The messages about one model. config: the run's, as TOML. way: what leads to the model from earlier ones."""

    def __init__(self, config: str, calls: list[Call], model: Model, way: Downlink) -> None:
        self.calls = calls
        self.round = way.round
        self._config, self._model, self._way = config, model, way
        self._parcels: dict[int | None, ConfigRecord] = {}  # the same for many nodes: Flower stores it once

    def write(self, numbers: Sequence[int], held: int | None) -> RecordDict:
        """These calls, for a node that holds the model of round `held` (None: it has none)."""
        if self._way.size(held, self._model) >= self._way.size(None, self._model):
            held = None
        if held not in self._parcels:
            self._parcels[held] = ConfigRecord({PARCEL: self._way.parcel(held, self._model)})
        calls = json.dumps([_plain_call(self.calls[number]) for number in numbers])
        return RecordDict({KEY: ConfigRecord({"config": self._config, "calls": calls}), PARCEL: self._parcels[held]})


def read_question(content: RecordDict) -> tuple[str, list[Call], bytes]:
    """The configuration's text, the calls, and the parcel that leads to their model."""
    text = content.config_records[KEY]
    calls = [_call(plain) for plain in json.loads(str(text["calls"]))]
    return str(text["config"]), calls, _bytes(content.config_records[PARCEL][PARCEL])


def write_refusal(reason: str) -> RecordDict:
    """A node's answer to a parcel that it cannot use: it asks for the model itself."""
    return RecordDict({KEY: ConfigRecord({"refused": reason})})


def read_refusal(content: RecordDict) -> str | None:
    """Why the parcel was of no use; None where it was."""
    reason = content.config_records.get(KEY, ConfigRecord()).get("refused")
    return None if reason is None else printable(str(reason))


def write_answers(answers: Sequence[Any]) -> RecordDict:
    """What a node answers, in the order of the calls."""
    record = ConfigRecord()
    lines: list[dict[str, Any]] = []
    for number, answer in enumerate(answers):
        if isinstance(answer, Failure):
            lines.append({"failure": answer.reason})
        elif isinstance(answer, Reply):
            for part in _PARTS:
                record[f"{number}.{part}"] = getattr(answer, part)
            lines.append({name: getattr(answer, name) for name in ("round_loss", "train_seconds", "encode_seconds")})
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
    name, arguments = call
    if "failure" in line:
        return Failure(printable(str(line["failure"])))
    return _READERS[name](arguments, line, record, number)


def _read_reply(arguments: tuple[Any, ...], line: dict[str, Any], record: ConfigRecord, number: int) -> Reply:
    return Reply(
        client=arguments[0],  # who was asked, whatever the answer says
        **{part: _bytes(record[f"{number}.{part}"]) for part in _PARTS},
        round_loss=_number(line["round_loss"]),
        train_seconds=_number(line["train_seconds"]),
        encode_seconds=_number(line["encode_seconds"]),
    )


def _read_loss(arguments: tuple[Any, ...], line: dict[str, Any], record: ConfigRecord, number: int) -> float:
    return _number(line["value"])


def _read_correct(arguments: tuple[Any, ...], line: dict[str, Any], record: ConfigRecord, number: int) -> int:
    start, stop = arguments
    right = line["value"]
    if type(right) is not int or not 0 <= right <= stop - start:
        raise ValueError(f"{right!r} right answers of {stop - start}")
    return right


_READERS: dict[str, Callable[[tuple[Any, ...], dict[str, Any], ConfigRecord, int], Any]] = {
    "train": _read_reply,
    "loss": _read_loss,
    "losses": _read_loss,
    "correct": _read_correct,
    "test_losses": _read_loss,
}


def _plain_call(call: Call) -> list[Any]:
    name, arguments = call
    if name == "train":
        client, plan = arguments
        return [name, client, plan.round, plan.s, plan.eta, plan.survey]
    return [name, *arguments]


def _call(plain: list[Any]) -> Call:
    name, *arguments = plain
    if name == "train":
        client, *plan = arguments
        return name, (client, Plan(*plan))
    return name, tuple(arguments)


def _bytes(data: object) -> bytes:
    if not isinstance(data, bytes):
        raise TypeError(f"expected bytes, got {type(data).__name__}")
    return data


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{value!r} is not a number")
    return float(value)
