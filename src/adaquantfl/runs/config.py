"""The settings of a run: typed, checked, complete enough to repeat it. They come from a preset or a TOML file.

A method's own settings are the fields of its class, in the tables [rule], [quantizer], [step], [downlink], [private].
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from importlib import resources
from pathlib import Path
from typing import Any

from ..errors import CheckpointError, ConfigError, RuleError
from ..names import unknown
from ..private.settings import Private
from ..protocol.cohort import Cohort
from ..protocol.stages import Stages, first_plan
from ..rules import Plan, Rule
from ..training.methods import KINDS, as_table, build, complete
from ..training.own_files import names_task, settled
from ..training.settings import Settings
from .config_checks import OWN, check

# What `--set` may change when a run is resumed: these do not touch the rounds already done.
RESUMABLE = frozenset({
    "rounds", "target_loss", "workers", "checkpoint_every", "min_clients", "round_timeout", "max_update_norm",
    "norm_action", "tracking",
})  # fmt: skip


@dataclass(frozen=True)
class Config(Settings):
    """One run. The defaults are the paper's settings for the CNN with i.i.d. data; `Settings` has more keys.

    After it is made, `rule`, `quantizer`, `step`, `downlink` and `private` are complete tables: {"name": ..., setting:
    value}.
    """

    rounds: int = 600
    target_loss: float = 0.0  # stop when the global loss is at or below it; 0: never
    eta_decay: float = 1.0  # the learning rate is multiplied by this ...
    eta_decay_every: int = 100  # ... every this many rounds
    # How many levels, and how an update is sent.
    rule: Any = ""  # [rule]: "auto", ours; the presets have "adaquant", the paper's. `adaquantfl methods` lists others
    loss: str = "full"  # f(w_k): "full" is evaluated at w_k, "round" is the last round's mean mini-batch loss
    loss_smoothing: float = 0.0  # with "round": an exponential average; 0.9: over about ten rounds
    scope: str | int = "tensor"  # a norm for each "tensor", for the "whole" update, or a number of elements; "balanced"
    codec: str = "auto"  # the smallest; "fixed" is the paper's. It never changes the model
    downlink: Any = ""  # [downlink]: "exact": what leads to the new model. "late": quantized; with "auto"
    undo: float = 0.0  # the server rolls back a round whose clients saw this many times the usual loss; 0: never
    # How the server checks and combines the updates.
    step: Any = "sum"  # [step]: the paper's; "momentum", "nesterov", "adam"; "median", "trimmed-mean", "krum"
    max_update_norm: float | str = 0.0  # of updates, in l2; "10x": 10 times the round's median; 0: no limit
    private: Any = "off"  # [private]: "masked": the server sees only sums. "central", "distributed": with noise
    norm_action: str = "refuse"  # updates above max_update_norm; "clip": scale them down to it
    # Running it.
    evaluate_every: int = 5
    checkpoint_every: int = 10
    tracking: str = ""  # "tensorboard": event files with each round's numbers

    def __post_init__(self) -> None:
        self._complete("private", lambda: "off")
        self._complete("rule", lambda: "fp32" if self.make_private().masks else "auto")
        self._complete("quantizer", lambda: self._first_plan().quantizer or "uniform")
        self._complete("downlink", lambda: self._first_plan().downlink or "exact")
        self._complete("step", lambda: "sum")
        check(self)

    def _complete(self, key: str, usual: Callable[[], str]) -> None:
        """Fill in the name where none is given, and the settings that are not."""
        value = getattr(self, key)
        if value == "" or (isinstance(value, Mapping) and "name" not in value):
            value = {"name": usual(), **as_table(value)}
        object.__setattr__(self, key, complete(key, value))

    @property
    def method(self) -> str:
        """The name of the rule."""
        return str(self.rule["name"])

    def make_rule(self) -> Rule:
        """The rule of the table [rule]."""
        rule: Rule = build("rule", self.rule)
        return rule

    def make_private(self) -> Private:
        """The mode of the table [private]."""
        private: Private = build("private", self.private)
        return private

    def _first_plan(self) -> Plan:
        """What the rule names where the user does not."""
        try:
            return first_plan(self.make_rule())
        except RuleError as error:
            raise ConfigError(str(error)) from error

    def stages(self, examples: tuple[int, ...] = ()) -> Stages:
        """What a server of this run is put together from. examples: of each client."""
        return Stages(
            self.make_rule(),
            self.kind,
            self.scope,
            build("downlink", self.downlink),
            self.seed,
            norm=self.quantizer["norm"],
            codec=self.codec,
            sparsity=self.quantizer["sparsity"],
            cohort=Cohort(examples, self.clients_per_round, self.min_clients),
            step=build("step", self.step),
            max_update_norm=self.max_update_norm,
            norm_action=self.norm_action,
            loss_smoothing=self.loss_smoothing,
            undo=self.undo,
        )

    def learning_rate(self, round: int) -> float:
        """eta_k, for rounds counted from 0."""
        return self.eta * self.eta_decay ** (round // self.eta_decay_every)

    def to_dict(self) -> dict[str, Any]:
        """Every key with its value; tables last, as TOML wants them. A task or a data set, not both."""
        without = OWN if self.task else ("task", "task_sha256")
        keys = [key for key in KEYS if key not in without]
        return {key: getattr(self, key) for key in sorted(keys, key=lambda key: key in KINDS)}


KEYS = tuple(field.name for field in fields(Config))


def load_config(source: str | Path, overrides: Mapping[str, Any] | None = None) -> Config:
    """A preset by name, a TOML file by path, or a task as FILE.py:FUNCTION, with overrides on top."""
    if names_task(source):
        values = settled({"task": str(source)}, folder="")
    else:
        values = settled(read_toml(source), Path(source).parent)
    try:
        return config_of(merged(values, settled(overrides or {}, folder="")))
    except ConfigError as error:
        raise ConfigError(f"{source}: {error}") from None


def run_config(out: Path, changes: Mapping[str, Any] | None = None) -> Config:
    """The configuration of the run in a folder, with changes on top."""
    if not (out / "config.toml").is_file():
        raise CheckpointError(f"{out} holds no run (no config.toml). Name the run's folder, the one given with --out.")
    return load_config(out / "config.toml", changes)


def preset_names() -> list[str]:
    """The presets that ship with the package."""
    folder = resources.files("adaquantfl.runs") / "preset_files"
    return sorted(item.name.removesuffix(".toml") for item in folder.iterdir() if item.name.endswith(".toml"))


def read_toml(source: str | Path) -> dict[str, Any]:
    """The keys of a preset or a TOML file, unchecked."""
    path = Path(source)
    if path.suffix == ".toml" or path.is_file():
        if not path.is_file():
            raise ConfigError(f"There is no file {source}. The presets are: {', '.join(preset_names())}.")
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            raise ConfigError(f"{source} is not a text file in UTF-8.") from None
    elif str(source) in preset_names():
        text = (resources.files("adaquantfl.runs") / "preset_files" / f"{source}.toml").read_text(encoding="utf-8")
    else:
        raise ConfigError(
            unknown("preset", source, preset_names())
            + " A file of your own ends in .toml; a task of your own is FILE.py:FUNCTION."
        )
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        hint = 'Text needs quotes in a TOML file, such as rule = "4bit".'
        raise ConfigError(f"{source} is not valid TOML: {error}. {hint}") from None


def merged(values: Mapping[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    """The values with overrides: `rule.s0` changes one setting; the name of the same method keeps its settings.

    >>> merged({"rule": {"name": "adaquant", "s0": 4}}, {"rule": "adaquant", "rule.guard": False})["rule"]
    {'name': 'adaquant', 's0': 4, 'guard': False}
    >>> merged({"rule": {"name": "adaquant", "s0": 4}}, {"rule": "4bit"})["rule"]
    {'name': '4bit'}
    """
    found = dict(values)
    for key, value in sorted(overrides.items(), key=lambda item: "." in item[0]):
        kind, dot, inner = key.partition(".")
        if kind not in KINDS:
            found[key] = value
        elif dot:
            found[kind] = {**as_table(found.get(kind, "")), inner: value}
        else:
            new, old = value, as_table(found.get(kind, ""))
            if isinstance(value, str | Mapping):
                new = as_table(value)
                new = {**old, **new} if new.get("name") == old.get("name") else new
            found[kind] = new
    return found


def config_of(values: Mapping[str, Any]) -> Config:
    """The configuration with these keys: the way back from `Config.to_dict`.

    >>> config_of(Config(seed=3).to_dict()) == Config(seed=3)
    True
    """
    for key in values:
        if key not in KEYS:
            raise ConfigError(unknown("key", key, KEYS))
    return Config(**{**dict.fromkeys(OWN if values.get("task") else (), ""), **values})


def parse_override(text: str) -> tuple[str, Any]:
    """`key=value` of --set: the value as TOML, and a bare word as text.

    >>> parse_override("eta=0.05"), parse_override("rule=4bit"), parse_override("rule.s0=4")
    (('eta', 0.05), ('rule', '4bit'), ('rule.s0', 4))
    """
    key, equals, value = text.partition("=")
    key, value = key.strip(), value.strip()
    if not equals or not key or not value:
        raise ConfigError(f"--set {text}: expected KEY=VALUE, such as --set rounds=20.")
    table, dot, inner = key.partition(".")
    if not (table in KINDS and inner if dot else key in KEYS):
        raise ConfigError(f"--set {text}: {unknown('key', key, KEYS)}")
    try:
        return key, tomllib.loads(f"v = {value}")["v"]
    except tomllib.TOMLDecodeError:
        return key, value
