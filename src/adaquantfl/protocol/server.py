"""The server: one round is the paper's four steps, and the state that goes from round to round is explicit."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import Any

import numpy as np

from ..quantizers.base import whole_levels
from ..quantizers.segments import scope_segments
from ..rules import Schedule, ScheduleState, Survey
from ..runs.config import Config
from ..runs.link import round_cost, round_seconds
from ..theory import bits_per_element
from .broadcast import broadcast, scales
from .cohort import cohort
from .collect import Collected, collect
from .downlink import Downlink, whole_size
from .ledger import Ledger
from .messages import Engine, Evaluation, Model, Plan, Vector
from .quorum import check_quorum, enough

LOSS_LEVELS = (2.0, 1.0, 0.7, 0.5, 0.4, 0.3, 0.2, 0.15, 0.1, 0.07, 0.05, 0.03, 0.02, 0.01)


@dataclass(frozen=True)
class RunState:
    """Everything a run needs to go on: after `round` rounds, before the next one."""

    round: int
    model: Model
    schedule: ScheduleState
    ledger: Ledger
    initial: Evaluation
    latest: Evaluation  # the last one for the record ...
    latest_round: int  # ... and the round after which it was made
    rule_loss: float  # f(w) when it was last evaluated; always fresh when the schedule asks for it
    round_loss: float | None = None  # of the last round, or smoothed over the last ones
    survey: Survey | None = None  # of the last round, where the rule asked for one
    previous: Model | None = None  # the model before this one, where the rule may take a round back
    downlink: Downlink | None = None  # None: the model itself is sent in every round
    remainder: Vector | None = None  # what the lossy downlink still owes the clients
    downlink_schedule: ScheduleState | None = None
    kept: Mapping[int, Vector] = field(default_factory=dict)  # by clients in this process: `Engine.kept`
    seconds: float = 0.0
    simulated_seconds: float = 0.0
    targets: dict[str, dict[str, int]] = field(default_factory=dict)  # loss level -> what it took


def start(config: Config, engine: Engine) -> RunState:
    """The state before the first round: w_0, f(w_0), nothing sent."""
    began = time.perf_counter()
    model = engine.federation.model
    evaluation = engine.evaluate(model)
    state = RunState(0, model, config.schedule().init(), Ledger(), evaluation, evaluation, 0, evaluation.loss)
    if config.downlink != "model":
        state = replace(state, downlink=Downlink.start(0, model))
    if config.downlink == "lossy":
        state = replace(state, remainder=np.zeros_like(model.weights), downlink_schedule=config.broadcasts().init())
    return replace(state, seconds=time.perf_counter() - began)


def play_round(state: RunState, config: Config, engine: Engine) -> tuple[RunState, dict[str, Any]]:
    """One round. Returns the state after it and what was measured: the line for the history."""
    began = time.perf_counter()
    federation, rule = engine.federation, config.schedule()
    d = federation.dimension
    eta = config.learning_rate(state.round)
    ledger = state.ledger
    if loss_due(state, config, rule):
        ledger = ledger.after_losses(len(federation.samples))

    # s_k = s_0 sqrt(eta_k^2 f(w_0) / (eta_0^2 f(w_k))) at the start of an interval                       (eq. 13)
    loss = state.rule_loss if config.loss == "full" and not rule.round_loss else state.round_loss
    schedule = rule.step(
        state.schedule, bits=state.ledger.paper_bits, dimension=d, loss=loss, eta=eta, survey=state.survey
    )
    plan = Plan(state.round, schedule.s, eta, rule.wants_survey(schedule))
    chosen = cohort(config, federation, state.round)
    parcels = _parcels(state, chosen.clients)
    whole = 4 * (d + len(state.model.buffers))
    payload = sum(min(parcel - Plan.BYTES, whole) for parcel in parcels.values())  # a model without its frame's header
    ledger = ledger.after_model_sent(sum(parcels.values()), payload)

    # Every client runs tau steps from w_k and sends Q(update); the server adds up p_i Q(update_i)      (eq. 2 and 4)
    engine.downlink = state.downlink
    answers = engine.train(state.model, plan, chosen.clients)
    collected = collect(answers, chosen, plan, config, federation, ledger)
    quorum = enough(collected.missing, len(chosen.clients), config)
    survey = _priced(collected, config, parcels) if quorum else None
    lost = collected.diverged and not quorum
    schedule, back = rule.hear(schedule, math.inf if lost else collected.round_loss, survey)
    if not back:
        check_quorum(collected.missing, len(chosen.clients), config, f"Round {state.round + 1}")

    # w_{k+1} = w_k + sum of p_i Q(update_i)                                                               (eq. 3)
    applied = time.perf_counter()
    segments = scope_segments(config.scope, federation.tensors)
    ledger = collected.ledger.after_round(d, collected.levels, 1 if segments is None else len(segments))
    after = replace(
        state, ledger=ledger, round_loss=_smoothed_loss(state, collected, config) if back < 2 else state.round_loss
    )
    after = _take_back(after, back) if back else _apply(after, collected, config, rule, loss, eta)
    after = replace(after, downlink=_held(after.downlink, chosen.clients, collected.missing))
    ended = time.perf_counter()
    aggregate = collected.aggregate_seconds + ended - applied
    simulated = state.simulated_seconds
    if config.link is not None:
        simulated += aggregate + round_seconds(config.link, config.seed, collected.heard, parcels)

    line: dict[str, Any] = {
        "round": state.round + 1,
        "s": _mean_levels(collected.levels) if rule.clients_choose else plan.s,
        "bits_per_element": _bits(collected.levels, plan),
        "lr": eta,
        "round_loss": collected.round_loss if collected.heard else None,
        **({"undone": True} if back else {}),
        **({"harm": survey.harm / survey.loss} if survey and survey.loss > 0 else {}),
        **vars(after.ledger),
        "clients": len(collected.heard),
        **({"missing": collected.missing} if collected.missing else {}),
        **({"simulated_seconds": simulated} if config.link is not None else {}),
        "seconds": {
            "round": ended - began,
            "train": collected.train_seconds,
            "encode": collected.encode_seconds,
            "aggregate": aggregate,
        },
    }
    after = replace(
        after,
        round=state.round + 1,
        schedule=schedule,
        survey=survey if back < 2 else None,
        seconds=state.seconds + ended - began,
        simulated_seconds=simulated,
    )
    return after, line


def _parcels(state: RunState, clients: Sequence[int]) -> dict[int, int]:
    """The bytes that each client is sent: the plan, and what leads from the model that it holds to this one."""
    if state.downlink is None:
        return dict.fromkeys(clients, Plan.BYTES + whole_size(state.model))
    way = state.downlink
    return {client: Plan.BYTES + way.size(way.holds.get(client), state.model) for client in clients}


def _take_back(state: RunState, rounds: int) -> RunState:
    """The model of one or two rounds ago again: the noise of those since would ruin the training, or has."""
    model = state.previous if rounds == 2 and state.previous is not None else state.model
    way = state.downlink and state.downlink.after_round(state.model, model, None)
    return replace(state, model=model, downlink=way)


def _smoothed_loss(state: RunState, collected: Collected, config: Config) -> float:
    """The mean mini-batch loss that the round's clients saw, smoothed over the rounds before."""
    smoothing = 0.0 if state.round_loss is None else config.loss_smoothing
    return smoothing * (state.round_loss or 0.0) + (1 - smoothing) * collected.round_loss


def _apply(
    state: RunState, collected: Collected, config: Config, rule: Schedule, loss: float | None, eta: float
) -> RunState:
    """The new model, and what leads to it."""
    state = replace(state, previous=state.model if rule.undoes else None)
    update, relay, ledger, d = collected.update, collected.relay, state.ledger, len(collected.update)
    if state.remainder is None or state.downlink_schedule is None:
        model = Model(state.model.weights + update, collected.buffers)
    else:
        way_down = config.broadcasts()
        chosen = way_down.step(state.downlink_schedule, bits=ledger.paper_bits_down, dimension=d, loss=loss, eta=eta)
        assert chosen.s is not None
        s, wanted = int(chosen.s), update + state.remainder
        weights, remainder, relay = broadcast(state.model.weights, wanted, s, config.seed, state.round)
        model = Model(weights, collected.buffers)
        ledger = ledger.after_broadcast(d, s, scales(d))
        state = replace(state, remainder=remainder, downlink_schedule=chosen, ledger=ledger)
    way = state.downlink and state.downlink.after_round(state.model, model, relay)
    return replace(state, model=model, downlink=way)


def _priced(collected: Collected, config: Config, parcels: Mapping[int, int]) -> Survey | None:
    """The round's survey with what a client's round would have cost, all in all, in place of a frame's bytes."""
    if collected.survey is None:
        return None
    rest = fmean(one.bytes_up for one in collected.heard) - fmean(collected.frame_bytes)  # buffers, loss, survey
    down = fmean(parcels.values())
    costs = tuple(round_cost(config, size + rest, down, collected.heard) for size in collected.survey.costs)
    return replace(collected.survey, costs=costs)


def _bits(levels: Sequence[int | None], plan: Plan) -> int:
    """Of an element in the paper's code, for the client with the most levels."""
    return 32 if plan.s is None else bits_per_element(max((s for s in levels if s), default=whole_levels(plan.s)[0]))


def _mean_levels(levels: Sequence[int | None]) -> float:
    return fmean(s for s in levels if s is not None)


def _held(way: Downlink | None, clients: Sequence[int], missing: Mapping[int, str]) -> Downlink | None:
    """Who was asked holds the model that the round began with; of who is missing nothing is known."""
    return way and way.sent_to(clients, missing)


def evaluation_due(state: RunState, config: Config) -> bool:
    """Whether loss and accuracy are wanted now: for the figures, or because this is the end."""
    return state.round % config.evaluate_every == 0 or state.round >= config.rounds


def loss_due(state: RunState, config: Config, rule: Schedule) -> bool:
    """Whether the rule needs f(w) for its next choice."""
    if config.loss != "full" or rule.round_loss:
        return False
    return rule.wants_loss(state.schedule, state.ledger.paper_bits)


def evaluate(state: RunState, line: dict[str, Any], config: Config, engine: Engine) -> tuple[RunState, dict[str, Any]]:
    """Evaluate the model if it is time to, and note the loss levels that it reaches for the first time.

    Levels count on the rounds that every method evaluates. What the rule alone asks for is written down as rule_loss:
    looking more often would make AdaQuantFL seem to arrive earlier than methods that do not ask.
    """
    began = time.perf_counter()
    engine.downlink = state.downlink  # the model goes the same way down as for a round, which then need not send it
    if evaluation_due(state, config):
        evaluation = engine.evaluate(state.model)
        state = replace(
            state,
            latest=evaluation,
            latest_round=state.round,
            rule_loss=evaluation.loss,
            targets=_reached(state, evaluation, config),
        )
        line = {**line, "loss": evaluation.loss, **evaluation.test}
    elif loss_due(state, config, config.schedule()):
        state = replace(state, rule_loss=engine.evaluate(state.model, test=False).loss)
        line = {**line, "rule_loss": state.rule_loss}
    else:
        return state, line
    took = time.perf_counter() - began
    return replace(state, seconds=state.seconds + took), {**line, "seconds": {**line["seconds"], "evaluate": took}}


def _reached(state: RunState, evaluation: Evaluation, config: Config) -> dict[str, dict[str, int]]:
    targets = dict(state.targets)
    for level in sorted({*LOSS_LEVELS, config.target_loss} - {0.0}, reverse=True):
        if evaluation.loss <= level and f"{level:g}" not in targets:
            targets[f"{level:g}"] = {
                "round": state.round,
                "paper_bits": state.ledger.paper_bits,
                "wire_bytes_up": state.ledger.wire_bytes_up,
                "wire_bytes_down": state.ledger.wire_bytes_down,
            }
    return targets


def finished(state: RunState, config: Config) -> bool:
    """Whether the budget of rounds is used up or the target is reached."""
    return state.round >= config.rounds or (
        config.target_loss > 0 and state.latest_round > 0 and state.latest.loss <= config.target_loss
    )
