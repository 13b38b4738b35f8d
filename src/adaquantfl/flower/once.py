"""Log a thing once: what is true of a fleet in round 1 is true of it in round 1000."""

from __future__ import annotations

from logging import Logger


class Once:
    """Warns, but about each subject only the first time."""

    def __init__(self, logger: Logger) -> None:
        self._logger, self._said = logger, set[str]()

    def __call__(self, subject: str, text: str, *values: object) -> None:
        if subject not in self._said:
            self._said.add(subject)
            self._logger.warning(text, *values)
