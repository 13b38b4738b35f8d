"""Bring a data set to this machine: try its sources in order, check every byte, then cache it in one step."""

import shutil
import tempfile
import time
from pathlib import Path

from ..errors import DataError
from . import cache
from .catalogue import Spec, find
from .layouts import Arrays, MismatchError, pack, unpack, verify
from .sources import TO_PLACE, Source, hand_folder, sources_of
from .transport import Progress, SourceError

_STALE_SECONDS = 24 * 3600  # no get takes this long: what is older was left by one that was killed


def get(name: str, *, progress: Progress | None = None, force: bool = False) -> Path:
    """Fetch a data set into the cache and return its file. If it is there and whole, nothing is fetched.

    `progress(what, done, total)` is called for every step; total is 0 where it is unknown. `force` fetches anew.
    When every source fails, one DataError lists each of them and why.
    """
    spec = find(name)
    tell = progress or _ignore
    path = cache.path_of(spec)
    if spec.bundled or not force:
        try:
            verify(spec, pack(spec, cache.read(spec)))
            return path
        except (DataError, MismatchError) as error:
            if spec.bundled:
                raise DataError(f"{path} is damaged: install adaquantfl again.") from error
            if path.exists():
                tell(f"{path} is damaged and is fetched anew", 0, 0)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _sweep(path.parent)
        arrays = _first_that_works(spec, path.parent, tell)
        tell(f"writing {path}", 0, 0)
        cache.write(path, arrays)
    except OSError as error:
        raise DataError(
            f"{name} cannot be written to {path.parent} ({error}). Expected a writable folder with "
            f"about {4 * spec.size >> 20} MiB free: make room there, or choose another folder with the "
            "environment variable ADAQUANTFL_DATA."
        ) from error
    return path


def _first_that_works(spec: Spec, folder: Path, tell: Progress) -> Arrays:
    failures = []
    for source in sources_of(spec):
        tell(f"{spec.name}: trying {source.title}", 0, 0)
        try:
            return _fetch(spec, source, folder, tell)
        except SourceError as error:
            failures.append(f"{source.title}: {error}")
            tell(f"{spec.name}: {error}", 0, 0)
    tried = "\n".join(f"  - {failure}" for failure in failures)
    raise DataError(
        f"{spec.name} could not be fetched. These sources were tried:\n{tried}\n"
        f"Try again with a network connection, or place {TO_PLACE[spec.name]} in {hand_folder(spec)} "
        f"and run: adaquantfl data get {spec.name}"
    )


def _fetch(spec: Spec, source: Source, folder: Path, tell: Progress) -> Arrays:
    with tempfile.TemporaryDirectory(prefix=".partial-", dir=folder, ignore_cleanup_errors=True) as work:
        try:
            raw = source.fetch(spec, Path(work), tell)
            tell(f"{spec.name}: checking", 0, 0)
            verify(spec, raw)
        except SourceError:
            raise
        except MismatchError as error:
            raise SourceError(f"{error}, so it is not the published file") from error
        except Exception as error:
            # A stranger's bytes can break a parser in any way: that is this source's failure, not the user's.
            raise SourceError(f"it cannot be read ({type(error).__name__}: {error})") from error
    return unpack(spec, raw)


def _sweep(folder: Path) -> None:
    """Delete what a killed get left behind; it never counted as data, it only takes room."""
    for path in folder.glob(".partial-*"):
        try:
            if time.time() - path.stat().st_mtime < _STALE_SECONDS:
                continue
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink()
        except OSError:
            continue  # another get was faster


def _ignore(_: str, __: int, ___: int) -> None:
    """Progress that nobody watches."""
