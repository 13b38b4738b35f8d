"""The settings of a run: flat, typed, checked, complete enough to repeat it. A preset is a TOML file of these keys."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from ..errors import ConfigError
from ..protocol.cohort import Cohort
from ..protocol.downlink import Exact, Whole
from ..protocol.lossy import Lossy
from ..protocol.stages import Stages
from ..protocol.step import STEPS, ServerStep
from ..rules import Rule, Undo
from ..training.own_files import names_task, settled
from ..training.own_methods import find_method
from ..training.settings import Settings
from .config_checks import OWN, check
from .other_words import no_such_key
from .presets import read_toml

# What `--set` may change when a run is resumed: these do not touch the rounds already done.
RESUMABLE = frozenset({
    "rounds", "target_loss", "workers", "checkpoint_every", "min_clients", "round_timeout", "max_update_norm",
    "norm_action", "tracking", "early_stopping",
})  # fmt: skip


@dataclass(frozen=True)
class Config(Settings):
    """One run. The defaults are the paper's settings for the CNN with i.i.d. data."""

    # What is trained on what: a task of your own, or a data set and a model of ours.
    sampling: str = "uniform"  # or "size": the more data, the more often
    # How long.
    rounds: int = 600
    target_loss: float = 0.0  # stop when the global loss is at or below it; 0: never
    early_stopping: int = 0  # stop after this many evaluations without a lower validation loss; 0: never
    # Local SGD (eq. 2).
    eta_schedule: str = "step"  # or "cosine": down to 0 over all rounds
    eta_decay: float = 1.0  # with "step": eta is multiplied by this ...
    eta_decay_every: int = 100  # ... every this many rounds
    eta_warmup: int = 0  # rounds over which eta rises to its full value
    # How many levels, and when they are chosen anew (eq. 13).
    s0: int = 2
    interval: float = 16.0  # B_0 in units of d bits
    guard: bool = True  # a loss above f(w_0) counts as f(w_0)
    rounding: str = "nearest"  # of the rule's value: "nearest", "up", "down", or "power": 2^b - 1
    loss: str = "full"  # f(w_k): "full" is evaluated at w_k, "round" is the last round's mean mini-batch loss
    scope: str | int = "tensor"  # a norm for each "tensor", for the "whole" update, or a number of elements; "balanced"
    norm: str = ""  # "l2" or "linf"; "": the quantizer's usual one
    sparsity: int = 400  # "stc" keeps one element in this many
    codec: str = "auto"  # the smallest; "fixed" is the paper's. It never changes the model
    loss_smoothing: float = 0.0  # with "round": an exponential average; 0.9: over about ten rounds
    # The other rules.
    error: float = 0.8  # with "auto": the share of its update's energy that a client may send later
    noise: float = 0.25  # with "auto" and a quantizer without error feedback: the noise's share of a round's step
    rule_s0: float = 0.0  # levels at the start of rules that are not the paper's; 0: each rule's own
    s_end: float = 8.0  # levels at the end of "cosine"
    patience: int = 10  # rounds without a lower loss after which "dadaquant" doubles s
    resolution: float = 0.01  # distance of two levels with "fixed-step" and "feddq"
    survey_every: int = 5  # rounds from one survey of "cost-aware" to the next
    repair: float = 40.0  # rounds in which training repairs what noise has done, for "cost-aware"
    harm: float = 0.1  # the most that a round's noise may add to the loss with "cost-aware", as a share of it
    delay: float = 0.5  # with "cost-aware": the share of the rounds so far that updates may arrive late; 0: never late
    undo: float = 5.0  # "cost-aware" takes back a round whose clients saw this many times the usual loss
    undo_always: bool = False  # every rule does so, not only "cost-aware"
    cost: str = "up"  # what "cost-aware" saves: bytes "up", or in "both" directions
    # The downlink.
    downlink: str = ""  # "model"; "exact": what leads to the new one. "late": quantized; with "auto" on your own task
    downlink_s0: int = 32  # levels of "lossy" at the start
    private: bool = False  # clients never get each other's frames, also with downlink = "exact"
    # Clients that fail.
    max_update_norm: float | str = 0.0  # of updates, in l2; "10x": 10 times the round's median; 0: no limit
    norm_action: str = "refuse"  # updates above max_update_norm; "clip": scale them down to it
    # How the server combines the updates.
    step: str = "sum"  # the paper's; "momentum", "nesterov", "adam", "yogi"; "median", "trimmed-mean", "krum": robust
    trim: float = 0.2  # the share of clients that "trimmed-mean" leaves out at each end
    hostile: int = 1  # clients that "krum" leaves out
    server_eta: float = 0.0  # learning rate of "momentum", "nesterov", "adam" and "yogi"; 0: each step's own
    server_momentum: float = 0.9  # of the same steps; the papers' beta_1
    server_beta2: float = 0.99  # of "adam" and "yogi"
    server_epsilon: float = 0.001  # of "adam" and "yogi": the smaller, the more equal the steps of all weights
    # Running it.
    evaluate_every: int = 5
    checkpoint_every: int = 10
    tracking: str = ""  # a tracker that is told each round's numbers: "tensorboard", "mlflow" or "wandb"

    def __post_init__(self) -> None:
        if self.method == "":
            object.__setattr__(self, "method", "auto" if self.task else "adaquant")
        if self.downlink == "":  # float32 and the paper's rule are compared with: nothing else is quantized there
            object.__setattr__(self, "downlink", "late" if self.task and self.method == "auto" else "model")
        if self.quantizer == "" and (entry := find_method(self.method, self.method_sha256)):
            object.__setattr__(self, "quantizer", entry.quantizer)
        check(self)

    def rule(self) -> Rule:
        """The rule that `method` names."""
        entry = find_method(self.method, self.method_sha256)
        assert entry is not None  # it was checked
        rule = entry.build(self)
        return Undo(rule, self.undo) if self.undo_always and not rule.rolls_back else rule

    def server_step(self) -> ServerStep:
        """The server step that `step` names."""
        return STEPS.find(self.step).of_config(self)

    def stages(self, examples: tuple[int, ...] = ()) -> Stages:
        """What a server of this run is put together from. examples: of each client."""
        return Stages.of(
            self.rule(),
            self.kind,
            self.scope,
            self._downlink(),
            self.seed,
            norm=self.norm,
            codec=self.codec,
            sparsity=self.sparsity,
            cohort=Cohort(examples, self.clients_per_round, self.sampling, self.min_clients),
            step=self.server_step(),
            max_update_norm=self.max_update_norm,
            norm_action=self.norm_action,
            loss_smoothing=self.loss_smoothing,
            cost=self.cost,
        )

    def _downlink(self) -> str | Whole:
        if self.downlink == Lossy.name:
            return Lossy(self.downlink_s0, self.interval, self.guard)
        return Exact(private=True) if self.private and self.downlink == Exact.name else self.downlink

    @property
    def feedback(self) -> bool:
        """Whether clients keep what they left out of an update and add it to the next, in all rounds or in some."""
        return self.always_feedback or self.rule().may_be_late

    @property
    def always_feedback(self) -> bool:
        """Whether they do so in all rounds."""
        return self.kind.feedback and self.method != "fp32"

    def learning_rate(self, round: int) -> float:
        """eta_k, for rounds counted from 0."""
        warm = min(1.0, (round + 1) / (self.eta_warmup + 1))
        if self.eta_schedule == "cosine":
            return self.eta * warm * 0.5 * (1 + math.cos(math.pi * round / self.rounds))
        return self.eta * warm * self.eta_decay ** (round // self.eta_decay_every)

    def to_dict(self) -> dict[str, Any]:
        """Every key with its value, in the order above; a task or a data set; digests if there are any."""
        without = {*(OWN if self.task else ("task", "task_sha256"))}
        without |= {key for key in ("method_sha256", "quantizer_sha256") if not getattr(self, key)}
        return {key: value for key, value in asdict(self).items() if value is not None and key not in without}


KEYS = tuple(field.name for field in fields(Config))


def load_config(source: str | Path, overrides: Mapping[str, Any] | None = None) -> Config:
    """A preset by name, a TOML file by path, or a task as FILE.py:FUNCTION, with overrides on top."""
    if names_task(source):
        values = settled({"task": str(source)}, folder="")
    else:
        values = settled(read_toml(source), Path(source).parent)
    for key, value in settled(overrides or {}, folder="").items():
        values[key] = value
    try:
        return config_of(values)
    except ConfigError as error:
        raise ConfigError(f"{source}: {error}") from None


def config_of(values: Mapping[str, Any]) -> Config:
    """The configuration with these keys: the way back from `Config.to_dict`.

    >>> config_of(Config(seed=3).to_dict()) == Config(seed=3)
    True
    """
    for key in values:
        if key not in KEYS:
            raise ConfigError(no_such_key(key, KEYS))
    return Config(**{**dict.fromkeys(OWN if values.get("task") else (), ""), **values})


def parse_override(text: str) -> tuple[str, Any]:
    """`key=value` of --set: the value as TOML, and a bare word as text.

    >>> parse_override("eta=0.05"), parse_override("method=4bit")
    (('eta', 0.05), ('method', '4bit'))
    """
    key, equals, value = text.partition("=")
    key, value = key.strip(), value.strip()
    if not equals or not key or not value:
        raise ConfigError(f"--set {text}: expected KEY=VALUE, such as --set rounds=20.")
    if key not in KEYS:
        raise ConfigError(f"--set {text}: {no_such_key(key, KEYS)}")
    try:
        return key, tomllib.loads(f"v = {value}")["v"]
    except tomllib.TOMLDecodeError:
        return key, value
