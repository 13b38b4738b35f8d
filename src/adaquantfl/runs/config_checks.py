"""What a configuration is held to: types, ranges, names, and which keys go together. A refusal is a sentence."""

from __future__ import annotations

import re
from dataclasses import fields
from typing import TYPE_CHECKING

from ..errors import ConfigError, FrameError, QuantizeError, RuleError
from ..names import unknown
from ..training.methods import KINDS, build, check_type

if TYPE_CHECKING:
    from .config import Config

OWN = ("dataset", "model", "partition")  # what a task of one's own takes the place of
_AT_LEAST = {
    "clients": 1, "rounds": 1, "target_loss": 0, "tau": 1, "eta_decay_every": 1, "batch_size": 1, "loss_samples": 0,
    "loss_smoothing": 0, "seed": 0, "min_clients": 0, "clients_per_round": 0, "workers": 0, "evaluate_every": 1,
    "checkpoint_every": 1, "momentum": 0, "weight_decay": 0, "undo": 0, "examples": 0,
}  # fmt: skip
_BELOW_ONE = ("loss_smoothing", "momentum")
_CHOICES = {
    "loss": ("full", "round"), "tracking": ("", "tensorboard"),
    "optimizer": ("sgd", "adamw"),
}  # fmt: skip
_DEVICE = re.compile(r"cpu|mps|cuda(:\d+)?")


def check(config: Config) -> None:
    """ConfigError where a run of this configuration is not possible."""
    for field in fields(config):
        if field.name not in KINDS:
            check_type(field.name, getattr(config, field.name), str(field.type))
    if given := [key for key in OWN if config.task and getattr(config, key)]:
        raise ConfigError(
            f"{given[0]} = {getattr(config, given[0])!r} does not go with task = {config.task!r}, which has data and a "
            f"model of its own: leave {', '.join(given)} away."
        )
    if config.task and config.examples:
        raise ConfigError(
            f"examples = {config.examples} is for a data set of ours, and task = {config.task!r} has data."
        )
    for key, least in _AT_LEAST.items():
        if getattr(config, key) < least:
            raise ConfigError(f"{key} = {getattr(config, key)}: it must be at least {least}.")
    for key in _BELOW_ONE:
        if not getattr(config, key) < 1:
            raise ConfigError(f"{key} = {getattr(config, key)}: it must be at least 0 and below 1.")
    for key in ("eta", "eta_decay", "round_timeout"):
        if not getattr(config, key) > 0:
            raise ConfigError(f"{key} = {getattr(config, key)}: it must be above 0.")
    for key, valid in _CHOICES.items():
        if getattr(config, key) not in valid:
            raise ConfigError(unknown(key, getattr(config, key), filter(None, valid)))
    if config.seed >= 2**63:
        raise ConfigError(f"seed = {config.seed}: it must be below 2^63.")
    _check_clients(config)
    _check_training(config)
    _check_methods(config)


def _check_clients(config: Config) -> None:
    for key in ("min_clients", "clients_per_round"):
        if getattr(config, key) > config.clients:
            raise ConfigError(f"{key} = {getattr(config, key)}, but there are only {config.clients} clients.")
    needed, asked = getattr(build("step", config.step), "needed", 0), config.clients_per_round or config.clients
    if asked < needed:
        raise ConfigError(
            f"step = {config.step['name']!r} takes {needed} clients in a round, and there are {asked}: ask more "
            "of them, or change the step's settings."
        )
    if 0 < config.clients_per_round < config.clients and config.loss == "full" and config.method == "adaquant":
        raise ConfigError(
            "loss = 'full' asks every client for its loss, but with clients_per_round only a sample answers: "
            "set loss = 'round', and loss_smoothing = 0.9 to even it out."
        )


def _check_training(config: Config) -> None:
    if config.momentum and config.optimizer != "sgd":
        raise ConfigError(
            f"momentum = {config.momentum} does not go with optimizer = {config.optimizer!r}, which has its own: "
            "leave momentum away, or use 'sgd'."
        )
    if not _DEVICE.fullmatch(config.device):
        raise ConfigError(f"device = {config.device!r}: use 'cpu', 'cuda', 'cuda:1' for the second GPU, or 'mps'.")


def _check_methods(config: Config) -> None:
    """Whether a server can be put together from the methods: `Stages` says what goes with what."""
    if isinstance(config.scope, str) and config.scope not in ("tensor", "balanced", "whole"):
        raise ConfigError(
            f"scope = {config.scope!r}: use 'tensor', 'balanced', 'whole', or a number: the elements of a bucket."
        )
    if isinstance(config.scope, int) and config.scope < 1:
        raise ConfigError(f"scope = {config.scope}: a bucket has at least 1 element.")
    kind = config.kind
    if not kind.traits.follows_rule and config.method not in ("1bit", "fp32"):
        raise ConfigError(
            f"quantizer = {kind.name!r} has no levels that a rule could choose: use it with rule = '1bit'."
        )
    if config.method == "feddq" and config.quantizer["norm"] != "linf":
        raise ConfigError("rule = 'feddq' measures an update by its largest element: set quantizer.norm = 'linf'.")
    try:
        config.stages()
    except (QuantizeError, FrameError, RuleError) as error:
        raise ConfigError(str(error)) from None
