"""Python files of the user's own that a configuration names: FILE.py:NAME, for a task, a rule or a quantizer.

In a configuration in memory the path is absolute, since other processes read it. In a TOML file it is relative to that
file, so that a run's folder and the file may move together. The digest of each file is in the configuration too.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from pathlib import Path, PurePath
from types import ModuleType
from typing import Any

from ..errors import OWN_MODULE, AdaQuantError, ConfigError, TaskError, own_place

METHODS = ("rule", "quantizer", "step", "downlink")  # whose tables may name a file, with its digest
KEYS = ("task", *METHODS)
FUNCTION = "task"  # of a task, where none is named
_EXAMPLES = {"task": "my_task.py:task"} | {key: f"my_{key}.py:My{key.title()}" for key in (*METHODS, "compressor")}


@dataclass(frozen=True)
class OwnFile:
    """A file, and what in it is meant. key: of the configuration, which names it."""

    path: Path
    name: str
    key: str = "task"

    @staticmethod
    def of(text: str, folder: str | Path = "", key: str = "task") -> OwnFile:
        """What `text` names, seen from `folder`: a file and a name in it, or the task of another package by its name.

        >>> str(OwnFile.of("tasks/mine.py:task", "/home/me"))
        '/home/me/tasks/mine.py:task'
        >>> OwnFile.of("mine.py").name
        'task'
        """
        if key == "task" and (point := _from_packages().get(text)):
            spec = find_spec(point.module)
            if spec is None or not spec.origin or not spec.origin.endswith(".py"):
                raise TaskError(f"The task {text!r} is in {point.module}, which is no Python file that can be found.")
            return OwnFile(Path(spec.origin), point.attr)
        bare = key == "task" and text.endswith(".py")
        path, _, name = (text, "", FUNCTION) if bare else text.rpartition(":")
        if not path.endswith(".py") or not name.isidentifier():
            kind = "function" if key == "task" else "class"
            raise ConfigError(
                f"{key} = {text!r}: expected a Python file and a {kind} in it, such as {_EXAMPLES[key]!r}."
            )
        return OwnFile(Path(os.path.abspath(os.path.join(folder, path))), name, key)

    def __str__(self) -> str:
        return f"{self.path}:{self.name}"

    def seen_from(self, folder: Path) -> str:
        """The way to write it in a TOML file in `folder`."""
        relative = os.path.relpath(self.path, folder.absolute())
        return f"{Path(relative).as_posix()}:{self.name}"

    def read(self) -> bytes:
        """The file's content."""
        try:
            return self.path.read_bytes()
        except FileNotFoundError:
            raise TaskError(
                f"There is no file {self.path}, which the {self.key} is in. Check its name; where clients run on "
                "several hosts, each of them needs it."
            ) from None
        except OSError as error:
            raise TaskError(f"{self.path}, which the {self.key} is in, cannot be read: {error.strerror}.") from None

    def checked(self, sha256: str) -> bytes:
        """The file's content; TaskError where it has another digest. "": any will do."""
        source = self.read()
        if sha256 and digest(source) != sha256:
            raise TaskError(
                f"{self.path} is not the file that this run began with: it has changed, or another host has another "
                f"version of it. Put that one back (a run's folder keeps a copy in {self.key}/), or start a new run."
            )
        return source

    def run(self, source: bytes) -> ModuleType:
        """The file as a module. Its neighbours can be imported from it, as with `python FILE.py`."""
        module = ModuleType(OWN_MODULE + self.path.stem)
        module.__file__ = str(self.path)
        sys.modules[module.__name__] = module  # dataclasses and pickle look for it there
        if str(self.path.parent) not in sys.path:
            sys.path.insert(0, str(self.path.parent))
        with blamed(self.path, f"{self.path.name} cannot be run"):
            exec(compile(source, self.path, "exec"), vars(module))
        return module


@contextmanager
def blamed(path: Path, what: str, error: type[AdaQuantError] = TaskError) -> Iterator[None]:
    """Make what the user's code raises a sentence: what was being done, the error, and the line of the file."""
    try:
        yield
    except AdaQuantError:
        raise
    except (Exception, SystemExit) as raised:
        in_text = isinstance(raised, SyntaxError) and raised.filename == str(path)  # its text says which line
        place = "" if in_text else own_place(raised) or f" (called from {path.name})"
        raise error(f"{what}: {type(raised).__name__}: {raised}{place}.") from raised


def names_file(text: object) -> bool:
    """Whether this is FILE.py:NAME.

    >>> names_file("my_rule.py:MyRule"), names_file("adaquant")
    (True, False)
    """
    return isinstance(text, str) and ".py:" in text


def short(text: str) -> str:
    """What a reader calls it: the name in the file; any other name as it is.

    >>> short("/home/me/my_rule.py:MyRule"), short("4bit")
    ('MyRule', '4bit')
    """
    return text.rpartition(":")[2] if names_file(text) else text


def without_folder(text: str) -> str:
    """The file's name without the way to it, which depends on where the run's folder is.

    >>> without_folder("../../my_rule.py:MyRule"), without_folder("4bit")
    ('my_rule.py:MyRule', '4bit')
    """
    return PurePath(text).name if ".py" in text else text


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
    """Of a file's content, as the key KEY_sha256 has it."""
    return hashlib.sha256(source).hexdigest()


def named(values: Mapping[str, Any], folder: str | Path = "") -> dict[str, OwnFile]:
    """The files that a configuration's keys name, by key."""
    found = {}
    for key in KEYS:
        text = values.get(key)
        text = text.get("name") if isinstance(text, Mapping) else text
        if isinstance(text, str) and text and (key == "task" or names_file(text)):
            found[key] = OwnFile.of(text, folder, key)
    return found


def settled(values: Mapping[str, Any], folder: str | Path) -> dict[str, Any]:
    """The keys of a TOML file in `folder` with absolute paths, and the digests of what is in the files now."""
    complete = dict(values)
    for key, file in named(values, folder).items():
        if key == "task":
            complete |= {"task": str(file), "task_sha256": values.get("task_sha256") or digest(file.read())}
        else:
            table = values[key] if isinstance(values[key], Mapping) else {}
            complete[key] = {**table, "name": str(file), "sha256": table.get("sha256") or digest(file.read())}
    return complete


def as_written(values: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """The way back: the keys as a TOML file in `folder` has them."""
    written = dict(values)
    for key, file in named(values).items():
        name = file.seen_from(folder)
        written[key] = {**values[key], "name": name} if isinstance(values[key], Mapping) else name
    return written
