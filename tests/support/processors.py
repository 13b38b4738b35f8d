"""Settings with which Numba compiles for less than most processors have."""

from __future__ import annotations

import llvmlite.binding
import pytest

WITHOUT = {
    "vectors": {"NUMBA_ENABLE_AVX": "0"},
    "AVX-512": {"NUMBA_CPU_NAME": "haswell", "NUMBA_CPU_FEATURES": "+avx,+avx2,+bmi,+bmi2,+fma,+popcnt,+lzcnt"},
}


def skip_if_impossible(without: str) -> None:
    """Code with AVX2 and without AVX-512 runs only where there is AVX2."""
    if without == "AVX-512" and "+avx2" not in llvmlite.binding.get_host_cpu_features().flatten().split(","):
        pytest.skip("this processor cannot run AVX2 code")
