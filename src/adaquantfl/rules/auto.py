"""Auto: the coarsest levels with which training does not lag. Nothing has to be set.

An update can be made small in two ways, and each costs rounds:

- With unbiased *noise*. Let N be the energy of a round's noise, P the part of the step's energy that persists over
  rounds, and g the fraction of noise that a round repairs. Noise that is not repaired adds up like a random walk, so
  after k rounds it has raised the loss by k N g / (2 eta), while each round lowers it by P / eta. Training is therefore
  a share N g / (2 P) of its rounds behind. In addition, the noise may be the share of what the step's own noise does.
  The step has the energy S, and its own noise costs about S / (4 eta) however long training takes. With both,

      N = delay / g * (2 P + S / (2 k)).

- *Late*: the client sends a part of its update and adds the rest to the next one. A delay of T rounds may be a share
  `delay` of the rounds so far. A sender that leaves out a share D of the energy, and adds it to what it sends next,
  delays all of it by about D / (1 - D) rounds. Clients that train until they fit their data ask again for what has
  not arrived, and the model gets it twice. The downlink `late` measures how much they do (`protocol.motion`).

The server measures P and g from the steps of the model (`protocol.motion`), and S from the clients' updates. Where it
cannot, N is `noise` times S. In the first four rounds it is four times that, because few rounds add up little. In large
models whose step is the plain mean it is then sqrt(d) / 200 times S, because training acts in few of d directions.
An update that is late by T rounds takes fewer bytes than one whose noise is 2 T times its own energy, so the rule turns
from noise to late once 2 T exceeds what is allowed. It does so where training bears little noise, and never before that
is measured: with momentum or Adam on the server delays harm.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

from ..errors import RuleError
from .base import Motion, Need, Plan, Report, Rule, Seen, State, Verdict

NOISY, LATER = "centroid", "fitted"  # the quantizer of each way
LATE_SAVES = 2.0  # late by T rounds, an update takes the bytes of one with noise of this times T, or fewer
MOST_ERROR = 512.0  # of one client, however many average it out: coarser frames save nothing
LEAST_NOISE, MOST_NOISE = 0.02, 32.0  # of the step's energy, which cannot be told from far more noise than that
FIRST_ROUNDS, FIRST_NOISE = 4, 4.0  # rounds in which there may be more noise, and the least multiple of `noise` then
SPREAD = 50.0  # and sqrt(d) over this: training acts in few of d directions, and g was below 10 / sqrt(d) on all tasks
_MEMORY = 0.5  # of what was measured before, in the estimate of the alignment
LATE = 0.04  # of the rounds that a sender has taken part in
MOST_LATE = 0.8  # of the energy: a delay of four rounds
GAIN_LATE = 0.05  # rounds, at a gain of 1: near the end of training it adds about a fifth to the noise of SGD itself
UNMEASURED_LATE = 1.0  # rounds, where nobody measures the gain


@dataclass(frozen=True)
class Auto(Rule):
    """Our default rule: the coarsest levels with which training does not lag, with nothing to set.

    Attributes:
        delay: the share of the rounds so far by which noise, or late updates, may hold training back.
        noise: the energy of a round's noise as a share of the step's, where its effect is not measured; at least four
            times that in the first four rounds.
        alone: the error of an update where the server does not average, so that noise does not average out.

    >>> from adaquantfl.rules import Energies
    >>> rule = Auto()
    >>> seen = Seen(bits=0, dimension=100, weights_squared=0.25)  # four clients of equal weight
    >>> state, plan = rule.plan(rule.init(), seen)
    >>> plan.quantizer, plan.max_error  # nothing is known of them
    ('centroid', 1.0)
    >>> state, _ = rule.judge(state, Report(2.3, energies=Energies(0.6, mean=1.0, noise=0.1, weights_squared=0.25)))
    >>> rule.plan(state, seen)[1].max_error
    2.0
    >>> later = Seen(bits=0, dimension=100, weights_squared=0.25, motion=Motion(0.0, repair=0.01, persistence=0.01))
    >>> plan = rule.plan({**state, "round": 20}, later)[1]
    >>> plan.quantizer, plan.feedback, round(plan.max_error, 2)
    ('fitted', True, 0.46)
    """

    delay: float = LATE
    noise: float = 0.25
    alone: float = 0.03
    name = "auto"
    reference = "docs/theory.md"
    needs = frozenset({Need.ENERGIES})

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            number = isinstance(value, int | float) and not isinstance(value, bool)
            if not (number and math.isfinite(value) and value > 0):
                raise RuleError(f"{field.name} = {value!r}: expected a number above 0.")

    def init(self) -> State:
        return {"alignment": None, "round": 0, "late": False}

    def plan(self, state: State, seen: Seen) -> tuple[State, Plan]:
        round = state["round"] + 1
        motion = seen.motion or Motion()
        ours = seen.quantizer is None or seen.quantizer.name in (NOISY, LATER)
        late_for = delay_after(round * seen.participation, motion.gain, self.delay)
        error = self._noise(state, round, seen)
        late = seen.feedback
        if late is None and not ours:
            assert seen.quantizer is not None
            late = seen.quantizer.traits.feedback
        elif late is None:
            late = state["late"] or not seen.averages or (motion.measured and LATE_SAVES * late_for > error)
        if not seen.averages:
            error = self.alone
        elif late:
            error = error_of(late_for)
        return {**state, "round": round, "late": late}, Plan(
            max_error=error,
            quantizer=(LATER if late else NOISY) if ours else "",
            balanced=True,
            feedback=late,
            downlink="late",
            downlink_error=error_of(delay_after(round, motion.gain, self.delay)),
        )

    def _noise(self, state: State, round: int, seen: Seen) -> float:
        """The error of each update, so that the noise of all together has the energy N.

        Updates u_i with the error q bring noise of q * sum of p_i^2 ||u_i||^2 into the step.
        """
        motion, share = seen.motion or Motion(), self.noise
        if round <= FIRST_ROUNDS:
            spread = min(share * math.sqrt(seen.dimension) / SPREAD, MOST_NOISE) if seen.plain else 0.0
            share = max(share * FIRST_NOISE, spread)
        if state["alignment"] is None:
            return share  # the least that the alignment can be is the sum of p_i^2
        if motion.repair and motion.persistence is not None:
            share = self.delay / motion.repair * (2 * motion.persistence + 1 / (2 * round))
            share = min(max(share, LEAST_NOISE), MOST_NOISE)
        return float(min(share * state["alignment"] / seen.weights_squared, MOST_ERROR))

    def judge(self, state: State, report: Report) -> tuple[State, Verdict]:
        energies, before = report.energies, state["alignment"]
        if energies is None or not energies.mean > 0:
            return state, Verdict.KEEP
        found = energies.signal / energies.mean
        alignment = found if before is None else _MEMORY * before + (1 - _MEMORY) * found
        return {**state, "alignment": alignment}, Verdict.KEEP


def delay_after(rounds: float, gain: float | None, share: float = LATE) -> float:
    """Return the delay, in rounds, that a sender may cause which has taken part in this many rounds.

    >>> [delay_after(k, gain=0.0) for k in (1, 25, 100)]
    [0.04, 1.0, 4.0]
    >>> delay_after(100, gain=0.5), delay_after(100, gain=1e-300)  # whose square is 0
    (0.2, 4.0)
    """
    late = share * max(rounds, 1.0)
    if gain is None:
        return min(late, UNMEASURED_LATE)
    return min(late, GAIN_LATE / gain**2) if gain > 1e-6 else late


def error_of(delay: float) -> float:
    """Return the error D that causes this delay, D / (1 - D), `MOST_LATE` at most.

    >>> [error_of(delay) for delay in (0.0, 1.0, 100.0)]
    [0.0, 0.5, 0.8]
    """
    return min(delay / (1 + delay), MOST_LATE)
