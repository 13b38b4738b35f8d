"""Ways to train other than the paper's, for tests that hold every engine to them."""

from __future__ import annotations

from typing import Any

TRAINING: dict[str, dict[str, Any]] = {
    "momentum": {"momentum": 0.9, "nesterov": True, "weight_decay": 0.001, "clip_gradient": 1.0},
    "adamw": {"optimizer": "adamw", "eta": 0.002, "step": "adam", "eta_schedule": "cosine"},
    "fedprox": {"prox": 0.5, "step": {"name": "nesterov", "eta": 0.5}, "validation": 0.2},
}
