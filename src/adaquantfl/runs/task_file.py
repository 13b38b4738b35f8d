"""A task of the user's own as the configuration names it: a function in a Python file, FILE.py:FUNCTION.

In a configuration in memory the path is absolute, since other processes read it; in a TOML file it is relative to
that file, so that a run's folder and the task may move together.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ..errors import ConfigError, TaskError

FUNCTION = "task"  # where none is named


@dataclass(frozen=True)
class TaskFile:
    """A file, and the function in it that gives the task."""

    path: Path
    function: str

    @staticmethod
    def of(text: str, folder: str | Path = "") -> TaskFile:
        """What `text` names, seen from `folder`: a file and its function, or the task of another package by its name.

        >>> str(TaskFile.of("tasks/mine.py:task", "/home/me"))
        '/home/me/tasks/mine.py:task'
        >>> TaskFile.of("mine.py").function
        'task'
        """
        if point := _from_packages().get(text):
            spec = find_spec(point.module)
            if spec is None or not spec.origin or not spec.origin.endswith(".py"):
                raise TaskError(f"The task {text!r} is in {point.module}, which is no Python file that can be found.")
            return TaskFile(Path(spec.origin), point.attr)
        path, _, function = text.rpartition(":") if not text.endswith(".py") else (text, "", FUNCTION)
        if not path.endswith(".py") or not function.isidentifier():
            raise ConfigError(
                f"task = {text!r}: expected a Python file and a function in it, such as 'my_task.py:task'."
            )
        return TaskFile(Path(os.path.abspath(os.path.join(folder, path))), function)

    def __str__(self) -> str:
        return f"{self.path}:{self.function}"

    def seen_from(self, folder: Path) -> str:
        """The way to write it in a TOML file in `folder`."""
        relative = os.path.relpath(self.path, folder.absolute())
        return f"{Path(relative).as_posix()}:{self.function}"

    def read(self) -> bytes:
        """The file's content."""
        try:
            return self.path.read_bytes()
        except FileNotFoundError:
            raise TaskError(
                f"There is no file {self.path}, which the task is in. Check its name; where clients run on several "
                "hosts, each of them needs it."
            ) from None
        except OSError as error:
            raise TaskError(f"{self.path}, which the task is in, cannot be read: {error.strerror}.") from None


def names_task(source: str | Path) -> bool:
    """Whether this is a task rather than a preset or a TOML file.

    >>> names_task("my_task.py:task"), names_task("my_task.py"), names_task("demo"), names_task("mine.toml")
    (True, True, False, False)
    """
    text = str(source)
    return text.endswith(".py") or ".py:" in text or text in _from_packages()


def _from_packages() -> dict[str, EntryPoint]:
    """The tasks that other packages bring: entry points of the group `adaquantfl.tasks`, MODULE:FUNCTION each."""
    return {point.name: point for point in entry_points(group="adaquantfl.tasks")}


def digest(source: bytes) -> str:
    """Of a file's content, as the key task_sha256 has it."""
    return hashlib.sha256(source).hexdigest()


def settled(values: Mapping[str, Any], folder: str | Path) -> dict[str, Any]:
    """The keys of a TOML file in `folder` with the task's absolute path, and the digest of what is in it now."""
    if not isinstance(values.get("task"), str) or not values["task"]:
        return dict(values)
    file = TaskFile.of(values["task"], folder)
    return {**values, "task": str(file), "task_sha256": values.get("task_sha256") or digest(file.read())}


def as_written(values: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """The way back: the keys as a TOML file in `folder` has them."""
    if not values.get("task"):
        return dict(values)
    return {**values, "task": TaskFile.of(values["task"]).seen_from(folder)}
