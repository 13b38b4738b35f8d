"""Claims about partitions: complete, disjoint, never empty, a function of the seed."""

from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adaquantfl.errors import ConfigError
from adaquantfl.training.partitions import partition


def label_counts(parts: list[npt.NDArray[np.int64]]) -> npt.NDArray[np.int64]:
    """How many samples of each class each client holds."""
    return np.stack([np.bincount(LABELS[part], minlength=10) for part in parts])


LABELS = np.random.default_rng(0).integers(0, 10, 2000)

kinds = st.one_of(
    st.sampled_from(["iid", "sorted"]),
    st.floats(0, 1e300, exclude_min=True).map(lambda alpha: f"dirichlet({alpha!r})"),
    st.sampled_from([0.01, 0.3, 1.0, 100.0]).map(lambda alpha: f"dirichlet({alpha})"),
)


@st.composite
def cases(draw_from: st.DrawFn) -> tuple[npt.NDArray[np.int64], int, str, int]:
    labels = draw_from(st.lists(st.integers(0, 5), min_size=1, max_size=60))
    clients = draw_from(st.integers(1, len(labels)))
    return np.array(labels), clients, draw_from(kinds), draw_from(st.integers(0, 2**64))


@settings(max_examples=300, deadline=None, derandomize=True)
@given(cases())
def test_every_sample_goes_to_exactly_one_client_and_nobody_is_empty(
    case: tuple[npt.NDArray[np.int64], int, str, int],
) -> None:
    labels, clients, kind, seed = case
    parts = partition(labels, clients, kind, seed)
    assert len(parts) == clients
    assert all(len(part) > 0 and part.dtype == np.int64 for part in parts)
    assert all((np.diff(part) > 0).all() for part in parts)
    assert sorted(np.concatenate(parts)) == list(range(len(labels)))
    assert "dirichlet" in kind or max(map(len, parts)) - min(map(len, parts)) <= 1
    assert all(map(np.array_equal, parts, partition(labels, clients, kind, seed))), "the same seed, the same parts"


def test_sorted_clients_hold_consecutive_labels() -> None:
    parts = partition(LABELS, 8, "sorted", 0)
    ranges = [(LABELS[part].min(), LABELS[part].max()) for part in parts]
    assert all(high <= low for (_, high), (low, _) in pairwise(ranges))
    assert (label_counts(parts) > 0).sum(axis=1).max() <= 3


def test_small_alpha_is_more_skewed_than_large() -> None:
    def held(alpha: float) -> float:
        # The mean share of a client's largest class: 0.1 if all ten are equal, 1 if it has but one.
        counts = label_counts(partition(LABELS, 8, f"dirichlet({alpha})", 3))
        return float((counts.max(axis=1) / counts.sum(axis=1)).mean())

    assert held(0.05) > held(1.0) > held(100.0)
    assert held(1e6) < 0.15


def test_empty_clients_are_given_one_sample_of_the_largest() -> None:
    parts = partition(np.zeros(10, np.int64), 10, "dirichlet(1e-8)", 0)
    assert [len(part) for part in parts] == [1] * 10


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("idd", "no partition named 'idd'. Did you mean 'iid'"),
        ("sort", "Did you mean 'sorted'"),
        ("dirichlet", r"Did you mean 'dirichlet\(0.3\)'"),
        ("dirichlet(0)", "Any finite alpha above 0"),
        ("dirichlet(inf)", "Any finite alpha above 0"),
        ("dirichlet(few)", "Any finite alpha above 0"),
    ],
)
def test_bad_kind_is_refused_with_a_sentence(kind: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        partition(LABELS, 8, kind, 0)


@pytest.mark.parametrize("clients", [0, -1, 2001])
def test_impossible_number_of_clients_is_refused(clients: int) -> None:
    with pytest.raises(ConfigError, match="set clients between 1 and 2000"):
        partition(LABELS, clients, "iid", 0)
