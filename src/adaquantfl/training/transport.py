"""Ways to bring bytes here that give up early: bounded downloads, bounded unpacking, other programs.

Whatever goes wrong is a SourceError with one clause that says why; the caller then tries its next source.
"""

import gzip
import http.client
import os
import shutil
import subprocess
import tarfile
import urllib.error
import urllib.request
import zlib
from collections.abc import Callable, Collection
from pathlib import Path
from typing import TypeAlias

Progress: TypeAlias = Callable[[str, int, int], None]
"""Called with what is going on, bytes done, and bytes in all (0 where that is unknown)."""

SILENCE_SECONDS = 5.0  # how long a site may take to answer, or to send its next bytes
PROGRAM_SECONDS = 1800.0  # a package manager shows no sign of life that could be bounded more tightly
_CHUNK = 1 << 18


class SourceError(Exception):
    """This source cannot give the data set; the message is the reason, without a full stop."""


def download(url: str, path: Path, limit: int, progress: Progress) -> None:
    """Fetch `url` into `path`; more than `limit` bytes, silence or an early end is a SourceError."""
    name = url.rsplit("/", 1)[-1]
    request = urllib.request.Request(url, headers={"User-Agent": "adaquantfl"})
    try:
        with urllib.request.urlopen(request, timeout=SILENCE_SECONDS) as answer, path.open("wb") as file:
            total = int(answer.headers.get("Content-Length") or 0)
            done = 0
            progress(name, 0, total)
            while chunk := answer.read(_CHUNK):
                done += len(chunk)
                if done > limit:
                    raise SourceError(f"{name} has more than {limit:,} bytes, which cannot be the data set")
                file.write(chunk)
                progress(name, done, total)
    except (OSError, ValueError, http.client.HTTPException) as error:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        raise SourceError(f"{name}: {reason}") from error
    if total and done != total:
        raise SourceError(f"{name} ended after {done:,} of {total:,} bytes")


def gunzip(path: Path, size: int) -> bytes:
    """The content of a .gz file, which must be `size` bytes: never unpacks more than one byte too many."""
    unpacker = zlib.decompressobj(wbits=31)
    try:
        content = unpacker.decompress(path.read_bytes(), size + 1)
    except FileNotFoundError as error:
        raise SourceError(f"{path.name} is not there") from error
    except zlib.error as error:
        raise SourceError(f"{path.name} is not a whole .gz file ({error})") from error
    if len(content) > size:
        raise SourceError(f"{path.name} unpacks to more than {size:,} bytes")
    if not unpacker.eof:
        raise SourceError(f"{path.name} is cut short")
    return content


def untar(path: Path, wanted: Collection[str], limit: int) -> dict[str, bytes]:
    """The wanted members of a .tar.gz, by base name. Stops once members pass `limit` bytes in all."""
    found: dict[str, bytes] = {}
    total = 0
    try:
        with tarfile.open(path, "r:gz") as archive:
            for member in archive:
                total += member.size
                if total > limit:
                    raise SourceError(f"{path.name} unpacks to more than {limit:,} bytes")
                name = member.name.rsplit("/", 1)[-1]
                content = archive.extractfile(member) if name in wanted else None
                if content is not None:
                    found[name] = content.read()
    except FileNotFoundError as error:
        raise SourceError(f"{path.name} is not there") from error
    except (tarfile.TarError, gzip.BadGzipFile, zlib.error, EOFError) as error:
        raise SourceError(f"{path.name} is not a whole .tar.gz file ({error})") from error
    if missing := [name for name in wanted if name not in found]:
        raise SourceError(f"{path.name} has no {missing[0]}")
    return found


def run(command: list[str], folder: Path) -> None:
    """Run another program in `folder`; its last words become the reason when it fails."""
    program = shutil.which(command[0])
    if program is None:
        raise SourceError(f"{command[0]} is not installed")
    try:
        ended = subprocess.run(
            [program, *command[1:]],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=PROGRAM_SECONDS,
            env={**os.environ, "LC_ALL": "C"},
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SourceError(f"{command[0]} could not be run ({error})") from error
    if ended.returncode:
        words = [line.strip() for line in ended.stderr.splitlines() if line.strip()]
        said = f": {words[-1][:200]}" if words else ""
        raise SourceError(f"`{' '.join(command)}` ended with code {ended.returncode}{said}")


def only_file(folder: Path, pattern: str) -> Path:
    """The one file in `folder` that a program was asked to leave there."""
    files = sorted(folder.glob(pattern))
    if not files:
        raise SourceError(f"no {pattern} was left behind")
    return files[0]
