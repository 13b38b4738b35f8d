"""The server's state between two rounds: explicit, immutable, and written down as one plain tree.

A tree is made of dictionaries with text keys, lists, arrays, bytes, numbers, text and None: anything can store it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from ..errors import AdaQuantError, CheckpointError
from ..rules import State
from . import trees
from .arrays import Layout, Model
from .parcels import Log

FORMAT = 1
LOSS_AVERAGE_WEIGHT = 0.3  # how much the last round counts in what a round's loss usually is
CAUTION_LEFT = 0.9  # of the caution after a round that was rolled back, one round later
MOST_CAUTION = 64.0
MOST_ROLLED_BACK = 6  # rounds in a row: with 64 times the levels it is not the noise


@dataclass(frozen=True)
class Ledger:
    """Totals since the start: the paper's bits next to the bytes of the real messages.

    paper_bits: one client's uplink by the paper's formula (its B). Bytes are sums over clients: wire bytes are all that
    is sent (frames, losses, plans), payload bytes only the frames' bodies.
    """

    paper_bits: int = 0
    wire_bytes_up: int = 0
    wire_bytes_down: int = 0
    payload_bytes_up: int = 0
    payload_bytes_down: int = 0

    def plus(self, **more: int) -> Ledger:
        """The totals with more of these."""
        return replace(self, **{name: getattr(self, name) + number for name, number in more.items()})


@dataclass(frozen=True)
class Watch:
    """The losses of the rounds, by which a round whose noise made training diverge is rolled back (`undo`).

    Attributes:
        usual: what a round's loss usually is.
        caution: how many times the plan's levels are used.
        undone: rounds that were rolled back in a row.
    """

    usual: float | None = None
    caution: float = 1.0
    undone: int = 0

    def after(self, loss: float, undo: float) -> tuple[Watch, bool]:
        """Return the watch after a round with this loss, and whether the round is to be rolled back.

        It is if the loss is not finite, or more than `undo` times the usual one; never in the first round.

        >>> Watch(usual=2.0).after(11.0, undo=5)
        (Watch(usual=2.0, caution=2.0, undone=1), True)
        """
        usual = self.usual
        too_high = not math.isfinite(loss) or (usual is not None and 0 < undo * usual < loss)
        if too_high and usual is not None and self.undone < MOST_ROLLED_BACK:
            return Watch(usual, min(2 * self.caution, MOST_CAUTION), self.undone + 1), True
        if math.isfinite(loss):
            usual = loss if usual is None else usual + LOSS_AVERAGE_WEIGHT * (loss - usual)
        return Watch(usual, self.caution), False

    def relaxed(self) -> Watch:
        """Return the watch one round later."""
        return replace(self, caution=1 + CAUTION_LEFT * (self.caution - 1))


@dataclass(frozen=True, eq=False)
class Trajectory:
    """All that training depends on, and that is rolled back as a whole.

    round: of the round that led here; -1 at the start. step, downlink: what the server step and the downlink keep.
    asked: the clients of that round, where clients keep what they leave out.
    """

    round: int
    model: Model
    step: dict[str, Any]
    downlink: dict[str, Any]
    asked: tuple[int, ...] = ()

    def tree(self) -> dict[str, Any]:
        """The trajectory as a plain tree."""
        parts = {"model": dict(vars(self.model)), "step": dict(self.step), "downlink": dict(self.downlink)}
        return {"round": self.round, **parts, "asked": list(self.asked)}

    @staticmethod
    def of(tree: Mapping[str, Any], layout: Layout) -> Trajectory:
        """The trajectory of a tree."""
        round, held = trees.whole_number(tree["round"], least=-1), trees.model(tree["model"], layout)
        asked = tuple(map(trees.whole_number, tree["asked"]))
        return Trajectory(round, held, dict(tree["step"]), dict(tree["downlink"]), asked)


@dataclass(frozen=True, eq=False)
class ServerState:
    """After `round` rounds, before the next one.

    earlier: the trajectory before the present one, where rounds may be rolled back. loss: the mean mini-batch loss of
    the last round, or smoothed over the last ones. measured: f(w_k) when it was last given. keeps: whether clients may
    keep a part of their updates for later rounds. owed: client -> rounds that do not count and that it took part in,
    until it has been told. examples: of each client.
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
    watch: Watch = field(default_factory=Watch)
    keeps: bool = False
    owed: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    examples: Mapping[int, int] = field(default_factory=dict)

    def tree(self) -> dict[str, Any]:
        """The state as a plain tree."""
        log = {**vars(self.log), "steps": list(self.log.steps), "starts": list(self.log.starts)}
        return {
            **vars(self),
            "format": FORMAT,
            "layout": self.layout.to_json(),
            "trajectory": self.trajectory.tree(),
            "earlier": self.earlier and self.earlier.tree(),
            "log": {**log, "holds": _with_text_keys(self.log.holds)},
            "ledger": asdict(self.ledger),
            "watch": asdict(self.watch),
            "owed": {str(client): list(rounds) for client, rounds in self.owed.items()},
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
                trajectory=Trajectory.of(tree["trajectory"], layout),
                earlier=Trajectory.of(tree["earlier"], layout) if tree["earlier"] is not None else None,
                rule=dict(tree["rule"]),
                loss_due=trees.number(tree["loss_due"]),
                watch=Watch(
                    _known(watch["usual"]), trees.number(watch["caution"]), trees.whole_number(watch["undone"])
                ),
                log=Log(
                    trees.whole_number(log["round"]), trees.data(log["digest"]), steps, starts, _numbered(log["holds"])
                ),
                ledger=Ledger(**{name: trees.whole_number(value, 2**63) for name, value in tree["ledger"].items()}),
                loss=_known(tree["loss"]),
                measured=_known(tree["measured"]),
                keeps=bool(tree["keeps"]),
                owed={int(client): tuple(map(trees.whole_number, owed)) for client, owed in tree["owed"].items()},
                examples=_numbered(tree["examples"]),
            )
        except (AdaQuantError, MemoryError):
            raise
        except Exception as error:  # a tree that is none raises almost anything
            raise CheckpointError(f"This is not the state of a server ({error!r}).") from error


def _known(value: Any) -> float | None:
    return None if value is None else trees.number(value)


def _with_text_keys(numbers: Mapping[int, int]) -> dict[str, int]:
    return {str(key): value for key, value in numbers.items()}


def _numbered(tree: Mapping[str, Any]) -> dict[int, int]:
    return {int(key): trees.whole_number(value) for key, value in tree.items()}
