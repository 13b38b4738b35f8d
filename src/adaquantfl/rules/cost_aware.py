"""Cost-aware AdaQuantFL, our own rule: the levels with the most progress per byte, from what the clients measure.

The noise of a round raises the loss f by the harm H(s), half the trace of Hessian times covariance. Training repairs
it in about T rounds, so that the noise of all rounds together keeps the loss T H(s) above where it would be. Without
noise the loss falls like k^-p with the number of rounds k. A share T H(s) / f that comes on top takes
exp(T H(s) / (p f)) times the rounds. A round costs C(s), so that a loss is reached with the fewest bytes by

    s = argmin over s of ln C(s) + T H(s) / (p f).

The clients survey C(s), the error q(s) and the harm of the levels in use, on the very updates that they send. H is
proportional to q. The server takes p from the losses of the rounds. Only T is assumed. docs/theory.md derives it and
shows its relation to eq. 13.

Where training bears little noise, the best error q is small. A client that sends a part of its update now and the rest
later needs no noise. At equal bytes its update arrives at most q rounds late. That is the better choice if q rounds are
a small share of the training, and the rule then changes to error feedback.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np
import numpy.typing as npt

from ..errors import RuleError
from ..theory import MAX_LEVELS, adaptive_levels
from .auto import LATER as OWN_QUANTIZER
from .base import Need, Plan, Report, Rule, Seen, State, Survey, Verdict
from .checks import check_start
from .watch import WATCHED, relaxed, watched

SURVEY_STEPS = (-2.0, 0.0, 2.0)  # powers of 2: s / 4, s and 4 s are looked at
LEAST_LEVELS = 1 / 64
LEAST_ERROR = 0.05  # finer levels are never right: the mini-batches' own noise in an update is far larger
UNMEASURED_START = 2.0  # where clients cannot measure harm, the rule is eq. 13 from here
HARM_TARGET_SHARE = 0.7  # of the harm that is allowed: what the next try at a start is to do
RECENT = 7  # surveys that count
SLOWEST, FASTEST = 0.05, 0.5  # of p, the power with which the loss falls
FIRST_ROUNDS = 10  # that all have a survey: the loss changes its shape most at the start
MOST_EQUAL_DELAY = 8.0  # rounds at equal bytes, up to which updates are sent late instead of with noise
LONGEST_DELAY = 5.0  # rounds
LEAST_DRIFTS = 3  # measured, before updates are sent late
MOST_DRIFT = 1.5  # the loss at a round's start over that in local training: above it clients fit data of their own


@dataclass(frozen=True)
class CostAware(Rule):
    """The cost-aware rule. It has nothing to set: s0 is only where the first round looks, and is soon forgotten.

    Attributes:
        s0: levels of the first round, not necessarily whole. It is an average: small tensors get more levels and large
            ones fewer (`quantizers.balanced`).
        every: rounds from one survey to the next; sooner while s moves far.
        repair: T, the rounds in which training repairs noise.
        harm: the most that a round's noise may add to the loss, as a share of it. A first round that would do more is
            undone, and tried with finer levels.
        undo: a round is undone when its clients saw this many times the usual loss, or a loss that is not a number. The
            round before it is undone too, since they trained on its noise. s doubles then, and this caution decays over
            the next twenty rounds.
        delay: the share of the rounds so far that updates may arrive late. 0: they are never late.

    A survey says what other levels would do:

    >>> rule = CostAware(s0=1)
    >>> state, plan = rule.plan(rule.init(), Seen(bits=0, dimension=100, eta=0.1))
    >>> levels = plan.survey
    >>> survey = Survey(levels, tuple(9 / s for s in levels), tuple(100 * s for s in levels), loss=2.0, harm=0.01)
    >>> round(rule.plan(state, Seen(bits=300, dimension=100, eta=0.1, survey=survey))[1].levels, 2)
    0.73
    >>> sharper = Survey(levels, survey.errors, survey.costs, loss=1.0, harm=0.01)
    >>> round(rule.plan(state, Seen(bits=300, dimension=100, eta=0.1, survey=sharper))[1].levels, 2)
    1.45
    """

    s0: float = 0.5
    every: int = 5
    repair: float = 40.0
    harm: float = 0.1
    undo: float = 5.0
    delay: float = 0.5
    name = "cost-aware"
    needs = frozenset({Need.SURVEY, Need.EARLIER})

    def __post_init__(self) -> None:
        check_start(self.s0)
        if self.every < 1 or not self.repair > 0 or not self.harm > 0 or not self.undo > 1 or not 0 <= self.delay <= 1:
            raise RuleError(
                f"every = {self.every}, repair = {self.repair}, harm = {self.harm}, undo = {self.undo}, "
                f"delay = {self.delay}: expected at least 1, above 0, above 0, above 1, and from 0 to 1."
            )

    def init(self) -> State:
        return {
            "s": self.s0,
            "f0": None,
            "eta0": None,
            "later": 0.0,  # the share of an update that is sent later; 0: all of it is sent, with noise
            "round": 0,
            "started": False,
            "recent": [],  # from the last surveys: the share of the loss that noise adds, per unit of error
            "trend": list(Trend().sums),
            **WATCHED,
            "pressed": False,
            "drifts": [],  # from the last surveys
            "late_failed": False,  # late updates ruined the training once: never again
        }

    def plan(self, state: State, seen: Seen) -> tuple[State, Plan]:
        caution = relaxed(state["caution"])
        state = {**state, "round": state["round"] + 1, "caution": caution, "eta0": state["eta0"] or seen.eta}
        if state["later"]:
            state["later"] = self._later(state["round"])
        elif seen.survey is not None:
            self._choose(state, seen, seen.survey)
        if state["later"]:
            return state, Plan(max_error=state["later"], quantizer=OWN_QUANTIZER, balanced=True, feedback=True)
        looks = state["round"] <= FIRST_ROUNDS or state["round"] % self.every == 0 or state["pressed"]
        return state, Plan(levels=state["s"], balanced=True, survey=_candidates(state["s"]) if looks else ())

    def _choose(self, state: State, seen: Seen, survey: Survey) -> None:
        """Put s, or the share that is sent later, into the state, by what the last round's clients measured."""
        curve = Curve.of(survey)
        if survey.harm == 0 and not state["recent"]:  # nobody measures it
            s = self._unmeasured(state, seen.eta)
        elif self._refuses(state, survey):
            state |= {"s": curve.least(HARM_TARGET_SHARE * self.harm / self._measured(survey)), "pressed": True}
            return
        else:
            # The size: where noise lowered the loss by luck, the next noise may raise it. The median: bursts are noise
            # along the steepest directions, which the next round repairs.
            state["recent"] = [*state["recent"], abs(self._measured(survey))][-RECENT:]
            sharpness = median(state["recent"]) * state["caution"]
            best = curve.best(self.repair * sharpness / Trend(state["trend"]).power)
            s = max(best, curve.least(self.harm / sharpness) if sharpness else 0.0)
            if seen.feedback is not False and self._better_late(state, survey, curve.error(s)):
                state |= {"s": s, "later": self._later(state["round"])}
                return
        pressed = not 0.51 < s / survey.levels[len(survey.levels) // 2] < 1.96  # look again at once
        state |= {"s": s, "started": True, "pressed": pressed}

    def judge(self, state: State, report: Report) -> tuple[State, Verdict]:
        survey, later = report.survey, state["later"] > 0
        state, undone = watched(state, report.loss, self.undo)
        if undone:
            # Survey at once whether that number of levels is right.
            state |= {"s": min(2 * state["s"], MAX_LEVELS), "pressed": True, "later": 0.0}
            return {**state, "late_failed": state["late_failed"] or later}, Verdict.ROLL_BACK
        if self._refuses(state, survey):
            return state, Verdict.REJECT
        if 0 < report.loss < math.inf:
            state["trend"] = list(Trend(state["trend"]).then(report.loss).sums)
            if survey is not None and math.isfinite(survey.loss):
                state["drifts"] = [*state["drifts"], survey.loss / report.loss][-RECENT:]
            state["f0"] = state["f0"] or report.loss
        return state, Verdict.KEEP

    def _refuses(self, state: State, survey: Survey | None) -> bool:
        """Whether the noise of these levels would do harm from the start: the model is not to suffer it."""
        if survey is None or state["started"]:
            return False
        more_would_help = survey.errors[-1] < 0.9 * survey.errors[len(survey.errors) // 2]
        return more_would_help and not survey.harm <= self.harm * survey.loss

    def _better_late(self, memory: State, survey: Survey, error: float) -> bool:
        """Whether updates are better sent late than with noise of this error.

        Clients that fit their own data ask again in each round for what has not arrived, and training swings.
        """
        enough = memory["round"] >= FIRST_ROUNDS and len(memory["drifts"]) >= LEAST_DRIFTS
        if memory["late_failed"] or not (enough and self.delay and survey.participation > 0):
            return False
        equal = error / survey.participation
        return bool(equal <= MOST_EQUAL_DELAY and median(memory["drifts"]) <= MOST_DRIFT)

    def _later(self, round: int) -> float:
        """The share D of an update that is left for later: it delays the update by D / (1 - D) rounds."""
        late = min(self.delay * round, LONGEST_DELAY)
        return late / (1 + late)

    def _measured(self, survey: Survey) -> float:
        """The share of the loss that noise adds to it per unit of error.

        Where the noise has left no number, twice what is allowed.
        """
        error = max(survey.errors[len(survey.errors) // 2], 1e-30)
        if not (survey.loss > 0 and math.isfinite(survey.harm)):
            return 2 * self.harm / error
        return survey.harm / survey.loss / error

    def _unmeasured(self, state: State, eta: float) -> float:
        """Eq. 13 with the usual loss of a round for f(w_k)."""
        f0, fk = state["f0"], state["usual"]
        start = max(self.s0, UNMEASURED_START)
        if not f0 or not fk or fk <= 0:
            return start
        exact = adaptive_levels(1, f0=f0, fk=min(fk, f0), eta0=state["eta0"], etak=eta)
        return float(min(start * exact * state["caution"], MAX_LEVELS))


def _candidates(s: float) -> tuple[float, ...]:
    """The numbers of levels that a survey looks at when s is in use."""
    return tuple(float(min(max(s * 2.0**step, LEAST_LEVELS), MAX_LEVELS)) for step in SURVEY_STEPS)


@dataclass(frozen=True)
class Trend:
    """The power with which the loss falls: the slope of its logarithm against that of the round, recent rounds first.

    Before any round p lies around the middle of its bounds. Losses that scatter around the line move it less: where few
    clients take part in a round, they say little about the slope.

    >>> trend = Trend()
    >>> for k in range(1, 50):
    ...     trend = trend.then(3 * (k + 1) ** -0.5)
    >>> round(trend.power, 3)
    0.5
    """

    sums: Sequence[float] = (0.0,) * 7  # the number of rounds, and weighted sums of 1, x, y, x x, x y, y y

    def then(self, loss: float) -> Trend:
        """With one more round. A round's weight falls to 1/e when as many others have followed as there were before."""
        count = self.sums[0] + 1
        left = 1 - 1 / max(count, 4.0)
        x, y = math.log(count + 1), math.log(loss)
        new = (1.0, x, y, x * x, x * y, y * y)
        return Trend([count, *(left * old + one for old, one in zip(self.sums[1:], new, strict=True))])

    @property
    def power(self) -> float:
        """p, between bounds: the most likely one after these losses, if it was normal around the middle before."""
        count, n, x, y, xx, xy, yy = self.sums
        usual, deviation = (SLOWEST + FASTEST) / 2, (FASTEST - SLOWEST) / 4
        if count < 3:  # two points are on a line, however noisy
            return usual
        wide, tilt, high = n * xx - x * x, x * y - n * xy, n * yy - y * y  # each n times a sum around the mean
        scatter = max(high - tilt * tilt / wide, 0.0) / (n * max(n - 2, 1.0))  # variance of a loss's logarithm
        doubt = n * scatter / deviation**2
        if wide + doubt <= 0:
            return usual
        return min(max((tilt + doubt * usual) / (wide + doubt), SLOWEST), FASTEST)


@dataclass(frozen=True)
class Curve:
    """Cost and error between the surveyed levels: parabolas in the logarithms of s, cost, and error."""

    levels: npt.NDArray[np.float64]
    costs: npt.NDArray[np.float64]  # their logarithms
    errors: npt.NDArray[np.float64]

    @staticmethod
    def of(survey: Survey) -> Curve:
        known = np.log(survey.levels)
        x = np.linspace(known[0], known[-1], 401)
        degree = min(2, int((np.diff(known) > 0.3).sum()))  # at the least levels candidates coincide
        costs, errors = (
            np.polyval(np.polyfit(known, np.log(np.maximum(values, 1e-30)), degree), x)
            for values in (survey.costs, survey.errors)
        )
        return Curve(np.exp(x), costs.astype(np.float64), np.exp(errors).astype(np.float64))

    def best(self, weight: float) -> float:
        """The s with the smallest ln C(s) + weight q(s), of those whose error is not needlessly small."""
        total = self.costs + weight * self.errors
        total[(self.errors < LEAST_ERROR) & (self.errors < self.errors.max())] = math.inf
        return self._levels(int(np.argmin(total)))

    def least(self, error: float) -> float:
        """The smallest s among those surveyed and between whose error is not larger; the largest where none is."""
        fine = np.flatnonzero(self.errors <= error)
        return self._levels(int(fine[0]) if len(fine) else -1)

    def error(self, s: float) -> float:
        """q(s), at the nearest s that is known."""
        return float(self.errors[np.abs(np.log(self.levels / s)).argmin()])

    def _levels(self, place: int) -> float:
        return min(float(self.levels[place]), float(MAX_LEVELS))
