"""The uniform quantizer in vectors of LLVM's own, for the codecs that quantize and encode in one pass.

The numbers are those of `quantizers.kernels`, bit by bit. Numba's loops would take longer to compile, and to run.
"""

# mypy: disable-error-code="no-untyped-call"
from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from ...jit import Function
from ...quantizers.kernels import MIX_1, MIX_2, WEYL
from ...simd import DOUBLE, FLOAT, INDEX, WORD, Vectors, data, nothing
from .packing import LANES, load, store, vectors

ROW = 64  # elements that are looked at together
_SIGN = 1 << 31
_REACH = 2.0**30 * (1 + 2.0**-16)  # more than 2^30 by more than a level is ever rounded up


def _quantize_block(
    _: Any, x: Any, begin: Any, each: Any, top: Any, place: Any, high: Any, bits: Any, codes: Any
) -> Any:
    """codes[i] = the level of x[begin + i], see `quantizers.kernels.magnitude`, and its sign above, for a block.

    place: of the first element in the Weyl sequence. The type of `each` decides the arithmetic.
    """
    double = each.dtype == types.float64

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        b = vectors(context, builder)
        source, factors, target = (data(context, builder, signature, arguments, at) for at in (0, 2, 7))
        begin, top, place, high, bits = (arguments[at] for at in (1, 3, 4, 5, 6))
        limit, other = b.splat(top), b.splat(high)
        sign = b.splat(b.shl(WORD(1), b.sub(b.trunc(bits, WORD), WORD(1))))
        streams = [cgutils.alloca_once_value(builder, stream) for stream in _streams(b, place)]
        with cgutils.for_range(builder, INDEX(LANES)) as loop:
            first = b.mul(loop.index, INDEX(LANES))
            floats = load(b, source, b.add(begin, first), FLOAT)
            b.prefetch(source, b.add(begin, first), FLOAT)
            inverses, row = load(b, factors, first, DOUBLE if double else FLOAT), []
            for value, inverse, stream in zip(floats, inverses, streams, strict=True):
                random = b.load(stream)
                b.store(b.add(random, b.all(_weyl([LANES])[0])), stream)
                level = _magnitude(b, value, inverse, limit, _draw32(b, random, other))
                negative = b.and_(_negative(b, value), b.icmp_signed(">", level, b.all(0)))
                row.append(b.or_(level, b.select(negative, sign, b.all(0))))
            store(b, target, first, row)
        return nothing(context, builder)

    given = x, types.int64, each, each.dtype, types.uint32, types.uint32, types.int64, codes
    return types.none(*given), build


def _quantize_row(_: Any, x: Any, begin: Any, inverse: Any, top: Any, place: Any, high: Any, levels: Any) -> Any:
    """levels[i] = the signed level of x[begin + i], for a row of ROW elements with one factor."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        b = vectors(context, builder, ROW)
        source, target = (data(context, builder, signature, arguments, at) for at in (0, 6))
        begin, inverse, top, other = arguments[1], *(b.splat(arguments[at]) for at in (2, 3, 5))
        row = []
        for value, random in zip(load(b, source, begin, FLOAT), _streams(b, arguments[4]), strict=True):
            level = _magnitude(b, value, inverse, top, _draw32(b, random, other))
            row.append(b.select(_negative(b, value), b.sub(b.all(0), level), level))
        store(b, target, INDEX(0), row)
        return nothing(context, builder)

    given = x, types.int64, inverse, inverse, types.uint32, types.uint32, levels
    return types.none(*given), build


def _may_hold_nonzero(_: Any, x: Any, begin: Any, inverse: Any, place: Any, high: Any) -> Any:
    """False only where every level of a row is 0: the same random numbers, a slightly higher threshold.

    Where few levels are not zero it passes over most rows in two thirds of the time of quantizing them.
    """

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        b = vectors(context, builder, ROW)
        source = data(context, builder, signature, arguments, 0)
        begin, factor, other = arguments[1], b.splat(arguments[2]), b.splat(arguments[4])
        b.prefetch(source, begin, FLOAT)
        hits = []
        for value, random in zip(load(b, source, begin, FLOAT), _streams(b, arguments[3]), strict=True):
            size = _size(b, value)
            if inverse == types.float64:
                t = b.fptrunc(b.fmul(b.fpext(size, factor.type), factor), value.type)
            else:
                t = b.fmul(size, factor)
            t, most = b.fmul(t, b.all(_REACH, FLOAT)), b.all(2.0**30, FLOAT)
            reach = b.fptosi(b.select(b.fcmp_ordered("<", t, most), t, most), b.vector(WORD))
            hits.append(b.icmp_signed("<=", b.lshr(_draw32(b, random, other), b.all(2)), reach))
        while len(hits) > 1:
            hits = [b.or_(*hits[:2]), *hits[2:]]
        return b.icmp_unsigned("!=", b.bitcast(hits[0], ir.IntType(b.size)), ir.IntType(b.size)(0))

    return types.boolean(x, types.int64, inverse, types.uint32, types.uint32), build


def _streams(b: Vectors, place: Any) -> list[Any]:
    """Where the elements of a row stand in the Weyl sequence, the first one at `place`."""
    first = b.splat(place)
    return [b.add(first, ir.Constant(b.vector(WORD), _weyl(range(at, at + b.size)))) for at in b.places]


def _size(b: Vectors, value: Any) -> Any:
    return b.bitcast(b.and_(b.bitcast(value, b.vector(WORD)), b.all(_SIGN - 1)), value.type)


def _negative(b: Vectors, value: Any) -> Any:
    return b.icmp_signed("<", b.bitcast(value, b.vector(WORD)), b.all(0))


def _magnitude(b: Vectors, value: Any, inverse: Any, top: Any, random: Any) -> Any:
    """See `quantizers.kernels.magnitude`; random / 2 is below a threshold where random is below twice as much."""
    words, kind, size = b.vector(WORD), inverse.type.element, _size(b, value)
    if kind == FLOAT:
        t = b.bitcast(b.fmul(size, inverse), words)
        t = b.bitcast(b.and_(b.add(t, b.all(4)), b.all(0xFFFFFFF8)), value.type)
    else:
        t = b.fadd(b.fmul(b.fpext(size, inverse.type), inverse), b.all(2.0**-32, kind))
    t = b.select(b.fcmp_ordered("<", t, top), t, top)
    low = b.fptosi(t, words)
    threshold = b.fptosi(b.fmul(b.fsub(t, b.sitofp(low, t.type)), b.all(2.0**31, kind)), words)
    return b.sub(low, b.sext(b.icmp_unsigned("<", random, b.add(threshold, threshold)), words))


def _draw32(b: Vectors, x: Any, high: Any) -> Any:
    """See `quantizers.kernels.draw31`, which leaves the lowest bit out."""
    x = b.mul(b.xor(x, b.lshr(x, b.all(16))), b.all(int(MIX_1)))
    x = b.mul(b.xor(b.xor(x, b.lshr(x, b.all(15))), high), b.all(int(MIX_2)))
    return b.xor(x, b.lshr(x, b.all(16)))


def _weyl(places: Iterable[int]) -> list[int]:
    return [place * int(WEYL) % 2**32 for place in places]


quantize_block: Function = intrinsic(_quantize_block)
quantize_row: Function = intrinsic(_quantize_row)
may_hold_nonzero: Function = intrinsic(_may_hold_nonzero)
