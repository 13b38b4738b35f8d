"""A batch of mutants: its number decides all of them, so that a finding can be repeated."""

from __future__ import annotations

import re
import time
import tracemalloc
from collections import Counter
from dataclasses import dataclass, field
from functools import cache
from random import Random

from . import frames, messages, states
from .oracles import Finding, FrameOracle

SECONDS, MEGABYTES = 1.0, 64  # that one execution may take
MEMORY_SAMPLE = 0.001  # of the executions, which are traced
MESSAGES = 0.5  # of the executions: replies, orders, parcels and states
POOL = 6000  # frames that mutants start from
Messages = messages.MessageOracle | states.StateOracle
_REASON = re.compile(r"[\d'\"(:;.]")


@dataclass
class Batch:
    """What happened. checks: how many mutants the slow oracles saw. findings: (the oracle's words, the bytes)."""

    executions: int = 0
    accepted: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    targets: Counter[str] = field(default_factory=Counter)
    checks: Counter[str] = field(default_factory=Counter)
    findings: list[tuple[str, bytes]] = field(default_factory=list)
    slowest: float = 0.0
    most_memory: int = 0
    mark: float = field(default_factory=time.process_time)  # a moment, in this process's own time


@cache
def _seeds() -> tuple[list[frames.Parts], list[frames.Parts], list[messages.Setup]]:
    """Made once; what a first call costs is spent here, so that it is nobody's fault."""
    small, large = frames.seeds(), frames.large_seeds()
    oracle = FrameOracle(Random(0), compared=1.0)
    for parts in (*small, *large):
        reason = oracle.run(parts.build(), parts.dimension)
        assert reason is None or "beyond float32" in reason, f"a seed is refused: {reason}"
    return small, large, [messages.setup(settings) for settings in messages.SETTINGS]


def run(number: int, executions: int, oracle: FrameOracle | None = None) -> Batch:
    """The batch of this number. oracle: for tests of the harness itself."""
    chance = Random(f"batch {number}")
    small, large, setups = _seeds()
    mutator = frames.Mutator(small, large, chance)
    on_frames = oracle or FrameOracle(chance)
    on_frames.chance, before = chance, on_frames.checks.copy()
    on_messages: tuple[Messages, ...] = (
        messages.MessageOracle(chance, mutator, setups),
        states.StateOracle(chance, mutator, setups),
    )
    batch = Batch()
    for _ in range(executions):
        _execute(batch, mutator, on_frames, on_messages, chance)
    batch.checks = on_frames.checks - before
    return batch


def _execute(
    batch: Batch, mutator: frames.Mutator, on_frames: FrameOracle, on_messages: tuple[Messages, ...], chance: Random
) -> None:
    traced = chance.random() < MEMORY_SAMPLE
    data, dimension, parts, run = b"", 0, None, None
    oracle = chance.choice(on_messages)
    if chance.random() < MESSAGES:
        run = chance.choice(oracle.runs)
    else:
        parts, dimension = mutator.mutant()
        data = parts.build()
    target = "frame" if run is None else run.__name__
    if traced:
        tracemalloc.start()
    begun = time.perf_counter()
    try:
        reason = on_frames.run(data, dimension) if run is None else run()
    except Exception as error:  # anything that comes here is a finding, whatever it is
        kind = str(error) if isinstance(error, Finding) else f"{type(error).__name__}: {error}"
        batch.findings.append((f"{target}: {kind}", data if run is None else oracle.data))
        reason = "finding"
    took = time.perf_counter() - begun
    if traced:
        memory = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        batch.most_memory = max(batch.most_memory, memory)
        if memory > MEGABYTES << 20:
            batch.findings.append((f"{target}: it took {memory >> 20} MB", data or oracle.data))
    elif took > batch.slowest:
        if took > SECONDS / 4:  # perhaps other processes had the core: our own time since the last mark is more
            took = min(took, time.process_time() - batch.mark)
        batch.slowest = max(batch.slowest, took)
        if took > SECONDS:
            batch.findings.append((f"{target}: it took {took:.1f} s", data or oracle.data))
    if batch.executions % 64 == 0:
        batch.mark = time.process_time()
    batch.executions += 1
    batch.targets[target] += 1
    if reason is None:
        batch.accepted += 1
    else:
        reason = f"{target}: {_REASON.split(reason, 1)[0].strip()}"
        batch.refused[reason] += 1
    # What did something new, and some of what was accepted, becomes a start for others.
    if (
        parts is not None
        and len(parts.body) < 4096
        and (batch.refused[reason] == 1 if reason else chance.random() < 0.05)
    ):
        if len(mutator.pool) < POOL:
            mutator.pool.append(parts)
        else:
            mutator.pool[chance.randrange(POOL)] = parts
