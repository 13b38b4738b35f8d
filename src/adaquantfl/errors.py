"""The named exceptions. Each message says what was wrong, what was expected and what to do."""


class AdaQuantError(Exception):
    """Base class of every exception that this package raises on purpose."""


class QuantizeError(AdaQuantError, ValueError):
    """The vector, the number of levels or the segments cannot be quantized."""


class FrameError(AdaQuantError, ValueError):
    """The bytes are not a well-formed frame, or not the frame that was expected."""


class ScheduleError(AdaQuantError, ValueError):
    """A schedule was set up or fed with something it has no defined answer for."""


class ConfigError(AdaQuantError, ValueError):
    """A preset, a TOML file or an override is wrong."""


class TaskError(AdaQuantError):
    """A file with a model and data of the user's own is missing, has changed, or does not give a task."""


class DataError(AdaQuantError):
    """A data set is missing, damaged or cannot be fetched."""


class CheckpointError(AdaQuantError):
    """A run directory cannot be resumed."""


class EngineError(AdaQuantError):
    """An engine lost a worker or a client."""
