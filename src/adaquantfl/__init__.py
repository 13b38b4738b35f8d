"""AdaQuantFL: adaptive quantization of model updates for communication-efficient federated learning.

The public names, re-exports only. They are imported when first used, so that `import adaquantfl` stays fast.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .codecs.accumulator import Accumulator
    from .codecs.coding import compress, decode, encode
    from .codecs.raw import decode_float32, encode_float32
    from .errors import (
        AdaQuantError,
        CheckpointError,
        ConfigError,
        DataError,
        EngineError,
        FrameError,
        ModelNeeded,
        QuantizeError,
        Refused,
        RuleError,
        TaskError,
    )
    from .protocol.client import Client
    from .protocol.cohort import Cohort
    from .protocol.server import Server
    from .protocol.step import Adam, Krum, Median, Momentum, Nesterov, TrimmedMean
    from .quantizers.levels import Levels, quantize
    from .quantizers.segments import bucket_lengths
    from .quantizers.streams import stream_key
    from .report.write import report
    from .rules import AdaQuant, Auto, Fixed, FullPrecision, Need, Plan, Report, Rule, Seen, Verdict
    from .runs.play import compare, load, run
    from .theory import error_bound, optimal_levels, paper_bits
    from .threads import get_threads, set_threads
    from .training.own import OwnTask

    __version__: str

_HOME = {
    "codecs.accumulator": ("Accumulator",),
    "codecs.coding": ("compress", "decode", "encode"),
    "codecs.raw": ("decode_float32", "encode_float32"),
    "errors": (
        "AdaQuantError",
        "CheckpointError",
        "ConfigError",
        "DataError",
        "EngineError",
        "FrameError",
        "ModelNeeded",
        "QuantizeError",
        "Refused",
        "RuleError",
        "TaskError",
    ),
    "runs.play": ("compare", "load", "run"),
    "quantizers.levels": ("Levels", "quantize"),
    "quantizers.segments": ("bucket_lengths",),
    "quantizers.streams": ("stream_key",),
    "protocol.client": ("Client",),
    "protocol.cohort": ("Cohort",),
    "protocol.server": ("Server",),
    "protocol.step": ("Adam", "Krum", "Median", "Momentum", "Nesterov", "TrimmedMean"),
    "rules": (
        "AdaQuant",
        "Auto",
        "Fixed",
        "FullPrecision",
        "Need",
        "Plan",
        "Report",
        "Rule",
        "Seen",
        "Verdict",
    ),
    "training.own": ("OwnTask",),
    "theory": ("error_bound", "optimal_levels", "paper_bits"),
    "threads": ("get_threads", "set_threads"),
}
_MODULE_OF = {name: module for module, names in _HOME.items() for name in names}

__all__ = [
    "Accumulator",
    "AdaQuant",
    "AdaQuantError",
    "Adam",
    "Auto",
    "CheckpointError",
    "Client",
    "Cohort",
    "ConfigError",
    "DataError",
    "EngineError",
    "Fixed",
    "FrameError",
    "FullPrecision",
    "Krum",
    "Levels",
    "Median",
    "ModelNeeded",
    "Momentum",
    "Need",
    "Nesterov",
    "OwnTask",
    "Plan",
    "QuantizeError",
    "Refused",
    "Report",
    "Rule",
    "RuleError",
    "Seen",
    "Server",
    "TaskError",
    "TrimmedMean",
    "Verdict",
    "__version__",
    "bucket_lengths",
    "compare",
    "compress",
    "decode",
    "decode_float32",
    "encode",
    "encode_float32",
    "error_bound",
    "get_threads",
    "load",
    "optimal_levels",
    "paper_bits",
    "quantize",
    "report",
    "run",
    "set_threads",
    "stream_key",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("adaquantfl")
    if name in _MODULE_OF:
        value = getattr(importlib.import_module(f".{_MODULE_OF[name]}", __name__), name)
        globals()[name] = value
        return value
    if name in ("checkpoint", "report", "theory", "flower", "torch", "training"):
        return importlib.import_module(f".{name}", __name__)
    raise AttributeError(f"module 'adaquantfl' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
