"""A block of 1024 codes to words and back, for any width, as vector code of LLVM's own.

A row of 32 codes is four vectors. Shifting and joining rows takes a few instructions each, and the words that are being
filled stay in registers. Numba's loops would write them to memory for every row. With the shifts written out they do
not, but each width then takes half a second to compile.
"""

# mypy: disable-error-code="no-untyped-call"
from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.imputils import impl_ret_untracked
from numba.extending import intrinsic
from numba.np.arrayobj import make_array

from ...jit import Function

LANES = 32
_PARTS = range(0, LANES, 8)  # vectors of 256 bits: wider ones slow the code around them down
_WORD, _INDEX = ir.IntType(32), ir.IntType(64)
_VECTOR = ir.VectorType(_WORD, 8)


def _pack_block(_: Any, codes: Any, bits: Any, words: Any, start: Any) -> Any:
    """words[start + 32 w + lane] = word w of the lane's 32 codes, lowest bits first. Every code is below 2^bits."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        source, target = (_data(context, builder, signature, arguments, place) for place in (0, 2))
        width = builder.trunc(arguments[1], _WORD)
        filled = cgutils.alloca_once_value(builder, _WORD(0))  # bits of the present word that are taken
        word = cgutils.alloca_once_value(builder, arguments[3])
        pending = [cgutils.alloca_once_value(builder, ir.Constant(_VECTOR, None)) for _ in _PARTS]
        with cgutils.for_range(builder, _INDEX(LANES)) as loop:
            row = _load(builder, source, builder.mul(loop.index, _INDEX(LANES)))
            taken = builder.load(filled)
            up, end = _splat(builder, taken), builder.add(taken, width)
            joined = [
                builder.or_(builder.load(old), builder.shl(part, up)) for old, part in zip(pending, row, strict=True)
            ]
            with builder.if_else(builder.icmp_unsigned(">=", end, _WORD(LANES))) as (full, otherwise):
                with full:
                    place = builder.load(word)
                    _store(builder, target, place, joined)
                    builder.store(builder.add(place, _INDEX(LANES)), word)
                    left = builder.sub(end, _WORD(LANES))  # the code's upper bits, which go to the next word
                    down = _splat(builder, builder.sub(width, left))
                    for old, part in zip(pending, row, strict=True):
                        builder.store(builder.lshr(part, down), old)
                    builder.store(left, filled)
                with otherwise:
                    for old, part in zip(pending, joined, strict=True):
                        builder.store(part, old)
                    builder.store(end, filled)
        return impl_ret_untracked(context, builder, types.none, context.get_dummy_value())

    return types.none(codes, types.int64, words, types.int64), build


def _unpack_block(_: Any, words: Any, start: Any, bits: Any, codes: Any) -> Any:
    """The inverse: codes[32 row + lane], from the words that begin at start."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        source, target = (_data(context, builder, signature, arguments, place) for place in (0, 3))
        width = builder.trunc(arguments[2], _WORD)
        ones = _splat(builder, builder.sub(builder.shl(_WORD(1), width), _WORD(1)))
        with cgutils.for_range(builder, _INDEX(LANES)) as loop:
            bit = builder.mul(builder.trunc(loop.index, _WORD), width)
            shift = builder.and_(bit, _WORD(LANES - 1))
            place = builder.add(arguments[1], builder.zext(builder.sub(bit, shift), _INDEX))
            down = _splat(builder, shift)
            low = [builder.lshr(part, down) for part in _load(builder, source, place)]
            code = [cgutils.alloca_once_value(builder, part) for part in low]
            with builder.if_then(builder.icmp_unsigned(">", builder.add(shift, width), _WORD(LANES))):
                up = _splat(builder, builder.sub(_WORD(LANES), shift))
                following = _load(builder, source, builder.add(place, _INDEX(LANES)))
                for kept, part, upper in zip(code, low, following, strict=True):
                    builder.store(builder.or_(part, builder.shl(upper, up)), kept)
            row = [builder.and_(builder.load(kept), ones) for kept in code]
            _store(builder, target, builder.mul(loop.index, _INDEX(LANES)), row)
        return impl_ret_untracked(context, builder, types.none, context.get_dummy_value())

    return types.none(words, types.int64, types.int64, codes), build


def _data(context: Any, builder: Any, signature: Any, arguments: Any, place: int) -> Any:
    return make_array(signature.args[place])(context, builder, arguments[place]).data


def _addresses(builder: Any, data: Any, index: Any) -> list[Any]:
    places = [builder.gep(data, [builder.add(index, _INDEX(part))]) for part in _PARTS]
    return [builder.bitcast(place, _VECTOR.as_pointer()) for place in places]


def _load(builder: Any, data: Any, index: Any) -> list[Any]:
    row = [builder.load(address) for address in _addresses(builder, data, index)]
    for part in row:
        part.align = 4  # an array of words is not aligned to vectors
    return row


def _store(builder: Any, data: Any, index: Any, row: list[Any]) -> None:
    for part, address in zip(row, _addresses(builder, data, index), strict=True):
        builder.store(part, address).align = 4


def _splat(builder: Any, number: Any) -> Any:
    undefined = ir.Constant(_VECTOR, ir.Undefined)
    first = builder.insert_element(undefined, number, _WORD(0))
    return builder.shuffle_vector(first, undefined, ir.Constant(_VECTOR, None))


pack_block: Function = intrinsic(_pack_block)
unpack_block: Function = intrinsic(_unpack_block)
