"""The table of the dense codec against the rules of its docstrings, written plainly."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
from adaquantfl.codecs.dense_table import Reader, Table
from adaquantfl.codecs.kernels.tables import SLOTS
from hypothesis import assume, given
from hypothesis import strategies as st

Found = tuple[float, list[tuple[int, int]]]  # bits, and (lowest level, width) of each interval


def cheapest(counts: np.ndarray, widest: int) -> list[tuple[int, int]]:
    s, total = len(counts) // 2, int(counts.sum())
    half = 1 << int(np.abs(np.flatnonzero(counts) - s).max()).bit_length()

    def best(lowest: int, e: int) -> Found:
        fits = -s <= lowest and lowest + (1 << e) <= s + 1
        inside = int(counts[max(lowest + s, 0) : max(lowest + s + (1 << e), 0)].sum())
        if not inside:
            return 0.0, []
        large = max(inside, total / SLOTS)
        whole = inside * (e + math.log2(total / large)) + 12 + (large - inside) / math.log(2)
        if e == 0:
            return whole, [(lowest, 0)]
        (left, first), (right, second) = best(lowest, e - 1), best(lowest + (1 << e - 1), e - 1)
        if fits and e <= widest and whole < left + right:
            return whole, [(lowest, e)]
        return left + right, first + second

    return best(-half, half.bit_length())[1]


def by_largest_remainder(elements: list[int]) -> list[int]:
    rare: set[int] = set()
    while True:
        slots, total = SLOTS - len(rare), sum(n for i, n in enumerate(elements) if i not in rare)
        more = {i for i, n in enumerate(elements) if i not in rare and n * slots < total}
        if not more:
            break
        rare |= more
    exact = [Fraction(1) if i in rare else Fraction(n * slots, total) for i, n in enumerate(elements)]
    found = [math.floor(share) for share in exact]
    order = sorted(range(len(exact)), key=lambda i: (-(exact[i] - found[i]), i))
    for i in order[: SLOTS - sum(found)]:
        found[i] += 1
    return found


def histograms() -> st.SearchStrategy[np.ndarray]:
    count = st.one_of(st.just(0), st.integers(1, 9), st.integers(0, 100_000))
    return st.integers(0, 70).flatmap(
        lambda s: st.lists(count, min_size=2 * s + 1, max_size=2 * s + 1).filter(any).map(np.array)
    )


@given(histograms(), st.sampled_from([3, 16]))
def test_intervals_are_the_cheapest_and_shares_go_by_the_largest_remainder(counts: np.ndarray, widest: int) -> None:
    table, content = Table.of_levels(counts, widest)
    lowest, widths, frequencies = table.columns.tolist()
    s = len(counts) // 2
    assert [*zip(lowest, widths, strict=True)] == cheapest(counts, widest)
    inside = [int(counts[a + s : a + s + (1 << e)].sum()) for a, e in zip(lowest, widths, strict=True)]
    assert frequencies == by_largest_remainder(inside)
    bits = sum(n * (e + 12 - math.log2(f)) for n, e, f in zip(inside, widths, frequencies, strict=True))
    assert math.isclose(content, bits, abs_tol=1e-6)


@given(
    st.integers(1, 7).flatmap(
        lambda t: st.lists(st.integers(0, 2**24), min_size=(2 * t + 1) ** 2, max_size=(2 * t + 1) ** 2)
    )
)
def test_pairs_get_their_shares_in_the_same_way(elements: list[int]) -> None:
    assume(any(elements))
    largest = math.isqrt(len(elements)) // 2
    table, _ = Table.of_pairs(np.array(elements), largest)
    assert table.columns[2].tolist() == by_largest_remainder([n for n in elements if n])
    body = np.frombuffer(table.to_bytes(9), dtype=np.uint8)
    assert np.array_equal(Table.read(Reader(body), largest, 9).columns, table.columns)


@given(histograms(), st.integers(0, 60_000))
def test_a_table_is_read_as_it_was_written(counts: np.ndarray, wider: int) -> None:
    table, _ = Table.of_levels(counts)
    s = len(counts) // 2 + wider
    body = np.frombuffer(table.to_bytes(s) + b"rest", dtype=np.uint8)
    reader = Reader(body)
    assert np.array_equal(Table.read(reader, 0, s).columns, table.columns)
    assert body[reader.position :].tobytes() == b"rest"


def test_more_levels_than_slots_make_wider_intervals() -> None:
    table, _ = Table.of_levels(np.full(2 * 65_535 + 1, 1000))
    assert table.columns.shape[1] <= SLOTS
    assert table.columns[2].sum() == SLOTS
