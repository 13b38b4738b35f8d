"""Rounds of the dense codec's rANS in vectors: of 16 states with AVX-512, of 8 with AVX2.

Elsewhere both functions do nothing, and the loops of `dense.py` do it all: slower, and the same bytes. Table rows are
gathered where that is fast. On most processors they are loaded one by one: gather instructions take two to three times
as long where microcode guards them.
"""

# mypy: disable-error-code="no-untyped-call"
from __future__ import annotations

from typing import Any

import llvmlite.binding
from llvmlite import ir
from numba import types
from numba.core import cgutils, config
from numba.extending import intrinsic

from ...jit import Function
from ...simd import BYTE, FLOAT, HALF, INDEX, WORD, Vectors, data, nothing, vector_size

LANES = 64  # four vectors or more, whose latencies overlap
SOME_LANES = 16  # one or two vectors: what a short vector can afford
SCALE_BITS = 12
_GATHERING = {"sapphirerapids", "emeraldrapids", "graniterapids", "graniterapids-d", "diamondrapids"}
FLOOR_BITS = 15  # states are from 2^15 to 2^31: a signed word holds them
WORD_BITS = 16
FREQUENCY_BITS, BIAS_BITS, WIDTH_BITS = 12, 16, 3  # of what is packed into a ROW and into a SLOT


def _encode_rounds(count: int) -> Function:
    """Write all whole rounds, the last one first; cursor: next free word, rounds that are left."""

    def typed(_: Any, symbols: Any, lowest: Any, rows: Any, states: Any, words: Any, cursor: Any) -> Any:
        def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            size = vector_size(context)
            if not size:
                return nothing(context, builder)
            b, element = _Vectors(builder, size, count), ir.IntType(symbols.dtype.bitwidth)
            source, table, kept, target, place = (
                data(context, builder, signature, arguments, i) for i in (0, 2, 3, 4, 5)
            )
            lanes = [cgutils.alloca_once_value(builder, b.load_at(kept, INDEX(at), WORD)) for at in b.places]
            free = cgutils.alloca_once_value(builder, b.load(place))
            left = b.gep(place, [INDEX(1)])
            rounds = b.load(left)
            least = b.splat(b.trunc(arguments[1], WORD))
            with cgutils.for_range(builder, rounds) as loop:
                first = b.mul(b.sub(b.sub(rounds, INDEX(1)), loop.index), INDEX(count))
                for lane, at in zip(lanes, b.places, strict=True):
                    symbol = b.sext(b.load_at(source, b.add(first, INDEX(at)), element), b.vector(WORD))
                    reciprocal, row = b.look_up(table, b.sub(symbol, least))
                    frequency = b.add(b.and_(row, b.all((1 << FREQUENCY_BITS) - 1)), b.all(1))
                    bias = b.and_(b.lshr(row, b.all(FREQUENCY_BITS)), b.all((1 << BIAS_BITS) - 1))
                    width = b.lshr(row, b.all(FREQUENCY_BITS + BIAS_BITS))
                    x = b.load(lane)
                    full = b.icmp_unsigned(
                        ">=", x, b.shl(frequency, b.sub(b.all(FLOOR_BITS + WORD_BITS - SCALE_BITS), width))
                    )
                    position = b.load(free)
                    b.store_at(target, position, b.trunc(b.compress(x, full), b.vector(HALF)))
                    b.store(b.add(position, b.count(full)), free)
                    x = b.select(full, b.lshr(x, b.all(WORD_BITS)), x)
                    # The quotient is below 2^19: right as a float32 or, as the reciprocal is rounded down, one less.
                    share = b.fmul(b.sitofp(x, b.vector(FLOAT)), b.bitcast(reciprocal, b.vector(FLOAT)))
                    quotient = b.fptosi(share, b.vector(WORD))
                    rest = b.sub(x, b.mul(quotient, frequency))
                    less = b.icmp_signed(">=", rest, frequency)
                    rest = b.select(less, b.sub(rest, frequency), rest)
                    quotient = b.sub(quotient, b.sext(less, b.vector(WORD)))
                    b.store(b.add(b.shl(quotient, b.add(width, b.all(SCALE_BITS))), b.add(bias, rest)), lane)
            b.store(b.load(free), place)
            b.store(INDEX(0), left)
            for lane, at in zip(lanes, b.places, strict=True):
                b.store_at(kept, INDEX(at), b.load(lane))
            return nothing(context, builder)

        return types.none(symbols, types.int64, rows, states, words, cursor), build

    return intrinsic(typed)


def _decode_rounds(count: int) -> Function:
    """Read whole rounds while there are words for one; cursor: behind the next word, rounds done, their number."""

    def typed(_: Any, words: Any, start: Any, slots: Any, states: Any, symbols: Any, cursor: Any) -> Any:
        def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            size = vector_size(context)
            if not size:
                return nothing(context, builder)
            b, element = _Vectors(builder, size, count), ir.IntType(symbols.dtype.bitwidth)
            source, table, kept, target, place = (
                data(context, builder, signature, arguments, i) for i in (0, 2, 3, 4, 5)
            )
            lanes = [cgutils.alloca_once_value(builder, b.load_at(kept, INDEX(at), WORD)) for at in b.places]
            behind = cgutils.alloca_once_value(builder, b.load(place))
            least = b.add(arguments[1], INDEX(count))
            done = b.gep(place, [INDEX(1)])
            with cgutils.for_range(builder, b.load(b.gep(place, [INDEX(2)]))) as loop:
                position = b.load(behind)
                with b.if_then(b.icmp_signed("<", position, least), likely=False):
                    loop.do_break()
                first = b.mul(loop.index, INDEX(count))
                for lane, at in reversed(list(zip(lanes, b.places, strict=True))):
                    x = b.load(lane)
                    share, interval = b.look_up(table, b.and_(x, b.all((1 << SCALE_BITS) - 1)))
                    width = b.and_(interval, b.all((1 << WIDTH_BITS) - 1))
                    rest = b.lshr(x, b.all(SCALE_BITS))
                    quotient = b.lshr(rest, width)
                    symbol = b.add(b.ashr(interval, b.all(WIDTH_BITS)), b.sub(rest, b.shl(quotient, width)))
                    b.store_at(target, b.add(first, INDEX(at)), b.trunc(symbol, b.vector(element)))
                    frequency, slot = b.and_(share, b.all(0xFFFF)), b.lshr(share, b.all(16))
                    x = b.add(b.mul(frequency, quotient), slot)
                    empty = b.icmp_unsigned("<", x, b.all(1 << FLOOR_BITS))
                    position = b.sub(position, b.count(empty))
                    more = b.expand(b.zext(b.load_at(source, position, HALF), b.vector(WORD)), empty)
                    b.store(b.select(empty, b.or_(b.shl(x, b.all(WORD_BITS)), more), x), lane)
                b.store(position, behind)
                b.store(b.add(loop.index, INDEX(1)), done)
            b.store(b.load(behind), place)
            for lane, at in zip(lanes, b.places, strict=True):
                b.store_at(kept, INDEX(at), b.load(lane))
            return nothing(context, builder)

        return types.none(words, types.int64, slots, states, symbols, cursor), build

    return intrinsic(typed)


def _gathers() -> bool:
    """Whether the processor gathers fast."""
    settings: Any = config  # its type does not know this name
    return (settings.CPU_NAME or llvmlite.binding.get_host_cpu_name()) in _GATHERING


class _Vectors(Vectors):
    """With what is done to states."""

    def look_up(self, table: Any, places: Any) -> tuple[Any, Any]:
        """The lower and the upper words of table[place], for a table of 64 bits each."""
        find = self._gather if _gathers() and self.size == 16 else self._load_each
        halves = [self.bitcast(half, self.vector(WORD)) for half in find(table, places)]
        low, high = (ir.Constant(self.vector(WORD), [WORD(2 * j + part) for j in range(self.size)]) for part in (0, 1))
        return self.shuffle_vector(*halves, low), self.shuffle_vector(*halves, high)

    def _load_each(self, table: Any, places: Any) -> list[Any]:
        """The entries of both halves of the places, one by one. Places come two at a time."""
        half = ir.VectorType(INDEX, self.size // 2)
        pairs, halves = self.bitcast(places, half), []
        for start in range(0, self.size // 2, self.size // 4):
            found = ir.Constant(half, ir.Undefined)
            for j in range(self.size // 4):
                pair = self.extract_element(pairs, WORD(start + j))
                for part, index in enumerate((self.and_(pair, INDEX(2**32 - 1)), self.lshr(pair, INDEX(32)))):
                    entry = self.load(self.gep(table, [index]))
                    found = self.insert_element(found, entry, WORD(2 * j + part))
            halves.append(found)
        return halves

    def _gather(self, table: Any, places: Any) -> list[Any]:
        """The same by an instruction of AVX-512."""
        eight, pointer, bit = ir.VectorType(INDEX, 8), BYTE.as_pointer(), ir.IntType(1)
        each = ir.VectorType(bit, 8)
        kind = ir.FunctionType(eight, [eight, pointer, ir.VectorType(WORD, 8), each, WORD])
        function = cgutils.get_or_insert_function(self.module, kind, "llvm.x86.avx512.mask.gather.dpq.512")
        address, everything, halves = self.bitcast(table, pointer), ir.Constant(each, [bit(1)] * 8), []
        for start in (0, 8):
            chosen = ir.Constant(ir.VectorType(WORD, 8), [WORD(start + j) for j in range(8)])
            half = self.shuffle_vector(places, places, chosen)
            halves.append(self.call(function, [ir.Constant(eight, None), address, half, everything, WORD(8)]))
        return halves

    def compress(self, vector: Any, mask: Any) -> Any:
        """The chosen lanes move to the front; what is behind them has no meaning."""
        return self._move("compress", vector, mask, [[i for i in range(8) if m >> i & 1] for m in range(256)])

    def expand(self, vector: Any, mask: Any) -> Any:
        """The first ones move to the chosen lanes; the others have no meaning."""
        return self._move(
            "expand", vector, mask, [[(m & (1 << i) - 1).bit_count() for i in range(8)] for m in range(256)]
        )

    def _move(self, name: str, vector: Any, mask: Any, orders: list[list[int]]) -> Any:
        """By an instruction of AVX-512, or for each of the 256 masks by the order of the lanes."""
        if self.size == 16:
            kind = ir.FunctionType(vector.type, [vector.type, vector.type, mask.type])
            function = cgutils.get_or_insert_function(self.module, kind, f"llvm.x86.avx512.mask.{name}.v16i32")
            return self.call(function, [vector, ir.Constant(vector.type, None), mask])
        table = ir.Constant(ir.ArrayType(BYTE, 8 * 256), bytearray(b"".join(bytes(o).ljust(8, b"\0") for o in orders)))
        start = self.mul(self.zext(self.bitcast(mask, BYTE), INDEX), INDEX(8))
        data = cgutils.global_constant(self.builder, f"adaquantfl_{name}", table)
        order = self.zext(self.load_at(self.bitcast(data, BYTE.as_pointer()), start, BYTE), vector.type)
        kind = ir.FunctionType(vector.type, [vector.type, vector.type])
        return self.call(cgutils.get_or_insert_function(self.module, kind, "llvm.x86.avx2.permd"), [vector, order])

    def count(self, mask: Any) -> Any:
        return self.zext(self.ctpop(self.bitcast(mask, ir.IntType(self.size))), INDEX)


encode_rounds, encode_some_rounds = _encode_rounds(LANES), _encode_rounds(SOME_LANES)
decode_rounds, decode_some_rounds = _decode_rounds(LANES), _decode_rounds(SOME_LANES)
