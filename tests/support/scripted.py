"""A rule that rejects the rounds that it is told to."""

from __future__ import annotations

from dataclasses import dataclass

import adaquantfl as aq


@dataclass(frozen=True)
class Scripted(aq.Rule):
    """The same levels in every round."""

    rejected: tuple[int, ...] = ()
    levels: float = 4
    name = "scripted"

    def init(self) -> dict[str, int]:
        return {"round": 0}

    def plan(self, state: dict[str, int], seen: aq.Seen) -> tuple[dict[str, int], aq.Plan]:
        return state, aq.Plan(levels=self.levels)

    def judge(self, state: dict[str, int], report: aq.Report) -> tuple[dict[str, int], aq.Verdict]:
        round = state["round"]
        return {"round": round + 1}, aq.Verdict.REJECT if round in self.rejected else aq.Verdict.KEEP
