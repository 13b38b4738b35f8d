"""Where a run is, and when it has nothing left to do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..engines.evaluation import Evaluation
from ..protocol.state import Ledger
from .config import Config

LOSS_LEVELS = (2.0, 1.0, 0.7, 0.5, 0.4, 0.3, 0.2, 0.15, 0.1, 0.07, 0.05, 0.03, 0.02, 0.01)


@dataclass(frozen=True)
class RunState:
    """Where a run is, after `round` rounds. It is light: the model and the rule's state are the server's.

    latest: the last evaluation for the record, after round latest_round. rule_loss: f(w) when it was last evaluated;
    always fresh when the rule asks for it. targets: loss level -> what it took to reach it.
    """

    round: int
    s: float | None
    ledger: Ledger
    initial: Evaluation
    latest: Evaluation
    latest_round: int
    rule_loss: float
    seconds: float = 0.0
    targets: dict[str, dict[str, int]] = field(default_factory=dict)

    @staticmethod
    def of(tree: Mapping[str, Any]) -> RunState:
        """The state that `asdict` wrote down."""
        evaluations = {name: Evaluation(**tree[name]) for name in ("initial", "latest")}
        return RunState(**{**tree, **evaluations, "ledger": Ledger(**tree["ledger"])})


def reached(state: RunState, loss: float, line: Mapping[str, Any], target: float) -> dict[str, dict[str, int]]:
    """The loss levels reached so far, each with what it took. line: the round's, whose loss was evaluated."""
    targets = dict(state.targets)
    took = {name: line[name] for name in ("round", "paper_bits", "wire_bytes_up", "wire_bytes_down") if name in line}
    for level in sorted({*LOSS_LEVELS, target} - {0.0}, reverse=True):
        if loss <= level:
            targets.setdefault(f"{level:g}", took)
    return targets


def finished(state: RunState, config: Config) -> bool:
    """Whether a run that is here has nothing left to do."""
    if state.round >= config.rounds:
        return True
    return config.target_loss > 0 and state.latest_round > 0 and state.latest.loss <= config.target_loss
