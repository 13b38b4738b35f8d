"""What an evaluation measures: the global loss, and what the test set says."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Evaluation:
    """The global loss f(w) = sum of p_i f_i(w) (eq. 1), and the accuracy on the test set where it was asked for.

    A task without an accuracy has the loss on the test set instead. refused: clients whose loss cannot be used, which
    are left out of the mean, with the reason. bounded_loss: f(w) for the rule, where the losses of the clients in
    `bounded` are beyond `protocol.limits.bounded`.
    """

    loss: float
    accuracy: float | None
    test_loss: float | None = None
    refused: dict[str, str] = field(default_factory=dict)
    bounded_loss: float | None = None
    bounded: tuple[int, ...] = ()

    @property
    def rule_loss(self) -> float:
        """f(w) as a rule sees it."""
        return self.loss if self.bounded_loss is None else self.bounded_loss

    @property
    def test(self) -> dict[str, float | None]:
        """What was measured on examples that nobody trains on, by its name in records."""
        found = {"test_loss": self.test_loss, "test_accuracy": self.accuracy}
        return {name: value for name, value in found.items() if value is not None}

    @property
    def refusals(self) -> dict[str, Any]:
        """Whose loss was left out, for the history; empty where nobody's was."""
        return {"refused_losses": self.refused} if self.refused else {}
