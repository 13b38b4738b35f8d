"""How late a part of an update, or of the model's change, may arrive: for senders that keep what they left out.

A sender that leaves out a share D of the energy, and adds it to what it sends next, delays all of it by about
D / (1 - D) rounds. That may be a small share of the rounds that it has taken part in, so that training does not lag.
Clients that train until they fit their data ask again for what has not arrived, and the model gets it twice. The
downlink `late` measures how much they do (`protocol.motion`).
"""

from __future__ import annotations

LATE = 0.04  # of the rounds that a sender has taken part in
MOST_LATE = 0.8  # of the energy: a delay of four rounds
GAIN_LATE = 0.05  # rounds, at a gain of 1: near the end of training it adds about a fifth to the noise of SGD itself
UNMEASURED_LATE = 1.0  # rounds, where nobody measures the gain


def delay_after(rounds: float, gain: float | None, share: float = LATE) -> float:
    """Return the delay, in rounds, that a sender may cause which has taken part in this many rounds.

    >>> [delay_after(k, gain=0.0) for k in (1, 25, 100)]
    [0.04, 1.0, 4.0]
    >>> delay_after(100, gain=0.5)
    0.2
    """
    late = share * max(rounds, 1.0)
    if gain is None:
        return min(late, UNMEASURED_LATE)
    return min(late, GAIN_LATE / gain**2) if gain > 0 else late


def error_of(delay: float) -> float:
    """Return the error D that causes this delay, D / (1 - D), `MOST_LATE` at most.

    >>> [error_of(delay) for delay in (0.0, 1.0, 100.0)]
    [0.0, 0.5, 0.8]
    """
    return min(delay / (1 + delay), MOST_LATE)
