"""The named exceptions. Each message says what was wrong, what was expected and what to do."""

from collections.abc import Callable
from pathlib import Path
from traceback import extract_tb, walk_tb
from typing import Any, TypeVar

T = TypeVar("T")
_PACKAGE = str(Path(__file__).parent)

OWN_MODULE = "adaquantfl_own_"  # how the names of modules from the user's own files begin


class AdaQuantError(Exception):
    """Base class of every exception that this package raises on purpose.

    >>> import adaquantfl as aq
    >>> try:
    ...     aq.bucket_lengths(dimension=10, size=0)
    ... except aq.AdaQuantError as error:
    ...     print(error)
    A bucket of 0 elements is not possible: use 1 or more.
    """


class QuantizeError(AdaQuantError, ValueError):
    """The vector, the number of levels or the segments cannot be quantized.

    >>> import numpy as np
    >>> import adaquantfl as aq
    >>> aq.quantize(np.array([0.5, np.nan]), s=3, key=1)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    adaquantfl.errors.QuantizeError: The vector has 1 NaN or infinite element(s), the first at index 1. Training has...
    """


class FrameError(AdaQuantError, ValueError):
    """The bytes are not a well-formed frame, or not the frame that was expected.

    >>> import numpy as np
    >>> import adaquantfl as aq
    >>> aq.decode(aq.compress(np.array([3.0, -4.0]), s=5, key=1), dimension=3)
    Traceback (most recent call last):
    adaquantfl.errors.FrameError: The frame has dimension 2, expected 3: sender and receiver differ in model.
    """


class RuleError(AdaQuantError, ValueError):
    """A rule was set up or fed with something it has no defined answer for.

    >>> import adaquantfl as aq
    >>> aq.Fixed(bits=32)
    Traceback (most recent call last):
    adaquantfl.errors.RuleError: bits = 32: a fixed level has a whole number of bits from 1 to 16.
    """


class ConfigError(AdaQuantError, ValueError):
    """A preset, a TOML file or an override is wrong.

    >>> from adaquantfl.runs.config import load_config
    >>> load_config("demo", {"taus": 5})  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    adaquantfl.errors.ConfigError: demo: There is no key named 'taus'. Did you mean 'tau'? The valid names are: ...
    """


class Refused(AdaQuantError):
    """A message was not accepted; the receiver's state is as it was before.

    >>> import numpy as np
    >>> import adaquantfl as aq
    >>> server = aq.Server(np.zeros(4, dtype=np.float32))
    >>> orders = server.open([0, 1])
    >>> server.receive(2, b"")
    Traceback (most recent call last):
    adaquantfl.errors.Refused: Client 2 was not asked in this round.
    """


class ModelNeeded(Refused):
    """A client does not hold the model that an order starts from: send it `Server.order(client, holds=None)`.

    >>> import numpy as np
    >>> import adaquantfl as aq
    >>> server, client = aq.Server(np.zeros(400, dtype=np.float32)), aq.Client(0)
    >>> weights = client.open(server.open([0])[0])
    >>> server.receive(0, client.reply(weights + 1, loss=2.3))
    >>> round, restarted = server.close(), aq.Client(0)
    >>> order = server.open([0])[0]
    >>> restarted.open(order)
    Traceback (most recent call last):
    adaquantfl.errors.ModelNeeded: The order starts from the model of round 0, but this client has no model.
    >>> len(restarted.open(server.order(0, holds=None)))
    400
    """


class TaskError(AdaQuantError):
    """A file with a model and data of the user's own is missing, has changed, or does not give a task.

    >>> from adaquantfl.runs.config import load_config
    >>> load_config("no_such_file.py:task")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    adaquantfl.errors.TaskError: ...
    """


class DataError(AdaQuantError):
    """A data set is missing, damaged or cannot be fetched.

    >>> from adaquantfl.training.catalogue import find
    >>> find("cifar10")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    adaquantfl.errors.DataError: There is no data set named 'cifar10'. Did you mean 'cifar-10'? The valid names are: ...
    """


class CheckpointError(AdaQuantError):
    """A run directory cannot be resumed.

    >>> from pathlib import Path
    >>> from adaquantfl.runs.directory import RunDirectory
    >>> RunDirectory(Path("nowhere")).resume({})  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    adaquantfl.errors.CheckpointError: nowhere holds no run (no config.toml). Name the run's folder, the one given ...
    """


class EngineError(AdaQuantError):
    """An engine lost a worker or a client.

    >>> from adaquantfl.protocol.cohort import Cohort
    >>> Cohort(least=4).check({1: "no answer."}, asked=4, when="Round 3")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    adaquantfl.errors.EngineError: Round 3: 3 of 4 clients answered, but min_clients = 4. Missing: ...
    """


class Diverged(EngineError):
    """Training has diverged. The run is repeatable, so that resuming it would end in the same way.

    >>> from adaquantfl.protocol.cohort import Cohort
    >>> Cohort().check({0: "its loss is nan."}, asked=1, when="Round 3", error=Diverged)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    adaquantfl.errors.Diverged: Round 3: 0 of 1 clients answered, but all of them are needed (min_clients = 0)...
    """


def reason_of(error: Exception) -> str:
    """Why a client failed, in a sentence: our own errors speak for themselves, others get their place in the code."""
    if isinstance(error, AdaQuantError):
        return str(error)
    places = extract_tb(error.__traceback__)
    last = f" ({Path(places[-1].filename).name}, line {places[-1].lineno})" if places else ""
    return f"it raised {type(error).__name__}: {error}{own_place(error) or last}."


def place_of(function: object) -> str:
    """Where a method is written, in brackets: " (my_step.py, line 12)"; empty where that is not known."""
    code = getattr(getattr(function, "__func__", function), "__code__", None)
    return f" ({Path(code.co_filename).name}, line {code.co_firstlineno})" if code else ""


def returned(method: Callable[..., Any], value: Any, expected: str, what: str = "") -> str:
    """What to say of a method that a user may have brought, where it returned something else than expected."""
    shown = repr(value)
    shown = shown if len(shown) <= 80 else f"{shown[:77]}..."
    return f"{method.__qualname__}{place_of(method)} returned {what}{shown}; expected {expected}."


def called(what: str, method: Callable[..., T], *arguments: Any) -> T:
    """Call a method that a user may have brought; ConfigError with its file and line where it raises something else.

    what: words for it, such as "The server step 'mine'".
    """
    try:
        return method(*arguments)
    except (AdaQuantError, MemoryError):
        raise
    except Exception as error:
        said = f"{getattr(method, '__name__', 'it')} raised {type(error).__name__}: {error}"
        raise ConfigError(f"{what}: {said}{raised_at(error, method)}.") from error


def raised_at(error: BaseException, method: object) -> str:
    """Where a user's own code raised, in brackets: the first line outside this package, or else the method's."""
    outside = [one for one in extract_tb(error.__traceback__) if not one.filename.startswith(_PACKAGE)]
    where = f" ({Path(outside[0].filename).name}, line {outside[0].lineno})" if outside else place_of(method)
    return own_place(error) or where


def own_place(error: BaseException) -> str:
    """The last line of a user's own file that the error came through, in brackets; empty where there is none."""
    frames = zip(walk_tb(error.__traceback__), extract_tb(error.__traceback__), strict=True)
    own = [place for (frame, _), place in frames if str(frame.f_globals.get("__name__", "")).startswith(OWN_MODULE)]
    return f" ({Path(own[-1].filename).name}, line {own[-1].lineno}: {own[-1].line})" if own else ""
