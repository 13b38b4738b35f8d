"""The settings of a run: flat, typed, checked, complete enough to repeat it. A preset is a TOML file of these keys."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from ..errors import ConfigError, FrameError, QuantizeError, RuleError
from ..names import unknown
from ..protocol.cohort import Cohort
from ..protocol.downlink import DOWNLINKS, Exact, Whole
from ..protocol.limits import NormLimit
from ..protocol.lossy import Late, Lossy
from ..protocol.stages import Price, Stages
from ..protocol.step import STEPS, ServerStep
from ..quantizers.registry import find
from ..rules import ROUNDINGS, Rule
from ..rules.registry import RULES, methods
from .presets import read_toml
from .task_file import names_task, settled

TRACKERS = ("", "tensorboard", "mlflow", "wandb")

# What `--set` may change when a run is resumed: these do not touch the rounds already done.
RESUMABLE = frozenset({
    "rounds", "target_loss", "workers", "checkpoint_every", "min_clients", "round_timeout", "max_update_norm",
    "norm_action", "tracking",
})  # fmt: skip


@dataclass(frozen=True)
class Link:
    """The clients' network, to turn bytes into time; the run itself does not depend on it."""

    up_mbps: float = 10.0
    down_mbps: float = 50.0
    latency_ms: float = 20.0  # one way
    variation: float = 0.0  # deviation of the logarithm of each client's speeds; 0.5: one in six is 1.6x slower
    compute_seconds: float = 0.0  # a client's round; 0: as measured here

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            _check_type(f"link.{field.name}", value, "float")
            if value < 0 or (value == 0 and field.name.endswith("mbps")):
                raise ConfigError(f"link.{field.name} = {value}: it must be above 0.")


@dataclass(frozen=True)
class Config:
    """One run. The defaults are the paper's settings for the CNN with i.i.d. data."""

    # What is trained on what: a task of your own, or a data set and a model of ours.
    task: str = ""  # FILE.py:FUNCTION
    task_sha256: str = ""  # of the file, written down when a run starts
    dataset: str = "fashion-mnist"
    model: str = "cnn"
    partition: str = "iid"  # "iid", "sorted" (the paper's non-i.i.d.) or "dirichlet(alpha)"
    clients: int = 8
    clients_per_round: int = 0  # a seeded sample of this size takes part in each round; 0: all
    sampling: str = "uniform"  # or "size": the more data, the more often
    # How long.
    rounds: int = 600
    target_loss: float = 0.0  # stop when the global loss is at or below it; 0: never
    # Local SGD (eq. 2).
    tau: int = 10
    eta: float = 0.1
    eta_decay: float = 1.0  # eta is multiplied by this ...
    eta_decay_every: int = 100  # ... every this many rounds
    batch_size: int = 64
    # How many levels, and when they are chosen anew (eq. 13).
    method: str = ""  # "adaquant", the paper's; for a task of your own "auto". `adaquantfl methods` lists others
    s0: int = 2
    interval: float = 16.0  # B_0 in units of d bits
    guard: bool = True  # a loss above f(w_0) counts as f(w_0)
    rounding: str = "nearest"  # of the rule's value: "nearest", "up", "down", or "power": 2^b - 1
    loss: str = "full"  # f(w_k): "full" is evaluated at w_k, "round" is the last round's mean mini-batch loss
    loss_samples: int = 1024  # a client's samples in "full"; 0: all
    scope: str | int = "tensor"  # a norm for each "tensor", for the "whole" update, or a number of elements; "balanced"
    quantizer: str = ""  # the rule's usual one: "fitted" for "auto", the paper's "uniform" for the others
    norm: str = ""  # "l2" or "linf"; "": the quantizer's usual one
    sparsity: int = 400  # "stc" keeps one element in this many
    codec: str = "auto"  # the smallest; "fixed" is the paper's. It never changes the model
    loss_smoothing: float = 0.0  # with "round": an exponential average; 0.9: over about ten rounds
    # The other rules.
    error: float = 0.7  # with "auto": the share of its update's energy that a client may send later
    noise: float = 0.25  # with "auto" and a quantizer without error feedback: the noise's share of a round's step
    rule_s0: float = 0.0  # levels at the start of rules that are not the paper's; 0: each rule's own
    s_end: float = 8.0  # levels at the end of "cosine"
    patience: int = 10  # rounds without a lower loss after which "dadaquant" doubles s
    resolution: float = 0.01  # distance of two levels with "fixed-step" and "feddq"
    survey_every: int = 5  # rounds from one survey of "cost-aware" to the next
    harm: float = 0.03  # the share of the loss that a round's noise may add to it with "cost-aware"
    brake: float = 1.3  # "cost-aware" doubles s when the loss rises to this many times its lowest
    undo: float = 5.0  # "cost-aware" takes back a round whose clients saw this many times the usual loss
    cost: str = "up"  # what "cost-aware" saves: bytes "up", in "both" directions, or "time" on the [link]
    # The downlink.
    downlink: str = ""  # "model"; "exact": what leads to the new one. "late": quantized; with "auto" on your own task
    downlink_s0: int = 32  # levels of "lossy" at the start
    private: bool = False  # clients never get each other's frames, also with downlink = "exact"
    # Clients that fail.
    min_clients: int = 0  # a round counts with at least this many answers; 0: all clients
    round_timeout: float = 600.0  # seconds that a client may take
    max_update_norm: float | str = 0.0  # of updates, in l2; "10x": 10 times the round's median; 0: no limit
    norm_action: str = "refuse"  # updates above max_update_norm; "clip": scale them down to it
    # How the server combines the updates.
    step: str = "sum"  # the paper's; "median", "trimmed-mean" and "krum" survive some hostile clients
    trim: float = 0.2  # the share of clients that "trimmed-mean" leaves out at each end
    hostile: int = 1  # clients that "krum" leaves out
    # Running it.
    seed: int = 0
    precision: str = "fp32"  # or "bf16": autocast
    workers: int = 0  # processes; 0: one a core. The result does not depend on it
    evaluate_every: int = 5
    checkpoint_every: int = 10
    tracking: str = ""  # a tracker that is told each round's numbers: "tensorboard", "mlflow" or "wandb"
    link: Link | None = None  # the section [link]: simulated time

    def __post_init__(self) -> None:
        if self.method == "":
            object.__setattr__(self, "method", "auto" if self.task else "adaquant")
        if self.downlink == "":  # float32 and the paper's rule are compared with: nothing else is quantized there
            object.__setattr__(self, "downlink", "late" if self.task and self.method == "auto" else "model")
        if self.quantizer == "" and self.method in methods():
            object.__setattr__(self, "quantizer", methods()[self.method].quantizer)
        for field in fields(self):
            if field.name != "link":
                _check_type(field.name, getattr(self, field.name), str(field.type))
        if given := [key for key in OWN if self.task and getattr(self, key)]:
            raise ConfigError(
                f"{given[0]} = {getattr(self, given[0])!r} does not go with task = {self.task!r}, which has data and a "
                f"model of its own: leave {', '.join(given)} away."
            )
        for key, least in _AT_LEAST.items():
            if getattr(self, key) < least:
                raise ConfigError(f"{key} = {getattr(self, key)}: it must be at least {least}.")
        for key in ("eta", "eta_decay", "interval", "round_timeout"):
            if not getattr(self, key) > 0:
                raise ConfigError(f"{key} = {getattr(self, key)}: it must be above 0.")
        for key, valid in _CHOICES.items():
            if getattr(self, key) not in valid:
                raise ConfigError(unknown(key, getattr(self, key), filter(None, valid)))
        if self.method not in methods():
            raise ConfigError(_no_method(self.method))
        if self.private and DOWNLINKS.find(self.downlink) not in (Whole, Exact, Lossy, Late):
            raise ConfigError(
                f"private = true does not go with downlink = {self.downlink!r}, of which it is not known whether it "
                "sends clients each other's frames: use 'exact', 'model', 'lossy' or 'late'."
            )
        DOWNLINKS.find(self.downlink)
        if self.seed >= 2**63:
            raise ConfigError(f"seed = {self.seed}: it must be below 2^63.")
        if self.min_clients > self.clients:
            raise ConfigError(f"min_clients = {self.min_clients}, but there are only {self.clients} clients.")
        if self.clients_per_round > self.clients:
            raise ConfigError(
                f"clients_per_round = {self.clients_per_round}, but there are only {self.clients} clients."
            )
        if self.clients_per_round and self.loss == "full" and self.method in ("adaquant", "cost-aware"):
            raise ConfigError(
                "loss = 'full' asks every client for its loss, but with clients_per_round only a sample answers: "
                "set loss = 'round', and loss_smoothing = 0.9 to even it out."
            )
        if not self.loss_smoothing < 1:
            raise ConfigError(f"loss_smoothing = {self.loss_smoothing}: it must be at least 0 and below 1.")
        NormLimit.of(self.max_update_norm, self.norm_action)
        self.server_step()
        if isinstance(self.scope, str) and self.scope not in ("tensor", "balanced", "whole"):
            raise ConfigError(
                f"scope = {self.scope!r}: use 'tensor', 'balanced', 'whole', or a number: the elements of a bucket."
            )
        if isinstance(self.scope, int) and self.scope < 1:
            raise ConfigError(f"scope = {self.scope}: a bucket has at least 1 element.")
        self._check_quantizer()
        try:
            self.rule()  # its own checks
        except RuleError as error:
            raise ConfigError(str(error)) from None

    def _check_quantizer(self) -> None:
        from ..codecs.registry import find as find_codec  # with it come the kernels

        try:
            kind = find(self.quantizer)
            kind.norm(self.norm or None)
            find_codec(self.codec)
        except (QuantizeError, FrameError) as error:
            raise ConfigError(str(error)) from None
        if self.scope == "balanced" and not kind.takes_balanced:
            raise ConfigError(f"scope = 'balanced' does not go with quantizer = {kind.name!r}: use 'tensor'.")
        if not kind.follows_rule and self.method not in ("1bit", "fp32"):
            raise ConfigError(
                f"quantizer = {kind.name!r} has no levels that a rule could choose: use it with method = '1bit'."
            )
        if self.method == "cost-aware" and not kind.unbiased:
            raise ConfigError(
                f"quantizer = {kind.name!r} does not go with method = 'cost-aware', which measures noise that averages "
                "out over the clients: choose one that is unbiased."
            )
        if self.method == "feddq" and self.norm != "linf":
            raise ConfigError("method = 'feddq' measures an update by its largest element: set norm = 'linf'.")

    def rule(self) -> Rule:
        """The rule that `method` names."""
        return methods()[self.method].build(self)

    def server_step(self) -> ServerStep:
        """The server step that `step` names."""
        return STEPS.find(self.step).of_config(self)

    def stages(self, examples: tuple[int, ...] = (), time_price: Price | None = None) -> Stages:
        """What a server of this run is put together from. examples: of each client. time_price: for cost = "time"."""
        return Stages.of(
            self.rule(),
            self.quantizer,
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
            cost=time_price if self.cost == "time" and time_price is not None else self.cost,
        )

    def _downlink(self) -> str | Whole:
        if self.downlink == Lossy.name:
            return Lossy(self.downlink_s0, self.interval, self.guard)
        return Exact(private=True) if self.private and self.downlink == Exact.name else self.downlink

    @property
    def feedback(self) -> bool:
        """Whether clients keep what they left out of an update and add it to the next."""
        return find(self.quantizer).feedback and self.method != "fp32"

    def learning_rate(self, round: int) -> float:
        """eta_k, for rounds counted from 0."""
        return self.eta * self.eta_decay ** (round // self.eta_decay_every)

    def to_dict(self) -> dict[str, Any]:
        """Every key with its value, in the order above; [link] where there is one, and a task or a data set."""
        without = OWN if self.task else ("task", "task_sha256")
        return {key: value for key, value in asdict(self).items() if value is not None and key not in without}


KEYS = tuple(field.name for field in fields(Config))
OWN = ("dataset", "model", "partition")  # what a task of one's own takes the place of
LINK_KEYS = tuple(field.name for field in fields(Link))
_AT_LEAST = {
    "clients": 1, "rounds": 1, "target_loss": 0, "tau": 1, "eta_decay_every": 1, "batch_size": 1, "s0": 1,
    "loss_samples": 0, "loss_smoothing": 0, "seed": 0, "min_clients": 0, "clients_per_round": 0, "downlink_s0": 1,
    "sparsity": 1, "workers": 0, "evaluate_every": 1, "checkpoint_every": 1,
}  # fmt: skip
_CHOICES = {
    "rounding": tuple(ROUNDINGS), "loss": ("full", "round"),
    "cost": ("up", "both", "time"), "precision": ("fp32", "bf16"), "sampling": ("uniform", "size"),
    "tracking": TRACKERS,
}  # fmt: skip
_KINDS = {"int": "a whole number", "float": "a number", "str": "text in quotes", "bool": "true or false"}


def _no_method(name: str) -> str:
    if name == "adaquant-smooth":
        return "'adaquant-smooth' is method = 'adaquant' with loss = 'round' and loss_smoothing = 0.9: set those."
    found = methods()  # loads the rules of other packages
    return RULES.broken(name) or unknown("method", name, found)


def load_config(source: str | Path, overrides: Mapping[str, Any] | None = None) -> Config:
    """A preset by name, a TOML file by path, or a task as FILE.py:FUNCTION, with overrides on top."""
    if names_task(source):
        values = settled({"task": str(source)}, folder="")
    else:
        values = settled(read_toml(source), Path(source).parent)
    for key, value in settled(overrides or {}, folder="").items():
        section, dot, inner = key.partition(".")
        if dot and not isinstance(values.setdefault(section, {}), dict):
            raise ConfigError(f"{source}: {section} = {values[section]!r}, but it is a section: [{section}].")
        (values[section] if dot else values)[inner or key] = value
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
            raise ConfigError(unknown("key", key, KEYS))
    complete: dict[str, Any] = {key: _link(value) if key == "link" else value for key, value in values.items()}
    return Config(**{**dict.fromkeys(OWN if complete.get("task") else (), ""), **complete})


def _link(section: Any) -> Link:
    if not isinstance(section, Mapping):
        raise ConfigError(f"link = {section!r}, but it is a section: [link] with {', '.join(LINK_KEYS)}.")
    for key in section:
        if key not in LINK_KEYS:
            raise ConfigError(unknown("key of [link]", key, LINK_KEYS))
    return Link(**section)


def parse_override(text: str) -> tuple[str, Any]:
    """`key=value` of --set: the value as TOML, and a bare word as text.

    >>> parse_override("eta=0.05"), parse_override("method=4bit")
    (('eta', 0.05), ('method', '4bit'))
    """
    key, equals, value = text.partition("=")
    key, value = key.strip(), value.strip()
    if not equals or not key or not value:
        raise ConfigError(f"--set {text}: expected key=value, such as --set rounds=20.")
    valid = (*KEYS, *(f"link.{name}" for name in LINK_KEYS))
    if key not in valid:
        raise ConfigError(f"--set {text}: {unknown('key', key, valid)}")
    try:
        return key, tomllib.loads(f"v = {value}")["v"]
    except tomllib.TOMLDecodeError:
        return key, value


def _check_type(key: str, value: Any, declared: str) -> None:
    kinds = declared.split(" | ")
    if "float" in kinds and isinstance(value, int) and not isinstance(value, bool):
        return  # 1 is a fine 1.0
    if type(value).__name__ in kinds:
        if isinstance(value, float) and not math.isfinite(value):
            raise ConfigError(f"{key} = {value}: it must be a finite number.")
        return
    expected = " or ".join(_KINDS[kind] for kind in kinds)
    raise ConfigError(
        f"{key} = {value!r} is {_KINDS.get(type(value).__name__, type(value).__name__)}, expected {expected}."
    )
