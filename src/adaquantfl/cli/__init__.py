"""The command line: parser.py says what can be typed, commands.py what it does.

Exit codes: 0 is done. 1 is a failure; a sentence on the terminal says why. 2 is a mistyped command. 130 is a stop by
Ctrl-C or SIGTERM; the run can be resumed.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence

from ..errors import AdaQuantError
from .extras import EXTRAS, sentence
from .parser import build_parser

__all__ = ["main"]

_PYTORCH_MEMORY = "can't allocate memory: "  # in a RuntimeError of PyTorch, which knows no MemoryError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        options = build_parser().parse_args(arguments)
        return int(options.command(options) or 0)
    except AdaQuantError as error:
        print(f"adaquantfl: {error}", file=sys.stderr)
        return 1
    except ModuleNotFoundError as error:
        if error.name not in EXTRAS:
            raise
        print(f"adaquantfl: {sentence(error.name)}", file=sys.stderr)
        return 1
    except OSError as error:
        where = f": {error.filename}" if error.filename else ""
        print(f"adaquantfl: {error.strerror or error}{where}. Nothing that was saved before is lost.", file=sys.stderr)
        return 1
    except (MemoryError, RuntimeError) as error:
        _, failed, size = str(error).rpartition(_PYTORCH_MEMORY)
        if not (failed or isinstance(error, MemoryError)):
            raise
        said = f" ({size})" if size else ""
        print(f"adaquantfl: There is not enough memory{said}. Nothing that was saved before is lost.", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
