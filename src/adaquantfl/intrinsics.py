"""Single machine instructions that Numba has no name for, or compiles slowly: for kernels only."""

# mypy: disable-error-code="no-untyped-call"
from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from .jit import Function
from .simd import DOUBLE, FLOAT, INDEX, Vectors, data


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


def _squares(_: Any, x: Any, begin: Any, end: Any) -> Any:
    """The sum of squares of x[begin:end], in double. end - begin is a multiple of 32; lane by lane, so that the order
    of the additions is the same on every processor."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        b = Vectors(builder, 8, 32)
        source, (_, begin, end) = data(context, builder, signature, arguments, 0), arguments
        sums = [cgutils.alloca_once_value(builder, b.all(0.0, DOUBLE)) for _ in b.places]
        with cgutils.for_range_slice(builder, begin, end, INDEX(32), INDEX) as (first, _):
            b.prefetch(source, first, FLOAT)
            for at, sum_ in zip(b.places, sums, strict=True):
                value = b.fpext(b.load_at(source, b.add(first, INDEX(at)), FLOAT), b.vector(DOUBLE))
                b.store(b.fadd(b.load(sum_), b.fmul(value, value)), sum_)
        (one, two, three, four), total = (b.load(sum_) for sum_ in sums), DOUBLE(0.0)
        lanes = b.fadd(b.fadd(one, two), b.fadd(three, four))
        for lane in range(b.size):
            total = b.fadd(total, b.extract_element(lanes, ir.IntType(32)(lane)))
        return total

    return types.float64(x, types.int64, types.int64), build


bits_of: Function = intrinsic(_bits_of)
float_of: Function = intrinsic(_float_of)
floor_log2: Function = intrinsic(_floor_log2)
squares: Function = intrinsic(_squares)
