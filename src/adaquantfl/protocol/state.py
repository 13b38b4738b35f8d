"""The server's state between two rounds: explicit, immutable, and written down as one plain tree.

A tree is made of dictionaries with text keys, lists, arrays, bytes, numbers, text and None: anything can store it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from ..errors import CheckpointError
from ..rules import State, Survey
from ..rules.watch import WATCHED
from .arrays import Layout, Model
from .downlink import Log
from .ledger import Ledger

FORMAT = 1


@dataclass(frozen=True, eq=False)
class Trajectory:
    """All that training depends on, and that a rule can roll back as a whole.

    round: of the round that led here; -1 at the start. step, downlink: what the server step and the downlink keep.
    """

    round: int
    model: Model
    step: dict[str, Any]
    downlink: dict[str, Any]


@dataclass(frozen=True, eq=False)
class ServerState:
    """After `round` rounds, before the next one.

    earlier: the trajectory before the present one, where the rule may roll back. loss: the mean mini-batch loss of the
    last round, or smoothed over the last ones. measured: f(w_k) when it was last given. taken_back: rounds that do not
    count. asked: client -> the rounds that it was asked in and may still have to be told about; only with error
    feedback. examples: of each client.
    """

    round: int
    layout: Layout
    trajectory: Trajectory
    rule: State
    log: Log
    ledger: Ledger = field(default_factory=Ledger)
    earlier: Trajectory | None = None
    loss: float | None = None
    measured: float | None = None
    survey: Survey | None = None
    loss_due: float = 0.0
    watch: Mapping[str, Any] = field(default_factory=lambda: dict(WATCHED))
    asked: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    taken_back: tuple[int, ...] = ()
    examples: Mapping[int, int] = field(default_factory=dict)

    def tree(self) -> dict[str, Any]:
        """The state as a plain tree."""
        return {
            "format": FORMAT,
            "round": self.round,
            "layout": self.layout.to_json(),
            "trajectory": _trajectory(self.trajectory),
            "earlier": self.earlier and _trajectory(self.earlier),
            "rule": self.rule,
            "loss_due": self.loss_due,
            "watch": dict(self.watch),
            "log": {
                **vars(self.log),
                "steps": list(self.log.steps),
                "starts": list(self.log.starts),
                "holds": _with_text_keys(self.log.holds),
            },
            "ledger": asdict(self.ledger),
            "loss": self.loss,
            "measured": self.measured,
            "survey": self.survey and {name: _plain(value) for name, value in vars(self.survey).items()},
            "asked": {str(client): list(rounds) for client, rounds in self.asked.items()},
            "taken_back": list(self.taken_back),
            "examples": _with_text_keys(self.examples),
        }

    @staticmethod
    def of(tree: Mapping[str, Any]) -> ServerState:
        """The state of a tree; CheckpointError where it is none."""
        try:
            if tree["format"] != FORMAT:
                raise CheckpointError(f"The state has format {tree['format']}; this version reads {FORMAT}.")
            log, survey = tree["log"], tree["survey"]
            return ServerState(
                round=int(tree["round"]),
                layout=Layout.from_json(tree["layout"]),
                trajectory=_read_trajectory(tree["trajectory"]),
                earlier=_read_trajectory(tree["earlier"]) if tree["earlier"] else None,
                rule=dict(tree["rule"]),
                loss_due=float(tree["loss_due"]),
                watch=dict(tree["watch"]),
                log=Log(
                    log["round"],
                    bytes(log["digest"]),
                    tuple(map(bytes, log["steps"])),
                    tuple(map(bytes, log["starts"])),
                    _numbered(log["holds"]),
                ),
                ledger=Ledger(**tree["ledger"]),
                loss=tree["loss"],
                measured=tree["measured"],
                survey=_read_survey(survey) if survey else None,
                asked={int(client): tuple(rounds) for client, rounds in tree["asked"].items()},
                taken_back=tuple(tree["taken_back"]),
                examples=_numbered(tree["examples"]),
            )
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError, OverflowError) as error:
            raise CheckpointError(f"This is not the state of a server ({error!r}).") from error


def _trajectory(one: Trajectory) -> dict[str, Any]:
    return {**vars(one), "model": dict(vars(one.model)), "step": dict(one.step), "downlink": dict(one.downlink)}


def _read_trajectory(tree: Mapping[str, Any]) -> Trajectory:
    model = tree["model"]
    weights, buffers = (np.asarray(model[name], dtype=np.float32) for name in ("weights", "buffers"))
    held = Model(weights, buffers, bytes(model["others"]))
    return Trajectory(int(tree["round"]), held, dict(tree["step"]), dict(tree["downlink"]))


def _read_survey(tree: Mapping[str, Any]) -> Survey:
    lists: dict[str, Any] = {name: tuple(tree[name]) for name in ("levels", "errors", "costs")}
    return Survey(**lists, loss=tree["loss"], harm=tree["harm"], participation=tree["participation"])


def _with_text_keys(numbers: Mapping[int, int]) -> dict[str, int]:
    return {str(key): value for key, value in numbers.items()}


def _numbered(tree: Mapping[str, Any]) -> dict[int, int]:
    return {int(key): int(value) for key, value in tree.items()}


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value
