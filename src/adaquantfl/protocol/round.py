"""One round as the paper writes it: plan (eq. 13), train and quantize (eq. 2 and 4), add up and step (eq. 3), judge.

Pure functions from a state to the next one. `begin` makes the orders; `end` turns the replies into the new state.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ..errors import Diverged, called
from ..quantizers.streams import stream_key
from ..rules import Energies, Need, Plan, Report, Verdict
from ..rules.checks import judged
from ..rules.watch import relaxed, watched
from . import facts
from .arrays import Model
from .cohort import by_examples
from .collect import OpenRound, what_was_said
from .downlink import Change, Published, published
from .ledger import Ledger
from .messages import Order
from .stages import Stages
from .state import ServerState, Trajectory
from .step import combined, moved
from .updates import Combined


def begin(
    stages: Stages, state: ServerState, clients: Sequence[int] | None, eta: float, loss: float | None
) -> tuple[ServerState, OpenRound]:
    """Plan the round, and say what each client is asked. clients: None draws them. loss: f(w_k); None: as before."""
    measured = state.measured if loss is None else loss
    by_rounds = measured is None or Need.ROUND_LOSS in stages.rule.needs
    known = stages.usable(state.loss) if by_rounds else measured
    shares = stages.cohort.shares(stages.seed, state.round, clients)
    asked = sorted(set(clients or ()) if shares is None else shares.weights)
    # s_k = s_0 sqrt(eta_k^2 f(w_0) / (eta_0^2 f(w_k))) at the start of an interval                          (eq. 13)
    rule, plan = stages.plan(
        state.rule,
        asked,
        state.examples,
        bits=state.ledger.paper_bits,
        dimension=state.layout.dimension,
        loss=known,
        eta=eta,
        motion=called(stages.downlink_words, stages.downlink.motion, state.trajectory.downlink),
    )
    caution = state.watch["caution"]
    orders = _orders(stages, state, plan, asked, eta, caution)
    ledger = state.ledger
    if loss is not None and wants_loss(stages, state):
        ledger = ledger.after_losses(len(stages.cohort.examples) or len(asked))  # each client has sent f_i(w_k)
    watch = {**state.watch, "caution": relaxed(caution)}
    opened = OpenRound(eta, plan, caution, shares, orders, state.log.digest)
    after = replace(state, rule=rule, ledger=ledger, measured=measured, loss_due=plan.loss_due, watch=watch)
    return after, opened


def wants_loss(stages: Stages, state: ServerState) -> bool:
    """Whether the next plan needs a new f(w_k)."""
    return Need.LOSS in stages.rule.needs and state.ledger.paper_bits >= state.loss_due


def _orders(
    stages: Stages, state: ServerState, plan: Plan, clients: Sequence[int], eta: float, caution: float
) -> dict[int, Order]:
    """What each client is told, except for the model."""
    uplink, orders = stages.uplink.order(plan), {}
    for client in clients:
        number, target = stages.uplink.target(plan, client, caution)
        orders[client] = Order(
            round=state.round,
            s=number,
            eta=eta,
            key=stream_key(stages.seed, state.round, client),
            target=target,
            taken_back=tuple(round for round in state.asked.get(client, ()) if round in state.taken_back),
            **uplink,
        )
    return orders


def end(
    stages: Stages, state: ServerState, opened: OpenRound, aggregated: Model | None = None
) -> tuple[ServerState, dict[str, Any]]:
    """The state after the round, and what was measured. EngineError where too few clients answered.

    aggregated: the new model where somebody else, such as a framework's own strategy, made it from the replies.
    """
    missing, asked = opened.missing_clients, len(opened.orders)
    examples = stages.examples_limit.capped(opened.told_examples)
    shares = opened.shares or by_examples(examples)
    said = what_was_said(opened, shares, stages.negative_loss)
    lost = opened.diverged and not stages.cohort.enough(len(missing), asked)
    if not lost:  # the losses of too few clients say nothing about the model
        stages.cohort.check(missing, asked, f"Round {state.round + 1}")
    now, relay, earlier = state.trajectory, None, state.earlier
    updates = opened.updates(shares, state.layout, now.model, stages.limit)
    energies = updates.energies() if stages.wants_energies(opened.plan, opened.orders) and not lost else None
    report = Report(math.inf if lost else said.rule_loss, energies)
    watch, undone = watched(state.watch, report.loss, stages.undo) if stages.undo else (state.watch, False)
    rule, verdict = (state.rule, Verdict.ROLL_BACK) if undone else judged(stages.rule, state.rule, report)
    if lost and verdict is Verdict.KEEP:
        stages.cohort.check(missing, asked, f"Round {state.round + 1}", Diverged)
    ledger = facts.counted(state.ledger, opened, stages, state.layout)
    # w_{k+1} = w_k + sum of p_i Q(update_i); or w_k; or all that was before w_k                             (eq. 3)
    made: Combined | Model | None = aggregated
    if verdict is Verdict.KEEP:
        if made is None:  # sum of p_i Q(update_i), or what the server step makes of the updates in its place
            made = combined(stages.step, updates)
        del updates  # of thousands of clients
        published, step = _step(stages, state, opened, made, ledger, energies)
        now = Trajectory(state.round, published.model, step, published.state)
        relay, ledger = published.relay, published.ledger
        earlier = state.trajectory if stages.rolls_back else None
    elif verdict is Verdict.ROLL_BACK and earlier is not None:
        now = earlier
    loss = smoothed(state.loss, said.rule_loss, stages.loss_smoothing)
    log = called(stages.downlink_words, stages.downlink.log, state.log, state.trajectory.model, now.model, relay)
    log = log.sent_to(opened.orders, missing)
    after = replace(
        state,
        round=state.round + 1,
        trajectory=now,
        earlier=earlier,
        rule=rule,
        watch=watch,
        log=log,
        ledger=ledger,
        loss=state.loss if verdict is Verdict.ROLL_BACK else loss,
        **facts.remembered(state, opened, examples, verdict),
    )
    left_out = made.left_out if isinstance(made, Combined) else ()
    return after, facts.of_round(after, opened, missing, said, verdict, stages, left_out)


def _step(
    stages: Stages,
    state: ServerState,
    opened: OpenRound,
    made: Combined | Model,
    ledger: Ledger,
    energies: Energies | None,
) -> tuple[Published, dict[str, Any]]:
    """The server step and the downlink: the model that the clients get next. made: by the step, or by somebody else."""
    now, relay, weights = state.trajectory, None, None
    if isinstance(made, Model):
        update, step, weights = made.weights - now.model.weights, now.step, made.weights
    else:
        update, step = moved(stages.step, made, now.step)
        if stages.step.is_sum:
            relay = made.relay
        else:
            update = update.copy()  # the step may keep it
    error = opened.plan.downlink_error
    change = Change(
        update, made.buffers, made.others, relay, state.layout.lengths, state.round, error, weights, energies
    )
    if not state.layout.is_finite(change.wanted(now.model)):
        raise Diverged(f"Round {state.round + 1}: {opened.not_finite(state.layout)}")
    return published(stages.downlink, state.layout, now.model, change, now.downlink, ledger), step


def smoothed(before: float | None, loss: float, smoothing: float) -> float:
    """The rounds' loss with this round's: an exponential average."""
    return loss if before is None else smoothing * before + (1 - smoothing) * loss
