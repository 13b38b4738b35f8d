"""Keys as other tools and the paper spell them, each with what to do here."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

# Settings of methods that were keys of their own, by their place in a table now.
RENAMED = {
    "method": "rule", "s0": "rule.s0", "interval": "rule.interval", "guard": "rule.guard", "rounding": "rule.rounding",
    "noise": "rule.noise", "rule_s0": "rule.s0", "patience": "rule.patience",
    "resolution": "rule.resolution", "delay": "rule.delay", "undo_always": "undo", "norm": "quantizer.norm",
    "sparsity": "quantizer.sparsity", "server_eta": "step.eta",
    "server_momentum": "step.beta", "server_beta2": "step.beta2", "server_epsilon": "step.epsilon",
    "trim": "step.share", "hostile": "step.hostile", "method_sha256": "rule.sha256",
    "quantizer_sha256": "quantizer.sha256",
}  # fmt: skip
_ETA = "The learning rate is `eta`, such as eta=0.1. `eta_schedule`, `eta_decay` and `eta_warmup` change it over time."
_STEPS = "Local work is counted in steps: `tau` SGD steps per client and round, on batches of `batch_size`."
_CLIENTS = "The number of clients is `clients`, such as clients=8. `clients_per_round` samples some of them per round."
_DEVICE = "GPUs are chosen with `device`: device=cuda, device=cuda:1 for the second GPU, or device=mps."
_RULE = "The rule is `rule`, such as rule=4bit for 4-bit levels; `quantizer` is another key. See adaquantfl methods."
_OTHERS = {
    **dict.fromkeys(("lr", "learning_rate", "step_size"), _ETA),
    **dict.fromkeys(("epochs", "local_epochs", "local_steps", "iterations"), _STEPS),
    **dict.fromkeys(("num_rounds", "comm_rounds"), "The number of rounds is `rounds`, such as rounds=100."),
    **dict.fromkeys(("num_clients", "n_clients", "fraction_fit"), _CLIENTS),
    **dict.fromkeys(("batch", "bs"), "The mini-batch is `batch_size`, such as batch_size=64."),
    **dict.fromkeys(("gpu", "cuda", "num_gpus"), _DEVICE),
    **dict.fromkeys(("bits", "levels", "s", "strategy", "algorithm", "compression"), _RULE),
    "num_workers": "`workers` is the number of processes that train, such as workers=4. 0 means one per core.",
    **dict.fromkeys(("alpha", "dirichlet_alpha"), "Who holds which data is `partition`, such as dirichlet(0.3)."),
    **dict.fromkeys(("out", "output_dir"), "The folder of a run is an option, not a key: --out DIR."),
    **dict.fromkeys(("mu", "fedprox"), "The factor of FedProx's penalty is `prox`, such as prox=0.01."),
}


def as_option(option: str, valid: Iterable[str]) -> str:
    """What to do where a key is typed as an option of the command line.

    >>> as_option("rounds", ["rounds"])
    'Keys of the configuration follow --set: --set rounds=VALUE.'
    """
    key = option.lower().replace("-", "_")
    if key in valid:
        return f"Keys of the configuration follow --set: --set {key}=VALUE."
    return f"Keys of the configuration follow --set: --set KEY=VALUE. {_OTHERS.get(key, '')}".rstrip()


def no_such_key(key: str, valid: Iterable[str]) -> str:
    """The message for a key that does not exist: what to do instead, or the nearest one that does.

    >>> no_such_key("s0", ["eta", "tau"])
    "There is no key named 's0'. It is `rule.s0` now, the key s0 of the table [rule]."
    >>> no_such_key("lr", ["eta", "tau"])[:66]
    "There is no key named 'lr'. The learning rate is `eta`, such as et"
    >>> no_such_key("taus", ["eta", "tau"])
    "There is no key named 'taus'. Did you mean 'tau'? docs/configuration.md explains all keys."
    """
    names, start = list(valid), f"There is no key named {key!r}."
    if new := RENAMED.get(key):
        table, dot, inner = new.partition(".")
        return f"{start} It is `{new}` now" + (f", the key {inner} of the table [{table}]." if dot else ".")
    if answer := _OTHERS.get(key.lower().replace("-", "_")):
        return f"{start} {answer}"
    if near := get_close_matches(key.lower(), names, n=1, cutoff=0.6):
        return f"{start} Did you mean {near[0]!r}? docs/configuration.md explains all keys."
    return f"{start} The keys are: {', '.join(names)}."
