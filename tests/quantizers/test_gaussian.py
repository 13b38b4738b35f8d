"""The Gaussian's tables are made from what a frame says: they must not pile up."""

import tracemalloc

from adaquantfl.quantizers.gaussian import step_means


def test_tables_for_steps_that_anybody_can_ask_for_are_not_kept() -> None:
    tracemalloc.start()
    try:
        for number in range(60):  # each takes half a megabyte
            step_means(0.5 + number / 1000, 65_535)
            step_means(0.5 + number / 1000, 255)
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 2_000_000
