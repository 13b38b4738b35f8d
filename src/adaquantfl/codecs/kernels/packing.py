"""A block of 1024 codes to words and back, for any width, as vector code of LLVM's own.

A row of 32 codes is two or four vectors. Shifting and joining rows takes a few instructions each, and the words that
are being filled stay in registers. Numba's loops would write them to memory for every row. With the shifts written out
they do not, but each width then takes half a second to compile. `add_block` does not write the codes down.
"""

# mypy: disable-error-code="no-untyped-call"
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from ...jit import Function
from ...simd import FLOAT, INDEX, WORD, Vectors, data, nothing, vector_size

LANES = 32
ROW_OF_LEVELS = 64
_SIGN = 1 << 31
_LEAST = 8  # words in a vector: shorter ones are left to LLVM
Row = list[Any]  # the vectors of 32 elements


def _pack_block(_: Any, codes: Any, bits: Any, words: Any, start: Any) -> Any:
    """words[start + 32 w + lane] = word w of the lane's 32 codes, lowest bits first. Every code is below 2^bits."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        b = vectors(context, builder)
        source, target = (data(context, builder, signature, arguments, place) for place in (0, 2))
        width = b.trunc(arguments[1], WORD)
        filled = cgutils.alloca_once_value(builder, WORD(0))  # bits of the present word that are taken
        word = cgutils.alloca_once_value(builder, arguments[3])
        pending = [cgutils.alloca_once_value(builder, b.all(0)) for _ in b.places]
        with cgutils.for_range(builder, INDEX(LANES)) as loop:
            row = load(b, source, b.mul(loop.index, INDEX(LANES)), WORD)
            taken = b.load(filled)
            up, end = b.splat(taken), b.add(taken, width)
            joined = [b.or_(b.load(old), b.shl(part, up)) for old, part in zip(pending, row, strict=True)]
            with b.if_else(b.icmp_unsigned(">=", end, WORD(LANES))) as (full, otherwise):
                with full:
                    place = b.load(word)
                    store(b, target, place, joined)
                    b.store(b.add(place, INDEX(LANES)), word)
                    left = b.sub(end, WORD(LANES))  # the code's upper bits, which go to the next word
                    down = b.splat(b.sub(width, left))
                    for old, part in zip(pending, row, strict=True):
                        b.store(b.lshr(part, down), old)
                    b.store(left, filled)
                with otherwise:
                    for old, part in zip(pending, joined, strict=True):
                        b.store(part, old)
                    b.store(end, filled)
        return nothing(context, builder)

    return types.none(codes, types.int64, words, types.int64), build


def _unpack_block(_: Any, words: Any, start: Any, bits: Any, codes: Any) -> Any:
    """The inverse: codes[32 row + lane], from the words that begin at start."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        b = vectors(context, builder)
        source, target = (data(context, builder, signature, arguments, place) for place in (0, 3))
        width = b.trunc(arguments[2], WORD)
        ones = b.splat(_ones(b, width))

        def use(first: Any, row: Row) -> None:
            store(b, target, first, [b.and_(part, ones) for part in row])

        _unpack(b, width, source, arguments[1], use)
        return nothing(context, builder)

    return types.none(words, types.int64, types.int64, codes), build


def _add_block(_: Any, words: Any, start: Any, bits: Any, each: Any, total: Any, begin: Any) -> Any:
    """total[begin + i] += each[i] x the signed level of code i of a block, whose words begin at start."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        b = vectors(context, builder)
        source, factors, target = (data(context, builder, signature, arguments, place) for place in (0, 3, 4))
        width = b.trunc(arguments[2], WORD)
        ones, up = b.splat(_ones(b, b.sub(width, WORD(1)))), b.splat(b.sub(WORD(LANES), width))

        def use(first: Any, row: Row) -> None:
            place, sums = b.add(arguments[5], first), []
            old, steps = load(b, target, place, FLOAT), load(b, factors, first, FLOAT)
            b.prefetch(target, place, FLOAT)
            for part, step, before in zip(row, steps, old, strict=True):
                level = b.bitcast(b.sitofp(b.and_(part, ones), b.vector(FLOAT)), b.vector(WORD))
                signed = b.xor(level, b.and_(b.shl(part, up), b.all(_SIGN)))
                sums.append(b.fadd(before, b.fmul(step, b.bitcast(signed, b.vector(FLOAT)))))
            store(b, target, place, sums)

        _unpack(b, width, source, arguments[1], use)
        return nothing(context, builder)

    return types.none(words, types.int64, types.int64, each, total, types.int64), build


def _add_levels(_: Any, values: Any, begin: Any, end: Any, step: Any, total: Any) -> Any:
    """total[i] += step x values[i], for i from begin to end; end - begin is a multiple of ROW_OF_LEVELS."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        b, kind = vectors(context, builder, ROW_OF_LEVELS), ir.IntType(values.dtype.bitwidth)
        source, target = (data(context, builder, signature, arguments, place) for place in (0, 4))
        factor = b.splat(arguments[3])
        with cgutils.for_range_slice(builder, arguments[1], arguments[2], INDEX(ROW_OF_LEVELS), INDEX) as (first, _):
            b.prefetch(target, first, FLOAT)
            old, sums = load(b, target, first, FLOAT), []
            for part, before in zip(load(b, source, first, kind), old, strict=True):
                level = b.sitofp(part, b.vector(FLOAT))
                sums.append(b.fadd(before, b.fmul(factor, level)))
            store(b, target, first, sums)
        return nothing(context, builder)

    return types.none(values, types.int64, types.int64, types.float32, total), build


def _largest_code(_: Any, words: Any, start: Any, bits: Any) -> Any:
    """The largest level of a block, whose words begin at start."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        b = vectors(context, builder)
        width = b.trunc(arguments[2], WORD)
        ones = b.splat(_ones(b, b.sub(width, WORD(1))))
        tops = [cgutils.alloca_once_value(builder, b.all(0)) for _ in b.places]

        def use(_: Any, row: Row) -> None:
            for part, top in zip(row, tops, strict=True):
                level, before = b.and_(part, ones), b.load(top)
                b.store(b.select(b.icmp_unsigned(">", level, before), level, before), top)

        _unpack(b, width, data(context, builder, signature, arguments, 0), arguments[1], use)
        largest = WORD(0)
        for top in tops:
            found = b.load(top)
            for lane in range(b.size):
                level = b.extract_element(found, WORD(lane))
                largest = b.select(b.icmp_unsigned(">", level, largest), level, largest)
        return largest

    return types.uint32(words, types.int64, types.int64), build


def _unpack(b: Vectors, width: Any, source: Any, start: Any, use: Callable[[Any, Row], None]) -> None:
    """Give `use` the index of each row's first element and the row: codes in the low bits, and anything above."""
    with cgutils.for_range(b.builder, INDEX(LANES)) as loop:
        bit = b.mul(b.trunc(loop.index, WORD), width)
        shift = b.and_(bit, WORD(LANES - 1))
        place = b.add(start, b.zext(b.sub(bit, shift), INDEX))
        down = b.splat(shift)
        low = [b.lshr(part, down) for part in load(b, source, place, WORD)]
        code = [cgutils.alloca_once_value(b.builder, part) for part in low]
        with b.if_then(b.icmp_unsigned(">", b.add(shift, width), WORD(LANES))):
            up = b.splat(b.sub(WORD(LANES), shift))
            following = load(b, source, b.add(place, INDEX(LANES)), WORD)
            for kept, part, upper in zip(code, low, following, strict=True):
                b.store(b.or_(part, b.shl(upper, up)), kept)
        use(b.mul(loop.index, INDEX(LANES)), [b.load(kept) for kept in code])


def vectors(context: Any, builder: Any, lanes: int = LANES) -> Vectors:
    """A builder for rows of `lanes` words."""
    return Vectors(builder, vector_size(context) or _LEAST, lanes)


def _ones(b: Vectors, count: Any) -> Any:
    return b.sub(b.shl(WORD(1), count), WORD(1))


def load(b: Vectors, source: Any, index: Any, kind: Any) -> Row:
    """The row that begins at `index`."""
    return [b.load_at(source, b.add(index, INDEX(at)), kind) for at in b.places]


def store(b: Vectors, target: Any, index: Any, row: Row) -> None:
    """Write the row that begins at `index`."""
    for part, at in zip(row, b.places, strict=True):
        b.store_at(target, b.add(index, INDEX(at)), part)


pack_block: Function = intrinsic(_pack_block)
unpack_block: Function = intrinsic(_unpack_block)
add_block: Function = intrinsic(_add_block)
largest_code: Function = intrinsic(_largest_code)
add_levels: Function = intrinsic(_add_levels)
