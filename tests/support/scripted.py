"""A rule whose verdicts are given."""

from __future__ import annotations

from dataclasses import dataclass

import adaquantfl as aq


@dataclass(frozen=True)
class Scripted(aq.Rule):
    """The same levels in every round, and the verdicts of a script; after its end every round is kept."""

    verdicts: tuple[aq.Verdict | int, ...] = ()
    levels: float = 4
    name = "scripted"
    needs = frozenset({aq.Need.EARLIER})

    def __post_init__(self) -> None:
        numbers = tuple(one.value if isinstance(one, aq.Verdict) else one for one in self.verdicts)
        object.__setattr__(self, "verdicts", numbers)  # a state can hold numbers

    def init(self) -> dict[str, int]:
        return {"rounds": 0}

    def plan(self, state: dict[str, int], seen: aq.Seen) -> tuple[dict[str, int], aq.Plan]:
        return state, aq.Plan(levels=self.levels)

    def judge(self, state: dict[str, int], report: aq.Report) -> tuple[dict[str, int], aq.Verdict]:
        done = state["rounds"]
        return {"rounds": done + 1}, aq.Verdict(self.verdicts[done] if done < len(self.verdicts) else 0)
