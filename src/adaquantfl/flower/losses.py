"""Which of a client's metrics is its training loss."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from flwr.app import RecordDict

ANY = "*loss*"  # the only metric with "loss" in its name, whatever it is called
USUAL_KEYS = ("train_loss", "loss", ANY)


def numbers_in(content: RecordDict) -> dict[str, int | float]:
    """The metrics of a reply that are numbers."""
    return {
        key: value
        for metrics in content.metric_records.values()
        for key, value in metrics.items()
        if isinstance(value, int | float)
    }


def loss_in(numbers: Mapping[str, int | float], keys: Sequence[str]) -> float | None:
    """The loss by the first key that is there.

    >>> loss_in({"my_loss": 0.5, "accuracy": 0.9}, USUAL_KEYS), loss_in({"loss_a": 1.0, "loss_b": 2.0}, USUAL_KEYS)
    (0.5, None)
    """
    for key in keys:
        if key in numbers:
            return float(numbers[key])
    names = [name for name in numbers if "loss" in name.lower()] if ANY in keys else []
    return float(numbers[names[0]]) if len(names) == 1 else None


def advice(keys: Sequence[str]) -> str:
    """What to say where a rule needs a loss and no client reports one."""
    names = " or ".join(repr(key) for key in keys if key != ANY)
    others = ", or as the only metric with 'loss' in its name" if ANY in keys else ""
    return (
        f"No client reports a training loss above 0 as {names}{others}, so that s stays as it is. Return it in the "
        "client's MetricRecord, or name its key: AdaQuantStrategy(..., loss_key=...)."
    )
