"""How late a part of an update, or of the model's change, may arrive: for senders that keep what they left out.

A sender that leaves out a share D of the energy, and adds it to what it sends next, delays all of it by about
D / (1 - D) rounds. That may be a fifth of the rounds that it has taken part in, so that a short training does not end
before its updates have arrived. Clients that train until they fit their data ask again for what has not arrived, and
the model gets it twice. The downlink `late` measures how much they do (`protocol.gain`).
"""

from __future__ import annotations

LATE = 0.2  # of the rounds that a sender has taken part in
GAIN_LATE = 0.05  # rounds, at a gain of 1: near the end of training it adds about a fifth to the noise of SGD itself
UNMEASURED_LATE = 1.0  # rounds, where nobody measures the gain


def error_after(rounds: float, most: float, gain: float | None) -> float:
    """Return the error D for a sender that has taken part in this many rounds, `most` at most.

    D / (1 - D), the delay, is a fifth of the rounds, and at most what the gain allows.

    >>> [round(error_after(k, most=0.9, gain=0.0), 2) for k in (1, 10, 100)]
    [0.17, 0.67, 0.9]
    """
    late = LATE * max(rounds, 1.0)
    if gain is None:
        late = min(late, UNMEASURED_LATE)
    elif gain > 0:
        late = min(late, GAIN_LATE / gain**2)
    return min(late / (1 + late), most)
