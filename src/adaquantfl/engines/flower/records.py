"""How calls, the model and answers travel in Flower's records: text, numbers and bytes, nothing that could run code."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

from ...errors import FrameError
from ...federated.messages import Model, Plan, Reply, Vector
from ..calls import Call, Failure
from .identity import KEY

MODEL = "model"
FRAMES = "frames"
STYPE = "adaquantfl.frame"  # how an Array of a reply is serialized: the bytes of a frame


def model_record(model: Model) -> ArrayRecord:
    """The model, to be put into any number of messages."""
    return ArrayRecord({"weights": Array(model.weights), "buffers": Array(model.buffers)})


def write_question(config: str, calls: Sequence[Call], model: ArrayRecord) -> RecordDict:
    """What a node is asked: calls on a model. config: the run's, as TOML."""
    text = ConfigRecord({"config": config, "calls": json.dumps([_plain_call(call) for call in calls])})
    return RecordDict({KEY: text, MODEL: model})


def read_question(content: RecordDict) -> tuple[str, list[Call], Model]:
    """The configuration's text, the calls and the model."""
    text, arrays = content.config_records[KEY], content.array_records[MODEL]
    calls = [_call(plain) for plain in json.loads(str(text["calls"]))]
    return str(text["config"]), calls, Model(_vector(arrays["weights"]), _vector(arrays["buffers"]))


def write_answers(answers: Sequence[Any]) -> RecordDict:
    """What a node answers, in the order of the calls."""
    frames: dict[str, Array] = {}
    lines: list[dict[str, Any]] = []
    for number, answer in enumerate(answers):
        if isinstance(answer, Failure):
            lines.append({"failure": answer.reason})
        elif isinstance(answer, Reply):
            for name in ("frame", "buffers"):
                if data := getattr(answer, name):
                    frames[f"{number}.{name}"] = Array("uint8", (len(data),), STYPE, data)
            numbers = ("round_loss", "train_seconds", "encode_seconds")
            lines.append({name: getattr(answer, name) for name in numbers})
        else:
            lines.append({"value": answer})
    return RecordDict({KEY: ConfigRecord({"answers": json.dumps(lines)}), FRAMES: ArrayRecord(frames)})


def read_answers(content: RecordDict, calls: Sequence[Call]) -> list[Any]:
    """The answers to these calls. FrameError where they are not answers to them: a node may send anything."""
    try:
        lines = json.loads(str(content.config_records[KEY]["answers"]))
        frames = content.array_records[FRAMES]
        if len(lines) != len(calls):
            raise ValueError(f"{len(lines)} answers to {len(calls)} calls")
        return [
            _answer(call, line, frames, number) for number, (call, line) in enumerate(zip(calls, lines, strict=True))
        ]
    except Exception as error:
        raise FrameError(f"It cannot be read ({type(error).__name__}: {error}).") from error


def _answer(call: Call, line: dict[str, Any], frames: ArrayRecord, number: int) -> Any:
    name, arguments = call
    if "failure" in line:
        return Failure(str(line["failure"]))
    return _READERS[name](arguments, line, frames, number)


def _read_reply(arguments: tuple[Any, ...], line: dict[str, Any], frames: ArrayRecord, number: int) -> Reply:
    buffers = frames.get(f"{number}.buffers")
    return Reply(
        client=arguments[0],  # who was asked, whatever the answer says
        frame=frames[f"{number}.frame"].data,
        buffers=b"" if buffers is None else buffers.data,
        round_loss=_number(line["round_loss"]),
        train_seconds=_number(line["train_seconds"]),
        encode_seconds=_number(line["encode_seconds"]),
    )


def _read_loss(arguments: tuple[Any, ...], line: dict[str, Any], frames: ArrayRecord, number: int) -> float:
    return _number(line["value"])


def _read_correct(arguments: tuple[Any, ...], line: dict[str, Any], frames: ArrayRecord, number: int) -> int:
    start, stop = arguments
    right = line["value"]
    if type(right) is not int or not 0 <= right <= stop - start:
        raise ValueError(f"{right!r} right answers of {stop - start}")
    return right


_READERS: dict[str, Callable[[tuple[Any, ...], dict[str, Any], ArrayRecord, int], Any]] = {
    "train": _read_reply,
    "loss": _read_loss,
    "correct": _read_correct,
}


def _plain_call(call: Call) -> list[Any]:
    name, arguments = call
    if name == "train":
        client, plan = arguments
        return [name, client, plan.round, plan.s, plan.eta]
    return [name, *arguments]


def _call(plain: list[Any]) -> Call:
    name, *arguments = plain
    if name == "train":
        client, round, s, eta = arguments
        return name, (client, Plan(round, s, eta))
    return name, tuple(arguments)


def _vector(array: Array) -> Vector:
    values = array.numpy()
    if values.dtype != np.float32 or values.ndim != 1:
        raise ValueError(f"expected a vector of float32, got {values.dtype} of shape {values.shape}")
    return values


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{value!r} is not a number")
    return float(value)
