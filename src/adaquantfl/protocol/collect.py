"""The server's half of a round: replies in, those that can be used added up, the rest refused with a reason (eq. 3)."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from ..codecs.coding import Accumulator, Checked
from ..errors import FrameError
from ..quantizers.base import whole_levels
from ..quantizers.registry import find
from ..rules import Survey
from ..runs.config import Config
from ..runs.link import Heard
from . import survey
from .cohort import Cohort
from .downlink import Relay, rescaled
from .ledger import Ledger
from .limits import NormLimit
from .messages import Absence, Federation, Plan, Reply, Vector


@dataclass
class Collected:
    """What a round's clients sent, added up: sum of p_i Q(update_i) over those who answered, p renormalised."""

    update: Vector
    buffers: Vector
    ledger: Ledger
    round_loss: float = 0.0
    heard: list[Heard] = field(default_factory=list)
    missing: dict[int, str] = field(default_factory=dict)
    relay: Relay | None = None  # what was added up, where it is smaller than the model
    levels: list[int | None] = field(default_factory=list)  # of the frames that were added up ...
    frame_bytes: list[int] = field(default_factory=list)  # ... and their sizes
    survey: Survey | None = None  # where the plan asked for one
    diverged: int = 0  # clients whose training did
    aggregate_seconds: float = 0.0

    @property
    def train_seconds(self) -> float:
        """Added up over clients, who work side by side."""
        return sum(one.train_seconds for one in self.heard)

    @property
    def encode_seconds(self) -> float:
        return sum(one.encode_seconds for one in self.heard)


def collect(
    answers: Iterator[Reply | Absence],
    cohort: Cohort,
    plan: Plan,
    config: Config,
    federation: Federation,
    ledger: Ledger,
) -> Collected:
    """Add up the replies as they come, in client order."""
    return _Collector(cohort, plan, config, federation, ledger).run(answers)


class _Collector:
    def __init__(self, cohort: Cohort, plan: Plan, config: Config, federation: Federation, ledger: Ledger) -> None:
        self.plan = plan
        self.rule = config.schedule()
        self.any_levels = self.rule.clients_choose or config.balanced or not find(config.quantizer).from_paper
        self.expected = None if plan.s is None else whole_levels(plan.s)[0]
        self.surveys: dict[int, survey.Seen] = {}
        self.limit = NormLimit.of(config.max_update_norm)
        self.cohort, self.p = cohort, cohort.weights
        self.all = len(self.p) == config.clients
        self.sizes = federation.dimension, len(federation.model.buffers)
        self.update, self.buffers = Accumulator(self.sizes[0]), Accumulator(max(1, self.sizes[1]))
        nothing = np.empty(0, dtype=np.float32)
        self.result = Collected(nothing, nothing, ledger)
        self.weight = 0.0  # of those who were heard
        self.frames: list[tuple[bytes, float]] = []
        self.relayed = 0 if config.downlink == "exact" else math.inf  # bytes of these frames

    def run(self, answers: Iterator[Reply | Absence]) -> Collected:
        held: dict[int, tuple[Reply, Checked, Checked | None]] = {}  # while a limit needs every norm
        for answer in answers:
            began = time.perf_counter()
            if isinstance(answer, Absence):
                self.result.missing[answer.client] = answer.reason
                continue
            try:
                checked = self._check(answer)
            except FrameError as error:
                self._refuse(answer, f"its message was refused. {error}")
                continue
            if self.limit.needs_all:
                held[answer.client] = answer, *checked
            elif reasons := self.limit.refused({0: checked[0].norm} if self.limit.absolute < math.inf else {}):
                self._refuse(answer, reasons[0])
            else:
                self._add(answer, *checked)
            self.result.aggregate_seconds += time.perf_counter() - began
        began = time.perf_counter()
        reasons = self.limit.refused({client: frame.norm for client, (_, frame, _) in held.items()})
        for client, (reply, frame, buffers) in held.items():
            if client in reasons:
                self._refuse(reply, reasons[client])
            else:
                self._add(reply, frame, buffers)
        self._finish()
        self.result.aggregate_seconds += time.perf_counter() - began
        return self.result

    def _check(self, reply: Reply) -> tuple[Checked, Checked | None]:
        """Both frames of a reply, before either is added."""
        if not math.isfinite(reply.round_loss):
            self.result.diverged += 1
            raise FrameError("Its training has diverged: lower the learning rate, or take more levels.")
        frame = self.update.check(reply.frame, self.p[reply.client])
        if frame.s != self.expected and not self.any_levels:
            raise FrameError(f"It has s = {frame.s}, but the round's plan says s = {self.expected}.")
        if self.plan.survey:
            self.surveys[reply.client] = survey.read(reply.survey, len(self._candidates))
        if not self.sizes[1] and not reply.buffers:
            return frame, None
        if not self.sizes[1] or not reply.buffers:
            raise FrameError("Its message has buffers, but the model has none, or the other way round.")
        buffers = self.buffers.check(reply.buffers, self.p[reply.client])
        if buffers.s is not None:
            raise FrameError("Its buffers are quantized; they travel in float32.")
        return frame, buffers

    def _add(self, reply: Reply, frame: Checked, buffers: Checked | None) -> None:
        result, p = self.result, self.p[reply.client]
        self.update.add(frame)
        if buffers is not None:
            self.buffers.add(buffers)
        self.weight += p
        result.levels.append(frame.s if self.rule.clients_choose else self.expected)
        result.frame_bytes.append(len(reply.frame))
        self.relayed += len(reply.frame)
        if self.relayed < 4 * self.sizes[0]:
            self.frames.append((reply.frame, p))
        else:
            self.frames.clear()
        result.ledger = result.ledger.after_reply(reply)
        result.round_loss += p * reply.round_loss
        result.heard.append(Heard(reply.client, reply.wire_bytes, reply.train_seconds, reply.encode_seconds))

    def _refuse(self, reply: Reply, reason: str) -> None:
        self.result.missing[reply.client] = reason
        self.result.ledger = self.result.ledger.after_refused(reply)

    def _finish(self) -> None:
        result = self.result
        result.update, result.buffers = self.update.result(), self.buffers.result()[: self.sizes[1]]
        if not result.heard or (self.all and not result.missing):
            factor = 1.0  # the sum of p is 1 but for rounding
        else:
            factor = float(np.float32(self.cohort.total / self.weight))
            result.buffers = rescaled(result.buffers, 1 / self.weight)
            result.round_loss /= self.weight
        result.update = rescaled(result.update, factor)
        heard = {one.client: self.surveys[one.client] for one in result.heard if one.client in self.surveys}
        if heard:
            result.survey = survey.merge(self._candidates, heard, self.p)
        if self.relayed < 4 * self.sizes[0]:
            result.relay = Relay(self.frames, factor)

    @property
    def _candidates(self) -> tuple[float, ...]:
        return () if self.plan.s is None else self.rule.candidates(self.plan.s)
