"""What an evaluation measures: the global loss, and what the test set says."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Evaluation:
    """The global loss f(w) = sum of p_i f_i(w) (eq. 1), and the test set's where it was asked for.

    Attributes:
        rule_loss: f(w) for the rule, where the losses of the clients in `bounded` are beyond `protocol.limits.bounded`.
        test: "test_accuracy", or "test_loss" of a task without an accuracy, with its value.
        refused: clients whose loss cannot be used, which are left out of the mean, with the reason.
    """

    loss: float
    rule_loss: float
    test: dict[str, float] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    bounded: tuple[int, ...] = ()
