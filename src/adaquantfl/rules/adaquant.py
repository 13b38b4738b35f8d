"""AdaQuantFL's rule (eq. 13): s_k = s_0 sqrt(eta_k^2 f(w_0) / (eta_0^2 f(w_k))), once in each interval of B_0 bits."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from statistics import fmean, variance

from ..errors import RuleError
from ..names import unknown
from ..theory import MAX_LEVELS, adaptive_levels, bits_per_element
from .base import Need, Plan, Rule, Seen, State

# The rule's value is a real number, s an integer.
ROUNDINGS: dict[str, Callable[[float], int]] = {
    "power": lambda exact: 2 ** bits_per_element(math.ceil(exact)) - 1,
    "nearest": lambda exact: math.floor(exact + 0.5),
}


@dataclass(frozen=True)
class AdaQuant(Rule):
    """The paper's adaptive rule.

    s goes from 1 to 65535. A loss of 0 asks for infinitely many levels and gets 65535. A NaN or infinite loss says
    nothing, so s stays as it was (at the start it is refused). A negative loss is refused.

    Attributes:
        s0: levels at the start; the paper found 2 good.
        interval: B_0 in units of d, 16 in the paper. The rule chooses s in the first round at or after each multiple.
        guard: a loss above f(w_0) counts as f(w_0). Without it the literal rule lowers s just when training diverges.
        rounding: "power" takes s = 2^b - 1, all the levels that the rule's b_k = ceil(log2(s_k + 1)) bits can tell
            apart. "nearest" rounds s_k itself; it diverged in the paper's setting.
        stall: ours, not the paper's. The noise of s levels can keep the loss above the point at which the rule takes
            more of them, for ever. With a number of intervals n, the rule compares the mean loss of the last n of them
            with that of the n before. Where it has not fallen by more than its standard error, one more bit is taken
            and kept. 0: off; 8 is a good number.

    >>> rule = AdaQuant(s0=2)
    >>> state, plan = rule.plan(rule.init(), Seen(bits=0, dimension=100, loss=2.3, eta=0.1))
    >>> plan.levels, plan.loss_due
    (3, 1600.0)
    >>> rule.plan(state, Seen(bits=1600, dimension=100, loss=0.023, eta=0.1))[1].levels
    31
    """

    s0: int = 2
    interval: float = 16.0
    guard: bool = True
    rounding: str = "power"
    stall: int = 0
    name = "adaquant"
    reference = "Jhunjhunwala, Gadhikar, Joshi, Eldar: Adaptive Quantization of Model Updates, ICASSP 2021"
    needs = frozenset({Need.LOSS})

    def __post_init__(self) -> None:
        if isinstance(self.s0, bool) or not isinstance(self.s0, int) or not 1 <= self.s0 <= MAX_LEVELS:
            raise RuleError(f"s0 = {self.s0!r}: the levels at the start are a whole number from 1 to {MAX_LEVELS}.")
        if not isinstance(self.interval, int | float) or not (math.isfinite(self.interval) and self.interval > 0):
            raise RuleError(f"interval = {self.interval!r}: an interval is a positive number, in units of d bits.")
        if self.rounding not in ROUNDINGS:
            raise RuleError(unknown("rounding", self.rounding, ROUNDINGS))
        if isinstance(self.stall, bool) or not isinstance(self.stall, int) or not (self.stall == 0 or self.stall >= 2):
            raise RuleError(f"stall = {self.stall!r}: a whole number of intervals from 2, such as 8, or 0 for never.")

    def init(self) -> State:
        start = {"s": ROUNDINGS[self.rounding](self.s0), "f0": None, "eta0": None, "boundary": 0.0}
        return {**start, "least": 1, "losses": []} if self.stall else start

    def plan(self, state: State, seen: Seen) -> tuple[State, Plan]:
        if not (math.isfinite(seen.eta) and seen.eta > 0 and math.isfinite(seen.bits) and seen.dimension >= 1):
            raise RuleError(
                f"eta = {seen.eta!r}, bits = {seen.bits!r}, dimension = {seen.dimension!r}: expected a learning rate "
                "above 0, finite bits and a dimension of at least 1."
            )
        f0, eta0 = state["f0"], state["eta0"] or seen.eta
        if f0 is None and seen.loss is not None:
            f0 = seen.loss
            if not math.isfinite(f0) or f0 <= 0:
                raise RuleError(
                    f"f(w_0) = {f0!r}: the rule divides by the loss at the start, which must be finite and above 0. "
                    "Check the model's initialisation and the data."
                )
        state = {**state, "f0": f0, "eta0": eta0}
        if seen.bits >= state["boundary"]:
            size = self.interval * seen.dimension
            state["boundary"] = (seen.bits // size + 1.0) * size
            if seen.loss is not None and f0 is not None:  # `loss = "round"` knows nothing before the first round
                state["s"] = self._levels(state, seen.loss, seen.eta)
                if self.stall:
                    state = self._not_stalled(state, seen.loss)
        return state, Plan(levels=state["s"], loss_due=state["boundary"])

    def _not_stalled(self, state: State, loss: float) -> State:
        """With one more bit, which is kept, where the losses of the last intervals have not fallen."""
        n, s, least = self.stall, max(state["s"], state["least"]), state["least"]
        losses = [*state["losses"], loss][-2 * n :]
        if len(losses) == 2 * n and all(map(math.isfinite, losses)):
            before, after = losses[:n], losses[n:]
            noise = math.sqrt((variance(before) + variance(after)) / n)
            if fmean(before) - fmean(after) <= noise:
                losses, least = [], min(2 ** (bits_per_element(s) + 1) - 1, MAX_LEVELS)
        return {**state, "losses": losses, "least": least, "s": max(s, least)}

    def _levels(self, state: State, loss: float, eta: float) -> int:
        if loss < 0:
            raise RuleError(f"f(w_k) = {loss:g} is negative; the rule takes a loss whose minimum is 0 (f* = 0).")
        if not math.isfinite(loss):
            return int(state["s"])
        if loss == 0:
            return MAX_LEVELS
        fk = min(loss, state["f0"]) if self.guard else loss
        exact = adaptive_levels(self.s0, f0=state["f0"], fk=fk, eta0=state["eta0"], etak=eta)
        return MAX_LEVELS if exact >= MAX_LEVELS else max(1, ROUNDINGS[self.rounding](exact))
