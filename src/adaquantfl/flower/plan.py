"""The server's orders for one round of a Flower app, and how they travel: one entry of the train message's config."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase

import numpy as np
import numpy.typing as npt
from flwr.app import ConfigRecord, Message

from ..codecs.registry import find as find_codec
from ..errors import ConfigError
from ..quantizers.registry import find
from ..quantizers.segments import scope_segments
from ..quantizers.streams import stream_key
from ..quantizers.vectors import Stretch
from ..theory import MAX_LEVELS

KEY = "adaquantfl"  # of the entry; its value is the plan as JSON
_FORMAT = 2

# BatchNorm's statistics in PyTorch and Keras: a variance with noise on it can be negative. FedAvg turns the counts of
# batches, which are integers, into floats.
EXACT = ("*running_mean", "*running_var", "*num_batches_tracked", "*moving_mean", "*moving_variance")


@dataclass(frozen=True)
class Plan:
    """How the clients quantize in this round.

    s: None where they do not; it need not be whole. exact: patterns of names of arrays that travel as they are.
    """

    round: int
    s: float | None
    seed: int = 0
    scope: str | int = "tensor"
    codec: str = "auto"
    exact: tuple[str, ...] = EXACT
    quantizer: str = "uniform"

    def __post_init__(self) -> None:
        if self.s is not None and not 0 < self.s <= MAX_LEVELS:
            raise ConfigError(f"s = {self.s}: the number of levels is above 0 and at most {MAX_LEVELS}.")
        kind = find(self.quantizer)
        if not kind.follows_rule:
            raise ConfigError(f"quantizer = {self.quantizer!r}: it has no levels that a schedule could choose.")
        if kind.feedback:
            raise ConfigError(
                f"quantizer = {self.quantizer!r} needs clients that keep what they left out from round to round, and a "
                "mod keeps nothing: choose one that is unbiased."
            )
        find_codec(self.codec)
        self.segments([1])
        self.key(0)
        if not all(isinstance(pattern, str) for pattern in self.exact):
            raise ConfigError(f"exact = {self.exact!r}: expected a list of name patterns, such as ['*running_var'].")

    def quantizes(self, name: str, array: npt.NDArray[np.generic] | None) -> bool:
        """Whether an array of this kind is quantized; otherwise it travels as it is."""
        return (
            array is not None
            and array.dtype in (np.float16, np.float32, np.float64)
            and array.size > 0
            and not any(fnmatchcase(name, pattern) for pattern in self.exact)
        )

    def segments(self, sizes: Sequence[int]) -> npt.NDArray[np.int64] | None:
        """The lengths that share a norm, for arrays of these sizes."""
        return scope_segments(self.scope, sizes)

    def levels(self, sizes: Sequence[int]) -> tuple[int, Stretch]:
        """s and stretch, as `compress` takes them, for arrays of these sizes."""
        assert self.s is not None
        segments = self.segments(sizes)
        return find(self.quantizer).levels_for(self.s, np.array([sum(sizes)]) if segments is None else segments)

    def key(self, client: int) -> int:
        """The client's random stream in this round; a node id is an unsigned 64-bit number."""
        return stream_key(self.seed, self.round, client % 2**63)

    def write(self, message: Message) -> None:
        """Put the plan into a message's config, in the place of an earlier one: strategies use a config again."""
        configs = message.content.config_records
        for config in configs.values():
            config.pop(KEY, None)
        if self.s is None:
            return
        if not configs:
            message.content[KEY] = ConfigRecord()
        first = next(iter(message.content.config_records.values()))
        first[KEY] = json.dumps({"format": _FORMAT, **asdict(self)})

    @staticmethod
    def read(message: Message) -> Plan | None:
        """The plan in a message's config; None where there is none."""
        for config in message.content.config_records.values():
            text = config.get(KEY)
            if isinstance(text, str):
                fields = json.loads(text)
                if (found := fields.pop("format", None)) != _FORMAT:
                    raise ConfigError(
                        f"The server's plan has format {found}, this client reads {_FORMAT}. "
                        "Install the same version of adaquantfl on both."
                    )
                return Plan(**{**fields, "exact": tuple(fields["exact"])})
        return None
