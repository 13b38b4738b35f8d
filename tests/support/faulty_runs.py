"""Plays short runs on a machine that fails: python -m support.faulty_runs FOLDER ENGINE KIND[=N,N]...

KIND is one of FAULTS or "power". The n-th such call of a run fails, for each N, or for every one that there is, which a
first run without faults counts. "power" is a power loss at the n-th sync, rename or removal, in each of the ways of
LOSSES. "resumed-KIND" is a fault while a run is resumed that was killed after its first checkpoint. Then the run is
resumed, or started again where there is nothing to resume. A line of JSON says how each of them ended. Children are
forked before any thread is started, so that the libraries are imported only once.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import json
import os
import shutil
import stat
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

SETTINGS = {
    "model": "mlp", "clients": 2, "tau": 1, "rounds": 3, "checkpoint_every": 2, "loss_samples": 16, "workers": 1,
    "rule": "2bit", "quantizer": "nearest", "evaluate_every": 3, "batch_size": 16,
}  # fmt: skip
DAY = 86_400
NO_JUMP = 98  # exit code of a child whose clock did not do what it should
FAULTS = {  # what faults.c calls the call, and what it fails with, or the seconds by which the clock jumps
    "full": (1, errno.ENOSPC), "write": (1, errno.EIO), "sync": (2, errno.EIO), "rename": (3, errno.EIO),
    "allocation": (4, errno.ENOMEM), "clock-ahead": (5, DAY), "clock-back": (5, -DAY),
}  # fmt: skip
ALLOCATION_STEP = 17  # there are a thousand, and a round's are those of every other round
LOSSES = ("unsynced", "contents", "halves")  # what a power loss takes: see `Disk.after_power_loss`


def build(folder: Path) -> Path | None:
    """The library for LD_PRELOAD; None where there is no C compiler."""
    compiler, library = shutil.which("cc"), folder / "faults.so"
    if compiler is None or sys.platform != "linux":
        return None
    source = Path(__file__).with_name("faults.c")
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", library, source, "-ldl"], check=True)
    return library


class Disk:
    """What of a folder would be there after a power loss: synced contents, under names whose folder was synced."""

    def __init__(self, root: Path, stop_at: int, loss: str) -> None:
        self.root, self.stop_at, self.loss = root, stop_at, loss
        self.events = 0
        self.contents: dict[int, bytes] = {}  # inode -> what was synced
        self.names: dict[Path, dict[str, int]] = {}  # folder -> its names, when it was synced
        for one in [root, *root.rglob("*")] if root.exists() else ():  # what an earlier process left, long ago
            if one.is_dir():
                self.names[one] = {inside.name: inside.stat().st_ino for inside in one.iterdir()}
            else:
                self.contents[one.stat().st_ino] = one.read_bytes()
        self.syncs, self.replaces, self.unlinks = os.fsync, os.replace, os.unlink
        os.fsync, os.replace, os.unlink = self.fsync, self.replace, self.unlink  # type: ignore[assignment]

    def fsync(self, handle: int) -> None:
        self.event()
        path = Path(os.readlink(f"/proc/self/fd/{handle}"))
        if path.is_dir():
            self.names[path] = {one.name: one.stat().st_ino for one in path.iterdir()}
        else:
            self.contents[os.fstat(handle).st_ino] = path.read_bytes()

    def replace(self, source: Any, target: Any) -> None:
        self.event()
        self.replaces(source, target)

    def unlink(self, path: Any, **options: Any) -> None:
        self.event()
        self.unlinks(path, **options)

    def event(self) -> None:
        self.events += 1
        if self.events == self.stop_at:
            self.after_power_loss(self.root.with_name("after"))
            os._exit(0)

    def after_power_loss(self, to: Path) -> None:
        """Write what is left. "unsynced": nothing else. "contents": names are there early. "halves": half of each."""
        to.mkdir()
        self._leave(self.root, to)

    def _leave(self, folder: Path, to: Path) -> None:
        there = {one.name: one.stat() for one in folder.iterdir()} if folder.exists() else {}
        names = {name: found.st_ino for name, found in there.items()}
        inodes = {found.st_ino: folder / name for name, found in there.items()}
        for name, inode in (self.names.get(folder, {}) if self.loss == "unsynced" else names).items():
            now = inodes.get(inode)
            if now is not None and stat.S_ISDIR(now.stat().st_mode):
                (to / name).mkdir()
                self._leave(now, to / name)
                continue
            kept = self.contents.get(inode, b"")
            if self.loss == "halves" and now is not None:
                new = now.read_bytes()
                kept = new[: max(len(kept), len(new) // 2)] if new.startswith(kept) else kept
            (to / name).write_bytes(kept)


def in_child(play: Callable[[], int], said: Path) -> int:
    """The exit code of a forked child that plays; 99 after a traceback."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    code = 99
    try:
        handle = os.open(said, os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
        os.dup2(handle, 1)
        os.dup2(handle, 2)
        code = play()
        sys.stderr.flush()
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def with_thread_clients() -> None:
    """Have the gloo engine's clients play as threads of its process: they need not import PyTorch each time."""
    from adaquantfl.engines.gloo import client, launch, rendezvous
    from adaquantfl.engines.gloo.engine import GlooEngine

    def start(config: Any) -> GlooEngine:
        store = rendezvous.host_store("127.0.0.1")
        engine = GlooEngine(config, store)

        def play(number: int) -> None:
            with contextlib.suppress(Exception):
                client.play(rendezvous.open_store("127.0.0.1", store.port, 60), "127.0.0.1", number)

        for number in range(config.clients):
            threading.Thread(target=play, args=(number,), daemon=True).start()
        return engine

    launch.start_here = start  # type: ignore[assignment]


class Machine:
    """Plays runs into a folder, with a fault in the first one."""

    def __init__(self, folder: Path, engine: str, kind: str) -> None:
        from adaquantfl.cli import main

        self.main, self.folder, self.kind = main, folder, kind.removeprefix("resumed-")
        self.name, self.killed = kind, folder / "killed" if kind.startswith("resumed-") else None
        self.out, self.said = folder / "run", folder / "said.txt"
        self.end = ["--engine", engine, "--quiet"]
        self.new = ["run", "demo", *(f"--set={key}={value}" for key, value in SETTINGS.items()), "--out", str(self.out)]
        self.again = ["run", "--resume", str(self.out)]
        if self.killed and not self.killed.exists():
            shutil.rmtree(self.out, ignore_errors=True)
            in_child(self.play_until_killed, self.said)
            self.out.rename(self.killed)

    def play_until_killed(self) -> int:
        """Stop at once after the first checkpoint."""
        from adaquantfl import checkpoint

        save = checkpoint.save

        def save_and_stop(*arguments: Any) -> None:
            save(*arguments)
            os._exit(0)

        checkpoint.save = save_and_stop  # type: ignore[assignment]
        return self.main([*self.new, *self.end])

    def prepare(self) -> list[str]:
        """Make the folder as it is before the fault; returns the command to play."""
        shutil.rmtree(self.out, ignore_errors=True)
        if self.killed is None:
            return self.new
        shutil.copytree(self.killed, self.out)
        return self.again

    def play(self, nth: int, loss: str = "") -> tuple[int, str, int]:
        """The exit code, what was said, and how many calls there were that could have failed."""
        count, command = self.folder / "count", self.prepare()
        count.write_text("0")

        def run() -> int:
            if self.kind == "power":
                disk = Disk(self.out, nth, loss)
                code = self.main([*command, *self.end])
                count.write_text(str(disk.events))
                return code
            library = ctypes.CDLL(None)
            library.faults_disarm.restype = ctypes.c_long
            (call, error), began = FAULTS[self.kind], time.time()
            library.faults_arm(str(self.out).encode(), call, ctypes.c_long(nth), error)
            code = self.main([*command, *self.end])
            count.write_text(str(library.faults_disarm()))
            jumped = abs(time.time() - began) > DAY / 2
            return code if jumped == (abs(error) == DAY and nth > 0) else NO_JUMP

        code = in_child(run, self.said)
        if self.kind == "power" and (self.folder / "after").exists():
            shutil.rmtree(self.out, ignore_errors=True)
            (self.folder / "after").rename(self.out)
        return code, self.said.read_text(), int(count.read_text())

    def resume(self) -> tuple[int, str]:
        """The exit code and what was said by `run --resume`; by `run` where it says that there is no run."""
        code = in_child(lambda: self.main([*self.again, *self.end]), self.said)
        said = self.said.read_text()
        if code == 1 and "holds no run" in said:
            code = in_child(lambda: self.main([*self.new, *self.end]), self.said)
            said += self.said.read_text()
        return code, said

    def model(self) -> str:
        """The digest of the model, where the run is finished."""
        with contextlib.suppress(OSError, ValueError):
            return str(json.loads((self.out / "summary.json").read_text())["model_sha256"])
        return ""

    def cases(self, numbers: list[int]) -> Iterator[dict[str, Any]]:
        """How each fault ends; the first case has none."""
        code, said, calls = self.play(0)
        yield {"fault": "none", "code": code, "said": said, "calls": calls, "model": self.model()}
        yield from self.faults(numbers, calls)

    def faults(self, numbers: list[int], calls: int = 0) -> Iterator[dict[str, Any]]:
        """How each fault ends. calls: that a run makes, where no numbers are given."""
        step = ALLOCATION_STEP if self.kind == "allocation" else 1
        for nth in numbers or range(1, calls + 1, step):
            for loss in LOSSES if self.kind == "power" else ("",):
                code, said, _ = self.play(nth, loss)
                before = self.model()
                again, words = self.resume()
                yield {
                    "fault": f"{self.name} {nth} {loss}".strip(), "code": code, "said": said, "early": before,
                    "resumed": again, "resumed said": words, "model": self.model(),
                }  # fmt: skip


def main() -> None:
    folder, engine, *kinds = sys.argv[1:]
    import torch._dynamo  # noqa: F401 (optimizers import it when the first one is made)

    import adaquantfl.engines.local
    import adaquantfl.report.progress
    import adaquantfl.runs.loop  # noqa: F401

    if engine == "gloo":
        with_thread_clients()
    for place, (kind, _, text) in enumerate(kind.partition("=") for kind in kinds):
        machine, numbers = Machine(Path(folder), engine, kind), [int(number) for number in text.split(",") if number]
        for case in machine.faults(numbers) if place and numbers else machine.cases(numbers):
            print(json.dumps(case), flush=True)


if __name__ == "__main__":
    main()
