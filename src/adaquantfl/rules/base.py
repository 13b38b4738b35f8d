"""What a rule is: settings and pure functions. What changes lives in a state that is passed in and returned.

A rule plans a round (how many levels, and what else the clients are told) and judges it when it is over. Whatever
differs between rules is data in the `Plan` that they return, so that servers and clients need not know any rule.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from ..quantizers.base import Quantizer

State = dict[str, Any]  # text, numbers, lists and dictionaries of these: it can be written down


class Need(Enum):
    """What has to be measured for a rule.

    >>> from adaquantfl import AdaQuant
    >>> AdaQuant().needs
    frozenset({<Need.LOSS: 'loss'>})
    """

    LOSS = "loss"  # f(w_k), at the start of the rounds for which `Plan.loss_due` asks for it
    ROUND_LOSS = "round loss"  # the mean mini-batch loss of the last round instead, which is free
    ENERGIES = "energies"  # the squared norms of the updates, in rounds whose noise averages out


@dataclass(frozen=True)
class Energies:
    """The squared norms of a round's updates, as the server decoded them.

    Attributes:
        step: of the weighted sum of the updates, their noise included.
        mean: of the clients' own updates without noise, weighted.
        noise: the part of `step` that is the clients' noise, on average.
        weights_squared: the sum of p_i^2.

    >>> Energies(step=0.6, mean=1.0, noise=0.1, weights_squared=0.25).step
    0.6
    """

    step: float
    mean: float
    noise: float
    weights_squared: float

    @property
    def signal(self) -> float:
        """The energy of the step without the clients' noise; at least 5 % of what updates without a common part give.

        >>> Energies(step=0.6, mean=1.0, noise=0.1, weights_squared=0.25).signal
        0.5
        """
        return min(max(self.step - self.noise, 0.05 * self.weights_squared * self.mean), self.mean)


@dataclass(frozen=True)
class Motion:
    """What the model's last steps say about training; None is not measured (`protocol.motion`).

    Attributes:
        gain: the fraction of undelivered change that the next update requests again.
        repair: the fraction of random noise that one round undoes, with its standard error added.
        persistence: the mean cosine between a step and those of about ten rounds before, without the clients' noise.
        mean: whether the last step was the mean of the clients' updates.

    >>> Motion().repair is None
    True
    """

    gain: float | None = None
    repair: float | None = None
    persistence: float | None = None
    mean: bool = True

    @property
    def measured(self) -> bool:
        """Whether it is known what noise does to training."""
        return self.repair is not None and self.persistence is not None


@dataclass(frozen=True)
class Seen:
    """What a rule sees when it plans a round.

    Attributes:
        bits: the paper bits that one client has sent so far.
        dimension: d, the number of quantized elements.
        loss: f(w_k), or the last round's loss; None if neither is known.
        eta: the learning rate of the round.
        weights: p_i of every client that is known.
        weights_squared: the sum of p_i^2 over the clients of a round.
        participation: the share of the clients that take part in the round.
        averages: whether the new model is a mean over the clients, in which their noise averages out.
        plain: whether the step is known to be that mean and nothing else, such as momentum or Adam.
        motion: what the model's last steps say; None where the downlink does not look at them.
        quantizer: the one that the user has set; None leaves it to the rule.
        feedback: whether clients keep what they left out, as the user has set it; None leaves it to the rule.

    >>> Seen(bits=0, dimension=100, loss=2.3, eta=0.1).averages
    True
    """

    bits: float
    dimension: int
    loss: float | None = None
    eta: float = 1.0
    weights: Mapping[int, float] = field(default_factory=dict)
    weights_squared: float = 1.0
    participation: float = 1.0
    averages: bool = True
    plain: bool = False
    motion: Motion | None = None
    quantizer: Quantizer | None = None
    feedback: bool | None = None


@dataclass(frozen=True)
class Plan:
    """What a round is told. Set `levels`, or `max_error`, or `resolution`; nothing set is float32.

    Attributes:
        levels: s for all clients, or for each; it need not be whole. None: not quantized.
        max_error: each client takes the coarsest levels whose error is at most this share of its update's energy.
        resolution: each client takes the bits that the range of its update needs at this distance of two levels.
        quantizer: the name of the quantizer; "" is the user's, or the paper's.
        balanced: small tensors get more levels, where each has its own norm and the quantizer can.
        feedback: clients keep what they left out and add it to their next update; None: as the quantizer is meant.
        downlink: the name of the downlink that suits the rule, where the user has set none; read before round 1.
        downlink_error: the share of the model's change that the downlink `late` may leave for later rounds; None: its
            own choice.
        loss_due: the paper bits of one client from which on the next plan needs a new f(w_k).

    >>> Plan(levels=3).quantized, Plan().quantized
    (True, False)
    """

    levels: float | Mapping[int, float] | None = None
    max_error: float | None = None
    resolution: float | None = None
    quantizer: str = ""
    balanced: bool = False
    feedback: bool | None = None
    downlink: str = ""
    downlink_error: float | None = None
    loss_due: float = 0.0

    @property
    def quantized(self) -> bool:
        """Whether the round is quantized at all."""
        return not (self.levels is None and self.max_error is None and self.resolution is None)

    @property
    def clients_differ(self) -> bool:
        """Whether each client may have levels of its own."""
        return self.max_error is not None or self.resolution is not None or isinstance(self.levels, Mapping)


@dataclass(frozen=True)
class Report:
    """What a rule is told of a round that is over.

    Attributes:
        loss: the mean mini-batch loss of its clients; infinite where training has diverged on too many of them.
        energies: of the updates, where the rule needs them and they were measured.

    >>> Report(loss=2.3).energies is None
    True
    """

    loss: float
    energies: Energies | None = None


class Verdict(Enum):
    """What a rule says of a round: keep its update, or reject it. Rolling rounds back is the server's (`undo`).

    >>> from adaquantfl import AdaQuant
    >>> AdaQuant().judge({}, Report(loss=2.3))[1]
    <Verdict.KEEP: 0>
    """

    KEEP = 0
    REJECT = 1


class Rule(ABC):
    """Chooses the levels of each round. A rule of your own has a `plan`:

    >>> class Doubling(Rule):
    ...     def init(self):
    ...         return {"s": 1}
    ...     def plan(self, state, seen):
    ...         return {"s": 2 * state["s"]}, Plan(levels=state["s"])
    >>> rule = Doubling()
    >>> state, plan = rule.plan(rule.init(), Seen(bits=0, dimension=100))
    >>> rule.plan(state, Seen(bits=400, dimension=100))[1].levels
    2
    """

    name: ClassVar[str] = ""  # by which a written-down state finds the rule again
    reference: ClassVar[str] = ""  # where it is from
    needs: ClassVar[frozenset[Need]] = frozenset()

    def init(self) -> State:
        """Return the state before the first round."""
        return {}

    @abstractmethod
    def plan(self, state: State, seen: Seen) -> tuple[State, Plan]:
        """Return the next state and the plan of the round that begins."""

    def judge(self, state: State, report: Report) -> tuple[State, Verdict]:
        """Return the state after a round, and whether its update counts."""
        return state, Verdict.KEEP
