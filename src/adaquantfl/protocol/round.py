"""One round as the paper writes it: plan (eq. 13), train and quantize (eq. 2 and 4), add up and step (eq. 3), judge.

Pure functions from a state to the next one. `begin` makes the orders; `end` turns the replies into the new state.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ..errors import Diverged, RuleError
from ..rules import RuleState, Verdict
from . import facts
from .arrays import Model
from .cohort import by_examples
from .collect import OpenRound, what_was_said
from .downlink import Change, Published
from .ledger import Ledger
from .orders import write_orders
from .stages import Stages
from .state import ServerState, Trajectory
from .step import combined, moved
from .updates import Combined


def begin(
    stages: Stages, state: ServerState, clients: Sequence[int] | None, eta: float, loss: float | None
) -> tuple[ServerState, OpenRound]:
    """Choose s, and say what each client is sent. clients: None draws them. loss: f(w_k); None: as before."""
    measured = state.measured if loss is None else loss
    known = stages.usable(state.loss) if measured is None or stages.rule.round_loss else measured
    # s_k = s_0 sqrt(eta_k^2 f(w_0) / (eta_0^2 f(w_k))) at the start of an interval                          (eq. 13)
    rule = stages.rule.plan(
        state.rule,
        bits=state.ledger.paper_bits,
        dimension=state.layout.dimension,
        loss=known,
        eta=eta,
        survey=state.survey,
    )
    if not isinstance(rule, RuleState):
        raise RuleError(
            f"{type(stages.rule).__name__}.plan returned {rule!r}, expected a RuleState: return replace(state, s=...)."
        )
    if rule.later and not (0 < rule.later < 1 and stages.rule.may_be_late):
        raise RuleError(
            f"{type(stages.rule).__name__}.plan returned later = {rule.later!r}. It is a share from 0 to below 1, of "
            "rules that say so with may_be_late = True."
        )
    shares = stages.cohort.draw(stages.seed, state.round) if clients is None else None
    asked = sorted(shares.weights if shares is not None else set(clients or ()))
    gain = stages.downlink.gain(state.trajectory.downlink)
    levels = stages.levels_by_client(rule, asked, state.examples, gain)
    orders = write_orders(stages, state, rule, levels, eta)
    ledger = state.ledger
    if loss is not None and stages.wants_loss(state.rule, ledger.paper_bits):
        ledger = ledger.after_losses(len(stages.cohort.examples) or len(asked))  # each client has sent f_i(w_k)
    opened = OpenRound(eta, known, shares, orders, rule.s, state.log.digest)
    return replace(state, rule=rule, ledger=ledger, measured=measured), opened


def end(
    stages: Stages, state: ServerState, opened: OpenRound, aggregated: Model | None = None
) -> tuple[ServerState, dict[str, Any]]:
    """The state after the round, and what was measured. EngineError where too few clients answered.

    aggregated: the new model where somebody else, such as a framework's own strategy, made it from the replies.
    """
    missing, asked = opened.missing_clients, len(opened.orders)
    examples = stages.examples_limit.capped(opened.told_examples)
    shares = opened.shares or by_examples(examples)
    said = what_was_said(opened, shares)
    lost = opened.diverged and not stages.cohort.enough(len(missing), asked)
    if not lost:  # the losses of too few clients say nothing about the model
        stages.cohort.check(missing, asked, f"Round {state.round + 1}")
    survey = None if lost else facts.priced(said.survey, opened, stages, state.examples)
    judged = stages.rule.judge(state.rule, math.inf if lost else said.loss, survey)
    match judged:
        case (RuleState() as rule, Verdict() as verdict):
            pass
        case _:
            raise RuleError(
                f"{type(stages.rule).__name__}.judge returned {judged!r}, expected a RuleState and a Verdict: "
                "return replace(state, s=...), adaquantfl.Verdict.KEEP."
            )
    if lost and verdict is Verdict.KEEP:
        stages.cohort.check(missing, asked, f"Round {state.round + 1}", Diverged)
    ledger = facts.counted(state.ledger, opened, stages, state.layout)
    # w_{k+1} = w_k + sum of p_i Q(update_i); or w_k; or all that was before w_k                             (eq. 3)
    now, relay, earlier = state.trajectory, None, state.earlier
    made: Combined | Model | None = aggregated
    if verdict is Verdict.KEEP:
        updates = opened.updates(shares, state.layout, now.model, stages.limit)
        if made is None:  # sum of p_i Q(update_i), or what the server step makes of the updates in its place
            made = combined(stages.step, updates)
        if stages.rule.wants_energies(rule, stages.mixing):
            rule = stages.rule.learn(rule, updates.energies())
        published, step = _step(stages, state, opened, made, ledger)
        now = Trajectory(state.round, published.model, step, published.state)
        relay, ledger = published.relay, published.ledger
        earlier = state.trajectory if stages.rule.rolls_back else None
    elif verdict is Verdict.ROLL_BACK and earlier is not None:
        now = earlier
    log = stages.downlink.log(state.log, state.trajectory.model, now.model, relay).sent_to(opened.orders, missing)
    after = replace(
        state,
        round=state.round + 1,
        trajectory=now,
        earlier=earlier,
        rule=rule,
        log=log,
        ledger=ledger,
        loss=state.loss if verdict is Verdict.ROLL_BACK else smoothed(state.loss, said.loss, stages.loss_smoothing),
        survey=None if verdict is Verdict.ROLL_BACK else survey,
        **facts.remembered(state, opened, examples, verdict),
    )
    left_out = made.left_out if isinstance(made, Combined) else ()
    return after, facts.of_round(after, opened, missing, said, verdict, survey, stages, left_out)


def _step(
    stages: Stages, state: ServerState, opened: OpenRound, made: Combined | Model, ledger: Ledger
) -> tuple[Published, dict[str, Any]]:
    """The server step and the downlink: the model that the clients get next. made: by the step, or by somebody else."""
    now = state.trajectory
    if isinstance(made, Combined):
        update, step = moved(stages.step, made, now.step)
        wanted = Model(now.model.weights + update, made.buffers, made.others)
        relay = made.relay if stages.step.is_sum else None
    else:
        update, step, wanted, relay = made.weights - now.model.weights, now.step, made, None
    if not state.layout.is_finite(wanted):
        raise Diverged(f"Round {state.round + 1}: {opened.not_finite}")
    change = Change(update, relay, state.layout.lengths, state.round, stages.seed, opened.loss, opened.eta)
    return stages.downlink.publish(now.model, wanted, change, now.downlink, ledger), step


def smoothed(before: float | None, loss: float, smoothing: float) -> float:
    """The rounds' loss with this round's: an exponential average."""
    return loss if before is None else smoothing * before + (1 - smoothing) * loss
