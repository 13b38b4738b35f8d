"""Cost-aware AdaQuantFL, our own rule: the paper's bound, minimised with what a round really costs and really loses.

The paper's s_k minimises a bound in which a round costs d log2(4 s) bits and the quantizer's variance is d / s^2. On an
entropy-coded wire neither is near the truth. The same bound with the true ones asks for

    s_k = argmin over s of (f_k / f_0) C_k(s) + mu (eta_k / eta_0)^2 q_k(s),

where C_k(s) is the cost of a round and q_k(s) the variance as a share of the update's squared norm, both surveyed by
the clients on the very updates that they send. mu is what makes s_0 the optimum at the start. docs/theory.md derives
it and shows that it becomes eq. 13 under the paper's cost and variance.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from ..errors import RuleError
from ..theory import MAX_LEVELS
from .base import Rule, RuleState, Survey, Verdict
from .checks import check_loss, check_start

SURVEY_REACH = 2.0  # a survey looks from s / 2 to 2 s, so that s at most doubles or halves from one to the next
SURVEY_POINTS = 5
LEAST_LEVELS = 1 / 64
LOSS_AVERAGE_WEIGHT = 0.3  # how much the last round counts in what a round's loss usually is
HARM_TARGET_SHARE = 0.7  # of the harm that is allowed: what the next try at a start is to do
MOST_ROUNDS_TAKEN_BACK = 6  # rounds taken back in a row: with 64 times the levels it is not the noise


@dataclass(frozen=True)
class CostAware(Rule):
    """The cost-aware rule.

    s0: levels to try first, not necessarily whole; on average, since the rule gives small tensors more and large ones
    fewer (`quantizers.balanced`). Where their noise would do more than `harm` from the start, the round
    is taken back and tried with more, until it does not. every: rounds from one survey to the next. harm: how much of
    the loss the noise of a round may add to it; the clients measure it, and s is never so small that it would be more.
    brake: a loss that rises above this many times its lowest doubles s, whatever bound and harm say, and the rule
    continues from there. The lowest loss so far is also the one that counts, so that a rising loss never lowers s.
    undo: a round whose clients saw this many times the usual loss, or none that is a number, is taken back with the one
    before it, whose noise they trained on, and s doubles.

    A survey says what other levels would do:

    >>> rule = CostAware(s0=0.5)
    >>> state = rule.plan(rule.init(), bits=0, dimension=100, loss=2.0, eta=0.1)
    >>> levels = rule.candidates(state.s)
    >>> survey = Survey(levels, tuple(9 / s for s in levels), tuple(100 * s for s in levels), loss=2.0, harm=0.001)
    >>> round(rule.plan(state, bits=300, dimension=100, loss=2.0, eta=0.1, survey=survey).s, 2)
    0.5
    >>> round(rule.plan(state, bits=300, dimension=100, loss=0.5, eta=0.1, survey=survey).s, 2)
    1.0
    """

    s0: float = 0.4
    every: int = 5
    harm: float = 0.03
    brake: float = 1.3
    undo: float = 5.0
    name = "cost-aware"
    balanced = True
    rolls_back = True

    def __post_init__(self) -> None:
        check_start(self.s0)
        if self.every < 1 or not self.brake > 1 or not self.harm > 0 or not self.undo > 1:
            raise RuleError(
                f"every = {self.every}, harm = {self.harm}, brake = {self.brake}, undo = {self.undo}: "
                "expected at least 1, above 0, above 1 and above 1."
            )

    def init(self) -> RuleState:
        memory = {
            "round": 0,
            "mu": None,  # until a start is found
            "lowest": None,
            "sharpness": None,
            "usual": None,
            "undone": 0,
            "pressed": False,
        }
        return RuleState(s=self.s0, memory=memory)

    def wants_loss(self, state: RuleState, bits: float) -> bool:
        return bool(state.memory["round"] % self.every == 0)

    def wants_survey(self, state: RuleState) -> bool:
        round = state.memory["round"]  # counted by `plan`: 1 is the first
        return bool(round == 1 or round % self.every == 0 or state.memory["pressed"])

    def candidates(self, s: float) -> tuple[float, ...]:
        exponents = np.linspace(-1, 1, SURVEY_POINTS)
        return tuple(float(min(max(s * SURVEY_REACH**x, LEAST_LEVELS), MAX_LEVELS)) for x in exponents)

    def plan(
        self,
        state: RuleState,
        *,
        bits: float,
        dimension: int,
        loss: float | None,
        eta: float,
        survey: Survey | None = None,
    ) -> RuleState:
        memory = {**state.memory, "round": state.memory["round"] + 1}
        state = replace(state, memory=memory, eta0=state.eta0 or eta)
        if loss is not None and math.isfinite(loss):
            if state.f0 is None:
                state = replace(state, f0=check_loss(loss))
            memory["lowest"] = min(loss, memory["lowest"] or loss)
        if survey is None or state.f0 is None or state.eta0 is None:
            return state
        assert state.s is not None
        curve = Curve.of(survey)
        error = curve.error_at(state.s)
        if memory["mu"] is None:
            if self._refuses(state, survey):
                safe = curve.least(HARM_TARGET_SHARE * self.harm / self._sharpness(None, survey, error))
                return replace(state, s=safe, memory={**memory, "pressed": True})
            memory["mu"] = curve.exchange_rate(state.s)  # the levels in use are the optimum at the start
        memory["sharpness"] = self._sharpness(memory["sharpness"], survey, error)
        memory["pressed"] = False
        if loss is not None and not loss <= self.brake * memory["lowest"]:  # also where it is not a number
            return self._finer(state)
        bound = curve.best(memory["mu"] / self._weight(state, eta))
        safe = curve.least(self.harm / memory["sharpness"]) if memory["sharpness"] > 0 else 0.0
        s = max(bound, safe)
        memory["pressed"] = s > 0.99 * max(survey.levels)  # even more may be right: look again at once
        return replace(state, s=s)

    def judge(self, state: RuleState, round_loss: float, survey: Survey | None = None) -> tuple[RuleState, Verdict]:
        memory, usual = dict(state.memory), state.memory["usual"]
        if usual is None or round_loss <= self.undo * usual or memory["undone"] >= MOST_ROUNDS_TAKEN_BACK:
            if math.isfinite(round_loss):
                memory["usual"] = (
                    round_loss
                    if usual is None
                    else (1 - LOSS_AVERAGE_WEIGHT) * usual + LOSS_AVERAGE_WEIGHT * round_loss
                )
            verdict = Verdict.REJECT if self._refuses(state, survey) else Verdict.KEEP
            return replace(state, memory={**memory, "undone": 0}), verdict
        memory["undone"] += 1
        return self._finer(replace(state, memory=memory)), Verdict.ROLL_BACK

    def _refuses(self, state: RuleState, survey: Survey | None) -> bool:
        """Whether the noise of these levels would do harm from the start: the model is not to suffer it."""
        if survey is None or state.memory["mu"] is not None:
            return False
        more_would_help = survey.errors[-1] < 0.9 * survey.errors[len(survey.errors) // 2]
        return more_would_help and not survey.harm <= self.harm * survey.loss

    def _finer(self, state: RuleState) -> RuleState:
        """Twice the levels until the next survey, and a larger mu: sqrt(2) times the levels from then on.

        Not all rises are the noise's doing, and levels that were doubled for good at each would soon cost more than a
        few rounds that are taken back.
        """
        assert state.s is not None
        mu = state.memory["mu"]
        memory = {**state.memory, "mu": mu and 2 * mu}
        return replace(state, s=min(SURVEY_REACH * state.s, MAX_LEVELS), memory=memory)

    def _sharpness(self, before: float | None, survey: Survey, error: float) -> float:
        """The share of the loss that noise adds to it, for each unit of error; evened out over the surveys.

        The harm of noise is half the trace of Hessian times covariance, and so proportional to the variance.
        """
        if not (survey.loss > 0 and math.isfinite(survey.harm)):  # the noise has left no number: twice as sharp
            return 2 * (before or self.harm / error)
        now = max(survey.harm, 0.0) / survey.loss / error
        return now if before is None else (before + now) / 2

    def _weight(self, state: RuleState, eta: float) -> float:
        """What a round's cost counts next to its error: (f_k / f_0) / (eta_k / eta_0)^2."""
        assert state.f0 is not None
        assert state.eta0 is not None
        lowest = max(min(state.memory["lowest"], state.f0), 1e-9 * state.f0)
        return float(lowest / state.f0 * (state.eta0 / eta) ** 2)


@dataclass(frozen=True)
class Curve:
    """Cost and error between the surveyed levels: parabolas in the logarithms of s, cost, and error."""

    low: float  # of the logarithms of the surveyed levels
    high: float
    cost: npt.NDArray[np.float64]  # the parabolas' coefficients
    error: npt.NDArray[np.float64]

    @staticmethod
    def of(survey: Survey) -> Curve:
        x = np.log(survey.levels)
        cost, error = (
            np.polyfit(x, np.log(np.maximum(values, 1e-30)), 2 if len(set(survey.levels)) > 2 else 1)
            for values in (survey.costs, survey.errors)
        )
        return Curve(float(x.min()), float(x.max()), cost, error)

    def exchange_rate(self, s: float) -> float:
        """mu that makes s the optimum: -C'(s) / q'(s)."""
        cost, error = (self._slope(s, parabola) for parabola in (self.cost, self.error))
        return cost / max(-error, 1e-30)

    def best(self, mu: float) -> float:
        """The s with the smallest C(s) + mu q(s) among those surveyed and between."""
        x = np.linspace(self.low, self.high, 401)
        total = np.exp(np.polyval(self.cost, x)) + mu * np.exp(np.polyval(self.error, x))
        return self._levels(x[np.argmin(total)])

    def error_at(self, s: float) -> float:
        return float(np.exp(np.polyval(self.error, math.log(s))))

    def least(self, error: float) -> float:
        """The smallest s among those surveyed and between whose error is not larger; the largest where none is."""
        x = np.linspace(self.low, self.high, 401)
        fine = x[np.exp(np.polyval(self.error, x)) <= error]
        return self._levels(fine[0] if len(fine) else x[-1])

    def _levels(self, x: float) -> float:
        return min(float(np.exp(x)), float(MAX_LEVELS))

    @staticmethod
    def _slope(s: float, parabola: npt.NDArray[np.float64]) -> float:
        """s times the derivative at s."""
        x = math.log(s)
        return float(np.exp(np.polyval(parabola, x)) * np.polyval(np.polyder(parabola), x))
