"""Work that is shared between threads: a failure waits for the others, since their memory is given to somebody else."""

from __future__ import annotations

import signal
import threading

import pytest

from adaquantfl import threads


def test_a_failure_waits_for_all_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "get_threads", lambda: 4)
    release, ended = threading.Event(), []

    def work(first: int, last: int) -> None:
        if first == 0:
            release.set()
            return
        if first == 1:
            raise ValueError("the first of the others")
        assert release.wait(60)
        ended.append(first)

    with pytest.raises(ValueError, match="the first of the others"):
        threads.over_ranges(work, 4, 1)
    assert sorted(ended) == [2, 3]


def test_an_interrupt_waits_for_the_work() -> None:
    ended: list[int] = []

    def work() -> None:
        with threads.uninterrupted():
            signal.raise_signal(signal.SIGINT)
            ended.append(1)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            work()
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)
    assert ended == [1]


def test_work_for_which_no_thread_can_be_started_is_done_here(monkeypatch: pytest.MonkeyPatch) -> None:
    class Full:
        def submit(self, *_: object) -> None:
            raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threads, "get_threads", lambda: 3)
    monkeypatch.setattr(threads, "_executor", lambda _: Full())
    done: list[tuple[int, int]] = []
    threads.over_ranges(lambda first, last: done.append((first, last)), 9, 1)
    assert done == [(0, 3), (3, 6), (6, 9)]
