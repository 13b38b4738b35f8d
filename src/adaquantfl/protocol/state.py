"""The server's state between two rounds: explicit, immutable, and written down as one plain tree.

A tree is made of dictionaries with text keys, lists, arrays, bytes, numbers, text and None: anything can store it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from ..errors import AdaQuantError, CheckpointError
from ..rules import State
from ..rules.watch import WATCHED
from . import trees
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
            log, watch, layout = tree["log"], tree["watch"], Layout.from_json(tree["layout"])
            steps, starts = (tuple(map(trees.data, log[name])) for name in ("steps", "starts"))
            if len(steps) != len(starts):
                raise ValueError(f"{len(steps)} steps start from {len(starts)} models")
            return ServerState(
                round=trees.whole_number(tree["round"]),
                layout=layout,
                trajectory=_read_trajectory(tree["trajectory"], layout),
                earlier=_read_trajectory(tree["earlier"], layout) if tree["earlier"] is not None else None,
                rule=dict(tree["rule"]),
                loss_due=trees.number(tree["loss_due"]),
                watch={"usual": _known(watch["usual"]), **trees.numbers_of(watch, ("caution", "undone"))},
                log=Log(
                    trees.whole_number(log["round"]), trees.data(log["digest"]), steps, starts, _numbered(log["holds"])
                ),
                ledger=Ledger(**{name: trees.whole_number(value, 2**63) for name, value in tree["ledger"].items()}),
                loss=_known(tree["loss"]),
                measured=_known(tree["measured"]),
                asked={int(client): tuple(map(trees.whole_number, asked)) for client, asked in tree["asked"].items()},
                taken_back=tuple(map(trees.whole_number, tree["taken_back"])),
                examples=_numbered(tree["examples"]),
            )
        except (AdaQuantError, MemoryError):
            raise
        except Exception as error:  # a tree that is none raises almost anything
            raise CheckpointError(f"This is not the state of a server ({error!r}).") from error


def _trajectory(one: Trajectory) -> dict[str, Any]:
    return {**vars(one), "model": dict(vars(one.model)), "step": dict(one.step), "downlink": dict(one.downlink)}


def _read_trajectory(tree: Mapping[str, Any], layout: Layout) -> Trajectory:
    held = trees.model(tree["model"], layout)
    return Trajectory(trees.whole_number(tree["round"], least=-1), held, dict(tree["step"]), dict(tree["downlink"]))


def _known(value: Any) -> float | None:
    return None if value is None else trees.number(value)


def _with_text_keys(numbers: Mapping[int, int]) -> dict[str, int]:
    return {str(key): value for key, value in numbers.items()}


def _numbered(tree: Mapping[str, Any]) -> dict[int, int]:
    return {int(key): trees.whole_number(value) for key, value in tree.items()}
