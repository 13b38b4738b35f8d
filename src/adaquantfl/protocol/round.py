"""One round as the paper writes it: plan (eq. 13), train and quantize (eq. 2 and 4), add up and step (eq. 3), judge.

Pure functions from a state to the next one. `begin` makes the orders; `end` turns the replies into the new state, and
says what was measured: the columns of the history that the protocol knows.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from statistics import fmean
from typing import Any

from ..errors import Diverged, called
from ..quantizers.base import whole_levels
from ..quantizers.streams import stream_key
from ..rules import Energies, Need, Plan, Report, Seen, State, Verdict
from ..rules.checks import judged, planned
from ..theory import bits_per_element, paper_bits
from .arrays import Model
from .cohort import Shares, by_examples
from .downlink import Change, published
from .limits import bounded
from .messages import MOST_TAKEN_BACK, Order
from .parcels import Relay
from .replies import OpenRound
from .stages import Stages
from .state import Ledger, ServerState, Trajectory
from .step import Sum, combined, moved
from .updates import Combined

PAPERS_QUANTIZER = "uniform"


def begin(
    stages: Stages,
    state: ServerState,
    clients: Sequence[int] | None,
    eta: float,
    loss: float | None,
    expected: int | None = None,
) -> tuple[ServerState, OpenRound]:
    """Plan the round, and say what each client is asked. clients: None draws them. loss: f(w_k); None: as before."""
    measured = state.measured if loss is None else loss
    shares = stages.cohort.shares(stages.seed, state.round, clients)
    asked = sorted(set(clients or ()) if shares is None else shares.weights)
    rule, plan = _planned(stages, state, asked, expected or len(asked), eta, measured)
    orders = _orders(stages, state, plan, asked, eta)
    ledger, keeps = state.ledger, state.keeps or any(order.feedback for order in orders.values())
    if loss is not None and wants_loss(stages, state):  # each client has sent f_i(w_k), a float32
        ledger = ledger.plus(wire_bytes_up=4 * (len(stages.cohort.examples) or len(asked)))
    opened = OpenRound(eta, plan, state.watch.caution, shares, orders, state.log.digest)
    after = replace(state, rule=rule, ledger=ledger, measured=measured, loss_due=plan.loss_due, keeps=keeps)
    return replace(after, watch=state.watch.relaxed()), opened


def wants_loss(stages: Stages, state: ServerState) -> bool:
    """Whether the next plan needs a new f(w_k)."""
    return Need.LOSS in stages.rule.needs and state.ledger.paper_bits >= state.loss_due


def _planned(
    stages: Stages, state: ServerState, asked: Sequence[int], expected: int, eta: float, measured: float | None
) -> tuple[State, Plan]:
    """The rule's plan: s_k = s_0 sqrt(eta_k^2 f(w_0) / (eta_0^2 f(w_k))) at the start of an interval     (eq. 13)."""
    cohort, uplink, loss = stages.cohort, stages.uplink, measured
    if measured is None or Need.ROUND_LOSS in stages.rule.needs:
        usable = state.loss is None or state.loss > 0 or stages.negative_loss  # a mean of 0 is a false one
        loss = state.loss if usable else None
    motion = called(stages.downlink_words, stages.downlink.motion, state.trajectory.downlink)
    seen = Seen(
        bits=state.ledger.paper_bits,
        dimension=state.layout.dimension,
        loss=loss,
        eta=eta,
        weights=cohort.population(asked, state.examples),
        weights_squared=cohort.noise(asked, state.examples) ** 2 * (len(asked) / expected),
        participation=expected / max(len(cohort.examples), len({*state.examples, *asked})),
        averages=stages.averages,
        plain=stages.plain and (motion is None or motion.mean),
        motion=motion,
        quantizer=uplink.quantizer,
        feedback=uplink.feedback,
    )
    rule, plan = planned(stages.rule, state.rule, seen, asked)
    uplink.check(plan, stages.rule.name)
    return rule, plan


def _orders(stages: Stages, state: ServerState, plan: Plan, clients: Sequence[int], eta: float) -> dict[int, Order]:
    """What each client is told, except for the model."""
    uplink, orders = stages.uplink.order(plan), {}
    for client in clients:
        number, target = stages.uplink.target(plan, client, state.watch.caution)
        key, taken_back = stream_key(stages.seed, state.round, client), state.owed.get(client, ())
        orders[client] = Order(state.round, number, eta, key, target=target, taken_back=taken_back, **uplink)
    return orders


def end(
    stages: Stages, state: ServerState, opened: OpenRound, aggregated: Model | None = None
) -> tuple[ServerState, dict[str, Any]]:
    """The state after the round, and what was measured. EngineError where too few clients answered.

    aggregated: the new model where somebody else, such as a framework's own strategy, made it from the replies.
    """
    missing, asked, when = opened.missing_clients, len(opened.orders), f"Round {state.round + 1}"
    examples = stages.examples_limit.capped(opened.told_examples)
    shares = opened.shares or by_examples(examples)
    lost = opened.diverged and not stages.cohort.enough(len(missing), asked)
    if not lost:  # the losses of too few clients say nothing about the model
        stages.cohort.check(missing, asked, when)
    told = {client: one.loss for client, one in sorted(opened.heard.items())}
    counted = bounded(told, shares.weights, stages.negative_loss)
    whole = not told or (shares.complete and not missing)
    round_loss, loss = (_mean(losses, shares.weights, whole) for losses in (told, counted))
    energies = None if lost else _energies(stages, state, opened, shares)
    report, undone, watch = Report(math.inf if lost else loss, energies), False, state.watch
    if stages.undo:
        watch, undone = watch.after(report.loss, stages.undo)
    rule, verdict = (state.rule, Verdict.REJECT) if undone else judged(stages.rule, state.rule, report)
    kept = verdict is Verdict.KEEP
    if lost and kept:
        stages.cohort.check(missing, asked, when, Diverged)
    now, relay, left_out = state.trajectory, None, tuple[int, ...]()
    if kept:
        now, relay, left_out = _moved(stages, state, opened, shares, aggregated, energies)
    elif undone and state.earlier is not None:
        now = state.earlier
    old = state.trajectory.model
    log = called(stages.downlink_words, stages.downlink.log, state.log, old, now.model, relay)
    after = replace(
        state,
        round=state.round + 1,
        trajectory=now,
        earlier=state.trajectory if kept and stages.undo else state.earlier,
        rule=rule,
        watch=watch,
        log=log.noted(opened.orders, state.log.round).noted(missing, None),
        ledger=_counted(state, opened, stages),
        loss=state.loss if undone else smoothed(state.loss, loss, stages.loss_smoothing),
        owed=_owed(state, opened, kept, undone) if state.keeps else {},
        examples={**state.examples, **examples},
    )
    notes = {
        "undone": not kept,
        "missing": dict(missing),
        "clipped": {c: factor for c, factor in opened.factors(stages.limit).items() if c in told},
        "capped": {c: m for c, m in opened.told_examples.items() if m > examples[c] and opened.shares is None},
        "bounded": [client for client in told if counted[client] != told[client]],
        "left_out": list(left_out),
    }
    facts = _facts(after, opened, stages, round_loss if told else None)
    return after, {**facts, **{name: note for name, note in notes.items() if note}}


def _energies(stages: Stages, state: ServerState, opened: OpenRound, shares: Shares) -> Energies | None:
    """The squared norms of the updates, where the rule looks at them and the round's noise averages out."""
    noise = opened.plan.max_error is not None and not any(order.feedback for order in opened.orders.values())
    if not (Need.ENERGIES in stages.rule.needs and stages.averages and noise):
        return None
    return opened.updates(shares, state.layout, state.trajectory.model, stages.limit).energies()


def _moved(
    stages: Stages,
    state: ServerState,
    opened: OpenRound,
    shares: Shares,
    aggregated: Model | None,
    energies: Energies | None,
) -> tuple[Trajectory, Relay | None, tuple[int, ...]]:
    """w_{k+1} = w_k + sum of p_i Q(update_i), or what the server step makes of the updates              (eq. 3).

    Return what the clients get next, the frames that lead there, and the clients whose updates the step left out.
    """
    now, layout, relay, weights = state.trajectory, state.layout, None, None
    made = aggregated or combined(stages.step, opened.updates(shares, layout, now.model, stages.limit))
    left_out = made.left_out if isinstance(made, Combined) else ()
    if isinstance(made, Model):
        update, step, weights = made.weights - now.model.weights, now.step, made.weights
    else:
        update, step = moved(stages.step, made, now.step)
        relay = made.relay if stages.step.is_sum else None
        if type(stages.step) is not Sum:
            update = update.copy()  # the step may keep it
    error = opened.plan.downlink_error
    change = Change(update, made.buffers, made.others, relay, layout.lengths, state.round, error, weights, energies)
    if not layout.is_finite(change.wanted(now.model)):
        raise Diverged(f"Round {state.round + 1}: {opened.not_finite(layout)}")
    public = published(stages.downlink, layout, now.model, change, now.downlink)
    asked = tuple(opened.orders) if state.keeps else ()
    return Trajectory(state.round, public.model, step, public.state, asked), public.relay, left_out


def _owed(state: ServerState, opened: OpenRound, kept: bool, undone: bool) -> dict[int, tuple[int, ...]]:
    """Who has still to be told of rounds that do not count; whoever answered has been told of those before."""
    gone: dict[int, tuple[int, ...]] = {}
    if undone and state.earlier is not None and state.earlier.round != state.trajectory.round:
        gone = dict.fromkeys(state.trajectory.asked, (state.trajectory.round,))
    if not kept:
        gone |= {client: (*gone.get(client, ()), state.round) for client in opened.orders}
    owed = {client: rounds for client, rounds in state.owed.items() if client not in opened.heard}
    return owed | {client: (*owed.get(client, ()), *rounds)[-MOST_TAKEN_BACK:] for client, rounds in gone.items()}


def smoothed(before: float | None, loss: float, smoothing: float) -> float:
    """The rounds' loss with this round's: an exponential average."""
    return loss if before is None else smoothing * before + (1 - smoothing) * loss


def _mean(losses: Mapping[int, float], p: Mapping[int, float], whole: bool) -> float:
    """The weighted mean in client order. whole: the weights add up to 1 already."""
    weight = total = 0.0
    for client, loss in losses.items():
        weight += p[client]
        total += p[client] * loss
    return total if whole else total / weight


def _levels(opened: OpenRound) -> list[int | None]:
    """The levels of each reply that counts, as the paper's formula counts them; None is float32."""
    planned = opened.planned_levels
    if opened.plan.clients_differ:
        return [one.s for _, one in sorted(opened.heard.items())]
    return [None if planned is None else whole_levels(planned)[0]] * len(opened.heard)


def _counted(state: ServerState, opened: OpenRound, stages: Stages) -> Ledger:
    """The totals with this round's messages. Every client has sent C_s bits (eq. 6), or 32 per element in float32."""
    layout, heard = state.layout, opened.heard.values()
    scales, d = stages.uplink.scales(layout.lengths), layout.dimension
    bits = [32 * d if s is None else paper_bits(d, s, scales) for s in _levels(opened)]
    model = 4 * (d + layout.buffers) + layout.other_bytes  # without its frame's header
    return state.ledger.plus(
        paper_bits=round(sum(bits) / max(len(bits), 1)),  # the mean where s differs
        wire_bytes_up=opened.refused_bytes + sum(len(one.data) for one in heard),
        wire_bytes_down=sum(opened.order_bytes.values()),
        payload_bytes_up=sum(one.payload_bytes for one in heard),
        payload_bytes_down=sum(min(size, model) for size in opened.parcel_bytes.values()),
    )


def _facts(after: ServerState, opened: OpenRound, stages: Stages, round_loss: float | None) -> dict[str, Any]:
    """The columns that every round has."""
    levels, planned = [s for s in _levels(opened) if s is not None], opened.planned_levels
    most = max(levels, default=None if planned is None else whole_levels(planned)[0])
    ledger, formula = asdict(after.ledger), {"bits_per_element": 32 if most is None else bits_per_element(most)}
    if opened.plan.quantized and stages.uplink.kind(opened.plan)[0].name != PAPERS_QUANTIZER:
        del ledger["paper_bits"]  # the formula C_s does not describe what others send
        formula = {}
    return {
        "round": after.round,
        "s": fmean(levels) if opened.plan.clients_differ and levels else planned,
        **formula,
        "lr": opened.eta,
        "round_loss": round_loss,
        **ledger,
        "clients": len(opened.heard),
    }
