"""What an evaluation measures: the global loss, and what the test set says."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Evaluation:
    """The global loss f(w) = sum of p_i f_i(w) (eq. 1), and the accuracy on the test set where it was asked for.

    A task without an accuracy has the loss on the test set instead. refused: clients whose loss cannot be used, which
    are left out of the mean, with the reason.
    """

    loss: float
    accuracy: float | None
    test_loss: float | None = None
    refused: dict[str, str] = field(default_factory=dict)

    @property
    def test(self) -> dict[str, float | None]:
        """What was measured on the test set, by its name in records."""
        if self.test_loss is not None:
            return {"test_loss": self.test_loss}
        return {} if self.accuracy is None else {"test_accuracy": self.accuracy}

    @property
    def refusals(self) -> dict[str, Any]:
        """Whose loss was left out, for the history; empty where nobody's was."""
        return {"refused_losses": self.refused} if self.refused else {}
