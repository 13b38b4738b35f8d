"""What a configuration is held to: types, ranges, names, and which keys go together. A refusal is a sentence."""

from __future__ import annotations

import math
import re
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from ..errors import ConfigError, FrameError, QuantizeError, RuleError
from ..names import unknown
from ..protocol.downlink import DOWNLINKS, Exact, Whole
from ..protocol.limits import NormLimit
from ..protocol.lossy import Late, Lossy
from ..rules import ROUNDINGS
from ..rules.registry import RULES, methods
from ..training.own_methods import find_method

if TYPE_CHECKING:
    from .config import Config

TRACKERS = ("", "tensorboard", "mlflow", "wandb")
OWN = ("dataset", "model", "partition")  # what a task of one's own takes the place of
_AT_LEAST = {
    "clients": 1, "rounds": 1, "target_loss": 0, "tau": 1, "eta_decay_every": 1, "batch_size": 1, "s0": 1,
    "loss_samples": 0, "loss_smoothing": 0, "seed": 0, "min_clients": 0, "clients_per_round": 0, "downlink_s0": 1,
    "sparsity": 1, "workers": 0, "evaluate_every": 1, "checkpoint_every": 1, "momentum": 0, "weight_decay": 0,
    "prox": 0, "clip_gradient": 0, "eta_warmup": 0, "validation": 0, "early_stopping": 0,
}  # fmt: skip
_BELOW_ONE = ("loss_smoothing", "momentum", "validation")
_CHOICES = {
    "rounding": tuple(ROUNDINGS), "loss": ("full", "round"),
    "cost": ("up", "both"), "precision": ("fp32", "bf16"), "sampling": ("uniform", "size"),
    "tracking": TRACKERS, "optimizer": ("sgd", "adamw"), "eta_schedule": ("step", "cosine"),
}  # fmt: skip
_KINDS = {"int": "an integer (a whole number)", "float": "a number", "str": "text", "bool": "true or false"}
_BARE = re.compile(r"\s*(?P<key>\w+)\s*=\s*(?P<word>[\w.:/()+@-]+)\s*(#.*)?$")
_FLOAT32 = "Federated averaging without quantization is method = 'fp32'."
_FIXED = "A fixed number of levels is method = '1bit' to '16bit', such as method = '4bit'."
_OTHER_METHODS = {
    **dict.fromkeys(("fedavg", "none", "float32", "full", "uncompressed", "32bit"), _FLOAT32),
    **dict.fromkeys(("qsgd", "fedpaq", "fixed", "uniform", "quantize"), _FIXED),
    **dict.fromkeys(("fedprox",), "FedProx is the key prox, such as prox = 0.01, with any method."),
    **dict.fromkeys(("fedadam", "fedyogi"), "The server's optimizer is the key step: step = 'adam' or 'yogi'."),
}
_DEVICE = re.compile(r"cpu|mps|cuda(:\d+)?")


def check(config: Config) -> None:
    """ConfigError where a run of this configuration is not possible."""
    for field in fields(config):
        check_type(field.name, getattr(config, field.name), str(field.type))
    if given := [key for key in OWN if config.task and getattr(config, key)]:
        raise ConfigError(
            f"{given[0]} = {getattr(config, given[0])!r} does not go with task = {config.task!r}, which has data and a "
            f"model of its own: leave {', '.join(given)} away."
        )
    for key, least in _AT_LEAST.items():
        if getattr(config, key) < least:
            raise ConfigError(f"{key} = {getattr(config, key)}: it must be at least {least}.")
    for key in _BELOW_ONE:
        if not getattr(config, key) < 1:
            raise ConfigError(f"{key} = {getattr(config, key)}: it must be at least 0 and below 1.")
    for key in ("eta", "eta_decay", "interval", "round_timeout"):
        if not getattr(config, key) > 0:
            raise ConfigError(f"{key} = {getattr(config, key)}: it must be above 0.")
    for key, valid in _CHOICES.items():
        if getattr(config, key) not in valid:
            raise ConfigError(unknown(key, getattr(config, key), filter(None, valid)))
    if find_method(config.method, config.method_sha256) is None:
        raise ConfigError(_no_method(config.method))
    if config.seed >= 2**63:
        raise ConfigError(f"seed = {config.seed}: it must be below 2^63.")
    NormLimit.of(config.max_update_norm, config.norm_action)
    config.server_step()
    _check_downlink(config)
    _check_clients(config)
    _check_training(config)
    _check_scope(config)
    _check_quantizer(config)
    try:
        config.rule()  # its own checks
    except RuleError as error:
        raise ConfigError(str(error)) from None


def _check_downlink(config: Config) -> None:
    if config.private and DOWNLINKS.find(config.downlink) not in (Whole, Exact, Lossy, Late):
        raise ConfigError(
            f"private = true does not go with downlink = {config.downlink!r}, of which it is not known whether it "
            "sends clients each other's frames: use 'exact', 'model', 'lossy' or 'late'."
        )
    DOWNLINKS.find(config.downlink)


def _check_clients(config: Config) -> None:
    for key in ("min_clients", "clients_per_round"):
        if getattr(config, key) > config.clients:
            raise ConfigError(f"{key} = {getattr(config, key)}, but there are only {config.clients} clients.")
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
    if config.nesterov and not config.momentum:
        raise ConfigError("nesterov = true needs momentum above 0, such as momentum = 0.9.")
    if config.eta_schedule == "cosine" and config.eta_decay != 1:
        raise ConfigError(
            f"eta_decay = {config.eta_decay} does not go with eta_schedule = 'cosine': leave one of them away."
        )
    if config.eta_warmup:
        for key, names in {"method": ("adaquant",), "downlink": (Lossy.name,)}.items():
            if getattr(config, key) in names:
                raise ConfigError(
                    f"eta_warmup = {config.eta_warmup} does not go with {key} = {getattr(config, key)!r}, which "
                    "compares each round's learning rate with the first one's: choose another, or no warm-up."
                )
    if config.early_stopping and not config.validation:
        raise ConfigError(
            f"early_stopping = {config.early_stopping} needs examples to validate on: set validation, such as 0.1."
        )
    if not _DEVICE.fullmatch(config.device):
        raise ConfigError(f"device = {config.device!r}: use 'cpu', 'cuda', 'cuda:1' for the second GPU, or 'mps'.")


def _check_scope(config: Config) -> None:
    if isinstance(config.scope, str) and config.scope not in ("tensor", "balanced", "whole"):
        raise ConfigError(
            f"scope = {config.scope!r}: use 'tensor', 'balanced', 'whole', or a number: the elements of a bucket."
        )
    if isinstance(config.scope, int) and config.scope < 1:
        raise ConfigError(f"scope = {config.scope}: a bucket has at least 1 element.")


def _check_quantizer(config: Config) -> None:
    from ..codecs.registry import find as find_codec  # with it come the kernels

    try:
        kind = config.kind
        kind.norm(config.norm or None)
        find_codec(config.codec)
    except (QuantizeError, FrameError) as error:
        raise ConfigError(str(error)) from None
    if config.scope == "balanced" and not kind.takes_balanced:
        raise ConfigError(f"scope = 'balanced' does not go with quantizer = {kind.name!r}: use 'tensor'.")
    if not kind.follows_rule and config.method not in ("1bit", "fp32"):
        raise ConfigError(
            f"quantizer = {kind.name!r} has no levels that a rule could choose: use it with method = '1bit'."
        )
    if config.method == "cost-aware" and not kind.unbiased:
        raise ConfigError(
            f"quantizer = {kind.name!r} does not go with method = 'cost-aware', which measures noise that averages "
            "out over the clients: choose one that is unbiased."
        )
    if config.method == "feddq" and config.norm != "linf":
        raise ConfigError("method = 'feddq' measures an update by its largest element: set norm = 'linf'.")


def _no_method(name: str) -> str:
    if name == "adaquant-smooth":
        return "'adaquant-smooth' is method = 'adaquant' with loss = 'round' and loss_smoothing = 0.9: set those."
    if answer := _OTHER_METHODS.get(name.lower()):
        return f"There is no method named {name!r}. {answer} `adaquantfl methods` lists all."
    found = methods()  # loads the rules of other packages
    return RULES.broken(name) or unknown("method", name, found)


def check_type(key: str, value: Any, declared: str) -> None:
    """ConfigError where a value is not of the type that its field declares."""
    kinds = declared.split(" | ")
    if "float" in kinds and isinstance(value, int) and not isinstance(value, bool):
        return  # 1 is a fine 1.0
    if type(value).__name__ in kinds:
        if isinstance(value, float) and not math.isfinite(value):
            raise ConfigError(f"{key} = {value}: it must be a finite number.")
        return
    expected = " or ".join(_KINDS[kind] for kind in kinds)
    given = {"dict": "a section", "list": "a list"}.get(type(value).__name__) or _KINDS.get(type(value).__name__)
    shown = str(value).lower() if isinstance(value, bool) else repr(value)
    raise ConfigError(f"{key} = {shown} is {given or type(value).__name__}, but {key} must be {expected}.")


def bare_word(line: str) -> str:
    """What is wrong with a line of a TOML file whose value is a word without quotes; empty where it is another fault.

    >>> bare_word("rounds = abc")
    'rounds = abc: rounds must be an integer (a whole number).'
    >>> bare_word("method = 4bit  # fixed")
    'method = 4bit: text needs quotes in a TOML file: method = "4bit".'
    """
    from .config import Config

    found = _BARE.match(line)
    kinds = {field.name: str(field.type) for field in fields(Config)}
    if found is None or found["key"] not in kinds:
        return ""
    key, word, kind = found["key"], found["word"], kinds[found["key"]]
    if "str" in kind.split(" | "):
        return f'{key} = {word}: text needs quotes in a TOML file: {key} = "{word}".'
    return f"{key} = {word}: {key} must be {_KINDS.get(kind, 'a section')}."
