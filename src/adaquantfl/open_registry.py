"""A table of named things that other packages can add to.

Some are built in. Others come from the entry points of installed packages, or from `register`. All are loaded
together, when the table is first asked.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, is_dataclass
from typing import Any, Generic, TypeVar

from .errors import AdaQuantError, CheckpointError
from .names import unknown

T = TypeVar("T")
Facts = Callable[[object], tuple[str, Iterable[int]]]
_NAME = re.compile(r"[a-z0-9][a-z0-9_.-]*")
_OURS = "adaquantfl"
OUTSIDE_TAGS = range(128, 255)  # of other packages; lower ones are this package's, 255 means float32 values


class Registry(Generic[T]):
    """The table of one kind of thing.

    group: of the entry points. built_in: makes or imports the built-in things, when they are first asked for. facts:
    the name of a thing, and its tags on the wire. It raises `error` where the thing is of another kind.
    """

    def __init__(
        self, kind: str, group: str, built_in: Callable[[], Iterable[T]], facts: Facts, error: type[AdaQuantError]
    ) -> None:
        self._kind, self._group, self._built_in = kind, group, built_in
        self._facts, self._error = facts, error
        self._lock = threading.RLock()
        self.forget()

    def forget(self) -> None:
        """Look for everything again when next asked: packages may have come or gone."""
        with self._lock:
            self._named: dict[str, T] = {}
            self._tagged: dict[int, T] = {}
            self._owners: dict[str, str] = {}
            self._broken: dict[str, str] = {}  # name of an entry point -> why it cannot be used
            self._loaded = False

    def find(self, wanted: str | T) -> T:
        """The thing of this name, or the thing itself, which is then registered."""
        if not isinstance(wanted, str):
            return self.register(wanted)
        self._load()
        if wanted not in self._named:
            raise self._error(self._broken.get(wanted) or unknown(self._kind, wanted, self._named))
        return self._named[wanted]

    def by_tag(self, tag: int) -> T | None:
        """The thing with this tag; None where there is none."""
        self._load()
        return self._tagged.get(tag)

    def broken(self, name: str) -> str:
        """Why the thing that another package brings by this name cannot be used; empty where there is none."""
        self._load()
        return self._broken.get(name, "")

    def names(self) -> tuple[str, ...]:
        """All names, the built-in ones first."""
        self._load()
        return tuple(self._named)

    def register(self, item: T) -> T:
        """Add a thing of another package; the same one again changes nothing. A taken name or tag is an error."""
        self._load()
        if self._named.get(self._facts(item)[0]) is not item:
            kind = item if isinstance(item, type) else type(item)
            self._add(item, f"{kind.__module__}.{kind.__qualname__}")
        return item

    def _load(self) -> None:
        with self._lock:  # other threads wait here until all are loaded
            if self._loaded:
                return
            self._loaded = True  # a module that registers something while it is imported does not start again
            try:
                for item in self._built_in():
                    self._add(item, _OURS)
                self._load_entry_points()
            except BaseException:  # all or none: the next call says the same
                self.forget()
                raise

    def _load_entry_points(self) -> None:
        from importlib.metadata import entry_points  # slow to import

        for point in entry_points(group=self._group):
            owner = f"the package {point.dist.name}" if point.dist else f"the entry point {point.value}"
            try:
                item = point.load()
                self._facts(item)
            except Exception as error:  # only who asks for it needs to know
                reason = str(error).rstrip(".")
                self._broken[point.name] = (
                    f"The {self._kind} {point.name!r} of {owner} cannot be used: {reason}. Update or remove it."
                )
                continue
            self._add(item, owner)

    def _add(self, item: T, owner: str) -> None:
        name, tags = self._facts(item)
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise self._error(f"The {self._kind} of {owner} is named {name!r}: use a-z, 0-9, -, _ and dots.")
        if owner != _OURS and not set(tags) <= set(OUTSIDE_TAGS):
            raise self._error(
                f"The {self._kind} {name!r} of {owner} has the tags {sorted(tags)}: those of other packages are "
                f"{OUTSIDE_TAGS[0]} to {OUTSIDE_TAGS[-1]}."
            )
        with self._lock:
            known = {f"name {name!r}": self._named.get(name), **{f"tag {tag}": self._tagged.get(tag) for tag in tags}}
            for taken, other in known.items():
                if other is not None and not _same(other, item):
                    raise self._error(
                        f"The {self._kind} {taken} is taken: {self._owners[self._facts(other)[0]]} has it, and {owner} "
                        "brings another. Change one of them."
                    )
            self._named[name], self._owners[name] = item, owner
            self._tagged = {tag: each for each in self._named.values() for tag in self._facts(each)[1]}


def describe(table: Registry[type[T]], item: T) -> dict[str, Any]:
    """An object as plain values: the name of its class, which becomes known, and its settings.

    settings: None where the object cannot be made from them again. Its class is then no dataclass and has attributes,
    or the class has no name of its own.
    """
    kind, settings = type(item), None
    try:
        known = table.register(kind) is kind
    except AdaQuantError:
        known = False
    if known and is_dataclass(item) and not isinstance(item, type):
        settings = asdict(item)
    elif known and not vars(item):
        settings = {}
    return {"name": getattr(kind, "name", kind.__name__), "settings": settings}


def rebuild(table: Registry[type[T]], description: Mapping[str, Any], kind: str) -> T:
    """The object of a description; CheckpointError where the settings do not suffice."""
    if description["settings"] is None:
        raise CheckpointError(
            f"The {kind} {description['name']!r} cannot be made from its settings. Pass the object: "
            f"restore(state, {kind}=...)."
        )
    return table.find(str(description["name"]))(**description["settings"])


def named_class(kind: type, error: type[AdaQuantError]) -> Facts:
    """The facts of things that are subclasses of `kind` with a name of their own, and have no tags."""

    def facts(item: object) -> tuple[str, Iterable[int]]:
        if not (isinstance(item, type) and issubclass(item, kind)):
            raise error(f"{item!r} is not a subclass of {kind.__name__}.")
        return str(getattr(item, "name", "")), ()

    return facts


def _same(known: object, item: object) -> bool:
    """One object, equal instances of one class, or instances of a class that was defined again, as in a notebook."""
    old, new = (one if isinstance(one, type) else type(one) for one in (known, item))
    same_place = (old.__module__, old.__qualname__) == (new.__module__, new.__qualname__)
    return same_place and (old is not new or vars(known) == vars(item))
