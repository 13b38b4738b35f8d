"""What each client is told in a round, except for the model: the plan of the rule and the settings of the uplink."""

from __future__ import annotations

from dataclasses import replace

from ..quantizers.streams import stream_key
from ..rules import RuleState
from ..rules.auto import Auto
from .messages import Order
from .stages import Stages
from .state import ServerState


def write_orders(
    stages: Stages, state: ServerState, rule: RuleState, levels: dict[int, float | None], eta: float
) -> dict[int, Order]:
    """An order for each client. levels: the number that each of them has instead of s."""
    uplink, s = stages.uplink.in_round(rule), rule.s
    surveyed = s is not None and stages.rule.wants_survey(rule)
    choice = Auto.name if rule.later else stages.rule.client_choice[0] if stages.rule.client_choice else ""
    common = Order(
        round=state.round,
        s=None,
        eta=eta,
        key=0,
        quantizer=uplink.tag,
        codec=uplink.codec,
        scope="tensor" if uplink.scope == "balanced" else uplink.scope,
        balanced=uplink.balanced(stages.rule.balanced),
        feedback=uplink.feedback and s is not None,
        choice=choice if s is not None else "",
        candidates=stages.rule.candidates(s) if surveyed and s is not None else (),
        noise=stages.cohort.noise(list(levels), state.examples) if surveyed else 1.0,
    )
    return {
        client: replace(
            common,
            s=number,
            key=stream_key(stages.seed, state.round, client),
            taken_back=tuple(round for round in state.asked.get(client, ()) if round in state.taken_back),
        )
        for client, number in levels.items()
    }
