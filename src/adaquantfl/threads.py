"""How the core's work is shared among threads: contiguous ranges of it, on a small pool.

The core runs without the GIL and every unit of work is independent, so results never depend on the number of threads.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

_lock = threading.Lock()
_pool: ThreadPoolExecutor | None = None
_pool_owner: tuple[int, int] | None = None  # (pid, size): a forked child must not use its parent's pool
_threads: int | None = None


def get_threads() -> int:
    """Return the number of threads that the core may use: `set_threads`, else ADAQUANTFL_THREADS, else all cores.

    >>> get_threads() >= 1
    True
    """
    if _threads is not None:
        return _threads
    setting = os.environ.get("ADAQUANTFL_THREADS", "")
    if setting.isdigit() and int(setting) > 0:
        return int(setting)
    return cores()


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def set_threads(threads: int | None) -> None:
    """Use `threads` threads in this process from now on; None restores the default.

    Choose 1 where several processes already fill the cores. Results are the same for any number.

    >>> set_threads(2); get_threads()
    2
    >>> set_threads(None)
    """
    global _threads
    if threads is not None and threads < 1:
        raise ValueError(f"set_threads({threads}): a number of threads is at least 1, or None for the default.")
    _threads = threads


def over_ranges(work: Callable[[int, int], None], units: int, smallest: int) -> None:
    """Call `work(first, last)` on ranges that together cover `units`, none smaller than `smallest` but the last."""
    threads = min(get_threads(), units // max(1, smallest))
    if threads <= 1:
        work(0, units)
        return
    edges = [units * i // threads for i in range(threads + 1)]
    pool = _executor(threads)
    futures, here = [], [(edges[0], edges[1])]  # the caller's own thread takes the first range
    for first, last in pairwise(edges[1:]):
        try:
            futures.append(pool.submit(work, first, last))
        except RuntimeError:  # no more threads can be started
            here.append((first, last))
    try:
        for first, last in here:
            work(first, last)
    finally:
        wait(futures)  # all of them, also where one has failed: the caller may give their memory to others
    for future in futures:
        future.result()


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Ctrl-C and SIGTERM wait until the block is over: threads may be at work in the caller's memory."""
    held: list[tuple[Any, ...]] = []
    before: dict[signal.Signals, Any] = {}
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM):
            if callable(handler := signal.getsignal(number)):
                before[number] = handler
                signal.signal(number, lambda *about: held.append(about))
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    for about in held:
        before[signal.Signals(about[0])](*about)


def _executor(threads: int) -> ThreadPoolExecutor:
    global _pool, _pool_owner
    with _lock:
        if _pool is None or _pool_owner is None or _pool_owner[0] != os.getpid() or _pool_owner[1] < threads:
            _pool = ThreadPoolExecutor(threads, thread_name_prefix="adaquantfl")
            _pool_owner = (os.getpid(), threads)
        return _pool
