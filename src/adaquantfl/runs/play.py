"""Runs from Python: what `adaquantfl run` and `adaquantfl compare` do, with records as the answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..training.own_files import short
from . import jobs
from .config import Config, load_config
from .jobs import Job
from .methods import parse_list

if TYPE_CHECKING:
    from ..protocol.downlink import Whole
    from ..protocol.step import ServerStep
    from ..quantizers.base import Quantizer
    from ..rules import Rule
    from .records import RunRecord


def run(
    source: str | Path,
    out: str | Path | None = None,
    *,
    rule: str | Mapping[str, Any] | Rule | None = None,
    quantizer: str | Mapping[str, Any] | Quantizer | None = None,
    step: str | Mapping[str, Any] | ServerStep | None = None,
    downlink: str | Mapping[str, Any] | Whole | None = None,
    rounds: int | None = None,
    seed: int | None = None,
    clients: int | None = None,
    clients_per_round: int | None = None,
    dataset: str | None = None,
    model: str | None = None,
    partition: str | None = None,
    tau: int | None = None,
    eta: float | None = None,
    batch_size: int | None = None,
    target_loss: float | None = None,
    evaluate_every: int | None = None,
    workers: int | None = None,
    settings: Mapping[str, Any] | None = None,
) -> RunRecord:
    """Train one configuration and return its record: use it in scripts and notebooks instead of `adaquantfl run`.

    Called again with the same folder, it resumes an interrupted run and only reads a finished one. It needs the extra
    `train`; a script calls it under `if __name__ == "__main__":`, since worker processes import the script.

    Args:
        source: A preset's name, a TOML file, or a task as FILE.py:FUNCTION.
        out: The run's folder. By default runs/SOURCE-RULE-seedN.
        rule: The rule that chooses the levels: a name, a table such as {"name": "adaquant", "s0": 4}, or an object.
        quantizer: How an update becomes levels; likewise. By default the one that the rule names.
        step: How the server combines updates; likewise. By default their weighted sum.
        downlink: How the model travels to clients; likewise. By default the one that the rule names.
        rounds: How many rounds to train.
        seed: The seed of all random numbers.
        clients: How many clients there are.
        clients_per_round: How many of them take part in a round; 0 is all.
        dataset: The data set of a preset.
        model: The model of a preset.
        partition: Who holds which data: "iid", "sorted" or "dirichlet(0.3)".
        tau: Local steps per round.
        eta: The learning rate.
        batch_size: Examples per local step.
        target_loss: Stop at this training loss; 0 is never.
        evaluate_every: Rounds between evaluations.
        workers: Processes that train; 0 is one per core. The result does not depend on it.
        settings: Any other key of docs/configuration.md, such as {"scope": "whole", "rule.s0": 4}.

    Returns:
        The record: `history` has a line for each round, `summary` what it came to, `series("loss")` a curve.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     record = run("demo", Path(folder, "mine"), rule="2bit", model="mlp", clients=2, rounds=3, workers=1)
    >>> [line["s"] for line in record.history], record.summary["paper_bits"]
    ([3, 3, 3], 229146)
    """
    arguments = dict(locals())
    given = {key: value for key, value in arguments.items() if key not in ("source", "out", "settings")}
    changes = {**{key: value for key, value in given.items() if value is not None}, **(settings or {})}
    if quantizer is not None and not isinstance(quantizer, str | Mapping):
        changes.setdefault("workers", 1)  # another process may not know its class
    config = load_config(source, changes)
    job = Job(config, Path(out) if out is not None else default_folder(source, config))
    jobs.check([job])
    jobs.play(job)
    return load(job.out)


def compare(
    source: str | Path,
    methods: str | Sequence[str] = "adaquant,2bit,4bit,8bit,16bit,fp32",
    out: str | Path | None = None,
    *,
    seeds: int = 1,
    settings: Mapping[str, Any] | None = None,
) -> list[RunRecord]:
    """Train several methods on one configuration and return their records, for `aq.report` or your own tables.

    Called again, it keeps finished runs and resumes interrupted ones.

    Args:
        source: As in `aq.run`.
        methods: Names separated by commas, each `RULE[+QUANTIZER][@CODEC][[KEY=VALUE,...]]`, or a list of them.
        out: The comparison's folder. By default runs/compare-SOURCE.
        seeds: Seeds 0 to seeds - 1 of each method.
        settings: Keys of docs/configuration.md for all runs, such as {"rounds": 20, "rule.s0": 4}.

    Returns:
        A record for each run, AdaQuantFL first.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     records = compare("demo", "2bit,4bit", folder, settings={"model": "mlp", "rounds": 1, "workers": 1})
    >>> [record.label for record in records]
    ['2-bit', '4-bit']
    """
    from .records import find_runs

    text = methods if isinstance(methods, str) else ",".join(methods)
    folder = Path(out) if out is not None else Path("runs") / f"compare-{Path(source).stem}"
    plan = jobs.plan(str(source), parse_list(text), seeds, settings or {}, folder)
    jobs.check(plan)
    for job in plan:
        jobs.play(job)
    return find_runs([folder])


def load(folder: str | Path) -> RunRecord:
    """Read the record of a run's folder, also while the run is going: use it to look at a run from Python.

    Args:
        folder: A folder that `aq.run`, `adaquantfl run` or `adaquantfl compare` wrote.

    Returns:
        The run's configuration, history and summary; the summary is None while the run is unfinished.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     _ = run("demo", folder, rule="2bit", model="mlp", rounds=1, workers=1)
    ...     print(len(load(folder).history))
    1
    """
    from .records import load_run

    return load_run(folder)


def default_folder(source: str | Path, config: Config) -> Path:
    """Where a run goes if nobody says: runs/SOURCE-RULE-seedN."""
    return Path("runs") / f"{Path(source).stem}-{short(config.method)}-seed{config.seed}"
