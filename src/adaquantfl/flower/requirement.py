"""Which Flower this package works with. Its API still moves from one minor version to the next."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

SUPPORTED = ("1.41", "1.42")


def require_flwr() -> None:
    """ImportError with a sentence where Flower is missing or of another version."""
    try:
        found = version("flwr")
    except PackageNotFoundError:
        raise ImportError(
            "adaquantfl.flower needs Flower, which is not installed. In a checkout of adaquantfl, run: "
            "pip install '.[flower]'"
        ) from None
    if ".".join(found.split(".")[:2]) not in SUPPORTED:
        raise ImportError(
            f"adaquantfl.flower works with flwr {' and '.join(SUPPORTED)}, but flwr {found} is installed. "
            f"Run: pip install 'flwr[simulation]~={SUPPORTED[-1]}.0'"
        )
