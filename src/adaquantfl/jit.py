"""Numba, with this package's settings: no GIL, compiled once and cached on disk.

Imported only by modules that hold kernels, so that `import adaquantfl` stays light.

Most of a compilation is Numba's own work in Python, not LLVM's. So kernels leave out what nobody uses (wrappers for C,
array expressions), and take scratch memory as an argument. A call of a NumPy function costs 0.1 to 0.5 s, so it has to
be worth that.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from typing import Any, ClassVar, cast

import numba
from numba.core import caching

Function = Callable[..., Any]

_njit: Any = numba.njit  # its type does not know the options below
_caching: Any = caching
_LEAN = {"no_cfunc_wrapper": True, "no_rewrites": True}
# For functions that only kernels call; LLVM puts them into their callers. Numba's own `inline` types each copy anew.
INLINED: Any = {**_LEAN, "no_cpython_wrapper": True, "forceinline": True}


def kernel(function: Function) -> Function:
    """Compile a function over arrays. Where there is no cache folder, it is compiled in each process."""
    return _cached(function)


def reduction(function: Function) -> Function:
    """Compile a function whose sums may be added up in any fixed order, which lets LLVM vectorise them."""
    return _cached(function, fastmath={"reassoc"})


def inline(function: Function) -> Function:
    """Compile a scalar helper that kernels call; LLVM inlines it. Python code calls its `py_func`."""
    return cast(Function, _njit(**INLINED)(function))


def expand(function: Function) -> Function:
    """Like `inline`, for a helper that takes arrays and runs in an inner loop.

    Numba itself copies it into its callers. That takes longer to compile, but arrays are not counted at each call.
    """
    return cast(Function, _njit(inline="always")(function))


def _cached(function: Function, **options: Any) -> Function:
    compiled = _njit(nogil=True, **_LEAN, **options)(function)
    try:
        compiled.enable_caching()
    except RuntimeError:  # Numba found no folder that it can write
        with suppress(RuntimeError):
            compiled._cache = _read_only(function)
    return cast(Function, compiled)


def _read_only(function: Function) -> Any:
    """Kernels that are on disk where nothing can be written: in an image, say.

    Numba leaves such a folder alone. RuntimeError where there is none.
    """

    class Kernels(_caching.CompileResultCacheImpl):  # type: ignore[misc]
        _locator_classes: ClassVar = [
            type(place.__name__, (place,), {"ensure_cache_path": _must_exist})
            for place in _caching.CompileResultCacheImpl._locator_classes
        ]

    class Cache(_caching.FunctionCache):  # type: ignore[misc]
        _impl_class = Kernels

        def save_overload(self, sig: Any, data: Any) -> None:
            """What is not there yet is compiled in each process."""

    return Cache(function)


def _must_exist(place: Any) -> None:
    os.listdir(place.get_cache_path())
