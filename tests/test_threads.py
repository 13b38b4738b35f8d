"""Work that is shared between threads: a failure waits for the others, since their memory is given to somebody else."""

from __future__ import annotations

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
