"""Single machine instructions that Numba has no name for, or compiles slowly: for kernels only."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from .jit import Function


def _bits_of(_: Any, number: Any) -> Any:
    """The bits of a float32, as a uint32."""
    return types.uint32(types.float32), lambda _, builder, __, given: builder.bitcast(given[0], ir.IntType(32))


def _float_of(_: Any, bits: Any) -> Any:
    """The float32 with these bits."""
    return types.float32(types.uint32), lambda _, builder, __, given: builder.bitcast(given[0], ir.FloatType())


def _floor_log2(_: Any, number: Any) -> Any:
    """floor(log2(number)) of an int64 above 0."""

    def build(_: Any, builder: Any, __: Any, given: Any) -> Any:
        zeros = builder.ctlz(given[0], ir.Constant(ir.IntType(1), 0))
        return builder.sub(ir.Constant(ir.IntType(64), 63), zeros)

    return types.int64(types.int64), build


def _high_product(_: Any, left: Any, right: Any) -> Any:
    """The upper 64 bits of a product of two 64-bit numbers."""

    def build(_: Any, builder: Any, __: Any, given: Any) -> Any:
        wide = ir.IntType(128)
        product = builder.mul(builder.zext(given[0], wide), builder.zext(given[1], wide))
        return builder.trunc(builder.lshr(product, ir.Constant(wide, 64)), ir.IntType(64))

    return types.uint64(types.uint64, types.uint64), build


bits_of: Function = intrinsic(_bits_of)
float_of: Function = intrinsic(_float_of)
floor_log2: Function = intrinsic(_floor_log2)
high_product: Function = intrinsic(_high_product)
