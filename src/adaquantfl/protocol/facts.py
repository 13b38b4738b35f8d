"""What a round measured: the columns that the protocol fills, and the bytes and bits that were sent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from statistics import fmean
from typing import Any

from ..rules import Verdict
from ..theory import bits_per_element
from .arrays import Layout
from .collect import OpenRound, Said
from .ledger import Ledger
from .messages import MOST_TAKEN_BACK
from .stages import Stages
from .state import ServerState
from .uplink import counted_levels

PAPERS_QUANTIZER = "uniform"


def levels_sent(opened: OpenRound) -> list[int | None]:
    """The levels of each reply that counts, as the paper's formula counts them; None is float32."""
    planned, differ = opened.planned_levels, opened.plan.clients_differ
    return [
        one.s if differ else None if planned is None else counted_levels(planned)
        for _, one in sorted(opened.heard.items())
    ]


def counted(ledger: Ledger, opened: OpenRound, stages: Stages, layout: Layout) -> Ledger:
    """The totals with this round's messages."""
    largest = 4 * (layout.dimension + layout.buffers) + layout.other_bytes  # a model without its frame's header
    payload = sum(min(size, largest) for size in opened.parcel_bytes.values())
    ledger = ledger.after_model_sent(sum(opened.order_bytes.values()), payload)
    for _, one in sorted(opened.heard.items()):
        ledger = ledger.after_reply(len(one.data), one.payload_bytes)
    ledger = ledger.after_reply(opened.refused_bytes, 0)
    return ledger.after_round(layout.dimension, levels_sent(opened), stages.uplink.scales(layout.lengths))


def remembered(state: ServerState, opened: OpenRound, sizes: Mapping[int, int], verdict: Verdict) -> dict[str, Any]:
    """What the server remembers of its clients: their sizes, and which rounds it has still to tell them about."""
    examples = {**state.examples, **sizes}
    if not (state.asked or any(order.feedback for order in opened.orders.values())):
        return {"examples": examples}  # nobody ever left anything out
    gone: tuple[int, ...] = () if verdict is Verdict.KEEP else (state.round,)
    if verdict is Verdict.ROLL_BACK and state.earlier is not None and state.earlier.round != state.trajectory.round:
        gone += (state.trajectory.round,)
    asked = dict(state.asked)
    for client in opened.orders:
        # Who answered has been told of all before; who did not is told again of what was taken back.
        untold = () if client in opened.heard else state.taken_back
        recent = (round for round in asked.get(client, ()) if round >= state.trajectory.round or round in untold)
        asked[client] = (*recent, state.round)[-MOST_TAKEN_BACK:]
    known = {round for rounds in asked.values() for round in rounds}
    taken_back = tuple(round for round in (*state.taken_back, *gone) if round in known)
    return {"examples": examples, "asked": asked, "taken_back": taken_back}


def of_round(
    after: ServerState,
    opened: OpenRound,
    missing: Mapping[int, str],
    said: Said,
    verdict: Verdict,
    stages: Stages,
    left_out: Sequence[int],
) -> dict[str, Any]:
    """The columns of the history that the protocol knows; the others belong to the code that trains and carries."""
    levels = [s for s in levels_sent(opened) if s is not None]
    planned = opened.planned_levels
    most = max(levels, default=None if planned is None else counted_levels(planned))
    told = opened.told_examples if opened.shares is None else {}
    capped = {client: m for client, m in told.items() if m > stages.examples_limit.bound(told.values())}
    ledger, formula = asdict(after.ledger), {"bits_per_element": 32 if most is None else bits_per_element(most)}
    if opened.plan.quantized and stages.uplink.kind(opened.plan)[0].name != PAPERS_QUANTIZER:
        del ledger["paper_bits"]  # the formula C_s does not describe what others send
        formula = {}
    return {
        "round": after.round,
        "s": fmean(levels) if opened.plan.clients_differ and levels else planned,
        **formula,
        "lr": opened.eta,
        "round_loss": said.loss if opened.heard else None,
        **({} if verdict is Verdict.KEEP else {"undone": True}),
        **ledger,
        "clients": len(opened.heard),
        **({"missing": dict(missing)} if missing else {}),
        **({"clipped": clipped} if (clipped := opened.clip_factors(stages.limit)) else {}),
        **({"capped": capped} if capped else {}),
        **({"bounded": list(said.bounded)} if said.bounded else {}),
        **({"left_out": list(left_out)} if left_out else {}),
    }
