"""Who is compared. A method with something to tune has four settings, tried on a task that is not judged."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from adaquantfl.bench.loop import Line, engine_rounds
from adaquantfl.bench.tasks import MORE_ROUNDS, BenchTask
from adaquantfl.runs.config import Config, load_config
from evidence.studies.floor import decomfl, loop, rivals
from evidence.studies.floor.klms import klms
from evidence.studies.floor.powersgd import powersgd
from evidence.studies.floor.shifts import diana, ef21


@dataclass(frozen=True)
class Setting:
    """One way to run a method.

    Attributes:
        keys: of a configuration, for the package's own rounds.
        rival: what the clients send, for the short loop.
        batches: another number draws other mini-batches in the short loop.
        own: the rounds of a method that trains in a way of its own.
    """

    label: str
    keys: dict[str, Any] = field(default_factory=dict)
    rival: loop.MakeRival | None = None
    batches: int = 0
    own: Callable[[Config], Iterator[Line]] | None = None

    def config(self, task: BenchTask, seed: int, rounds: int) -> Config:
        """Of a run; patience is a tenth of float32's rounds, as DAdaQuant's authors have it."""
        plain = self.rival is not None or self.own is not None
        keys = {"rule": "fp32"} if plain else {"rule": "fp32", "downlink": "exact", **self.keys}
        own: dict[str, Any] = {"seed": seed, "rounds": rounds}
        if keys["rule"] == "dadaquant":
            own["rule.patience"] = max(1, task.rounds // 10)
        return load_config(task.source, {**task.settings, **keys, **own})

    def rounds(self, config: Config) -> Iterator[Line]:
        if self.own is not None:
            return self.own(config)
        if self.rival is None:
            return engine_rounds(config)
        return loop.rival_rounds(config, self.rival, self.batches)


FLOAT32, OURS, CONSTANT, DECOMFL = "float32", "auto", "constant s, centroid", "DeComFL"
CENTROID = {"quantizer": "centroid", "scope": "balanced"}


def _rules(values: tuple[float, ...], keys: dict[str, Any]) -> tuple[Setting, ...]:
    return tuple(Setting(f"s0 = {value:g}", {**keys, "rule.s0": value}) for value in values)


METHODS: dict[str, tuple[Setting, ...]] = {
    FLOAT32: (Setting("", rival=rivals.frames(rivals.float32)),),
    OURS: (Setting("nothing set", {"rule": "auto", "downlink": ""}),),  # "": the rule's own
    CONSTANT: tuple(Setting(f"s0 = {s:g}", {"rule": "fixed", **CENTROID, "rule.s": s}) for s in (0.25, 0.5, 1.0, 2.0)),
    "AdaQuantFL": _rules((1, 2, 4, 8), {"rule": "adaquant", "rule.rounding": "power"}),
    # The same paper bits with fewer levels, so fewer bytes per round on this wire.
    "AdaQuantFL (nearest)": _rules((1, 2, 4, 8), {"rule": "adaquant", "rule.rounding": "nearest"}),
    "DAdaQuant": _rules((1, 2, 4, 8), {"rule": "dadaquant"}),
    "FedPAQ": tuple(Setting(f"s = {s}", rival=rivals.frames(rivals.fedpaq(s))) for s in (1, 3, 15, 255)),
    "int8": (Setting("", rival=rivals.frames(rivals.int8)),),
    "EDEN": tuple(Setting(f"{bits} bit", rival=rivals.frames(rivals.eden(bits))) for bits in (1, 2, 3, 4)),
    "FedFQ": tuple(Setting(f"{bits:g} bit", rival=rivals.frames(rivals.fedfq(bits))) for bits in (0.25, 0.5, 1, 2)),
    "top-k, error feedback": tuple(
        Setting(f"{share:.1%}", rival=rivals.frames(rivals.top_k(share), kept=1.0))
        for share in (0.001, 0.003, 0.01, 0.03)
    ),
    "SparseLoCo": tuple(
        Setting(f"outer step {eta:g}", rival=rivals.frames(rivals.sparseloco, kept=0.95, eta=eta))
        for eta in (0.5, 1.0, 1.5, 2.0)
    ),
    "PowerSGD": tuple(Setting(f"rank {rank}", rival=powersgd(rank)) for rank in (1, 2, 3, 4)),
    "EF21": tuple(Setting(f"{share:.1%}", rival=ef21(share)) for share in (0.003, 0.01, 0.03, 0.1)),
    "DIANA": tuple(Setting(f"s = {s}", rival=diana(s)) for s in (1, 4, 16, 64)),
    "KLMS": tuple(Setting(f"s = {s}", rival=klms(s)) for s in (1, 2, 4, 8)),
    DECOMFL: tuple(Setting(f"eta = {eta:g}", own=decomfl.decomfl(eta)) for eta in (0.003, 0.01, 0.03, 0.1)),
}
EVERY_CLIENT = ("EF21", "DIANA", DECOMFL)  # as their papers have them, all clients take part in every round


def rounds_of(method: str, task: BenchTask) -> int:
    """Return how many rounds a method gets: float32's and 20 % more, or 20 times as many with DeComFL."""
    if method == DECOMFL:
        return decomfl.MORE_ROUNDS * task.rounds
    return task.rounds if method == FLOAT32 else round(MORE_ROUNDS * task.rounds)


def takes_part(method: str, task: BenchTask) -> bool:
    """Return whether a method can be run on a task."""
    return method not in EVERY_CLIENT or not task.settings.get("clients_per_round")
