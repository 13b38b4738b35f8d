"""Rounds of the wide dense body's rANS in vectors: of 16 states with AVX-512, of 8 with AVX2.

Elsewhere both functions do nothing, and the loops of `rans.py` do it all: slower, and the same bytes. Table rows are
loaded one by one. Gather instructions take two to three times as long on processors whose microcode guards them.
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

LANES = 64  # four vectors or more, whose latencies overlap
SCALE_BITS = 12
FLOOR_BITS = 15  # states are from 2^15 to 2^31: a signed word holds them
WORD_BITS = 16
FREQUENCY_BITS, BIAS_BITS, WIDTH_BITS = 12, 16, 3  # of what is packed into a ROW and into a SLOT
_BYTE, _HALF, _WORD, _INDEX = (ir.IntType(bits) for bits in (8, 16, 32, 64))


def _encode_rounds(_: Any, symbols: Any, lowest: Any, rows: Any, states: Any, words: Any, cursor: Any) -> Any:
    """Write all whole rounds, the last one first; cursor: next free word, rounds that are left."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        size = _vector_size(context)
        if not size:
            return _nothing(context, builder)
        b = _Vectors(builder, size)
        source, table, kept, target, place = (_data(context, builder, signature, arguments, i) for i in (0, 2, 3, 4, 5))
        lanes = [cgutils.alloca_once_value(builder, b.load_at(kept, _INDEX(at), _WORD)) for at in b.places]
        free = cgutils.alloca_once_value(builder, b.load(place))
        left = b.gep(place, [_INDEX(1)])
        rounds = b.load(left)
        least = b.splat(b.trunc(arguments[1], _WORD))
        with cgutils.for_range(builder, rounds) as loop:
            first = b.mul(b.sub(b.sub(rounds, _INDEX(1)), loop.index), _INDEX(LANES))
            for lane, at in zip(lanes, b.places, strict=True):
                symbol = b.sext(b.load_at(source, b.add(first, _INDEX(at)), _HALF), b.vector(_WORD))
                reciprocal, row = b.look_up(table, b.sub(symbol, least))
                frequency = b.add(b.and_(row, b.all((1 << FREQUENCY_BITS) - 1)), b.all(1))
                bias = b.and_(b.lshr(row, b.all(FREQUENCY_BITS)), b.all((1 << BIAS_BITS) - 1))
                width = b.lshr(row, b.all(FREQUENCY_BITS + BIAS_BITS))
                x = b.load(lane)
                full = b.icmp_unsigned(
                    ">=", x, b.shl(frequency, b.sub(b.all(FLOOR_BITS + WORD_BITS - SCALE_BITS), width))
                )
                position = b.load(free)
                b.store_at(target, position, b.trunc(b.compress(x, full), b.vector(_HALF)))
                b.store(b.add(position, b.count(full)), free)
                x = b.select(full, b.lshr(x, b.all(WORD_BITS)), x)
                # The quotient is below 2^19. As a float32 it is right or, with the reciprocal rounded down, one less.
                share = b.fmul(b.sitofp(x, b.vector(ir.FloatType())), b.bitcast(reciprocal, b.vector(ir.FloatType())))
                quotient = b.fptosi(share, b.vector(_WORD))
                rest = b.sub(x, b.mul(quotient, frequency))
                less = b.icmp_signed(">=", rest, frequency)
                rest = b.select(less, b.sub(rest, frequency), rest)
                quotient = b.sub(quotient, b.sext(less, b.vector(_WORD)))
                b.store(b.add(b.shl(quotient, b.add(width, b.all(SCALE_BITS))), b.add(bias, rest)), lane)
        b.store(b.load(free), place)
        b.store(_INDEX(0), left)
        for lane, at in zip(lanes, b.places, strict=True):
            b.store_at(kept, _INDEX(at), b.load(lane))
        return _nothing(context, builder)

    return types.none(symbols, types.int64, rows, states, words, cursor), build


def _decode_rounds(_: Any, words: Any, start: Any, slots: Any, states: Any, symbols: Any, cursor: Any) -> Any:
    """Read whole rounds while there are words for one; cursor: behind the next word, rounds done, their number."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        size = _vector_size(context)
        if not size:
            return _nothing(context, builder)
        b = _Vectors(builder, size)
        source, table, kept, target, place = (_data(context, builder, signature, arguments, i) for i in (0, 2, 3, 4, 5))
        lanes = [cgutils.alloca_once_value(builder, b.load_at(kept, _INDEX(at), _WORD)) for at in b.places]
        behind = cgutils.alloca_once_value(builder, b.load(place))
        least = b.add(arguments[1], _INDEX(LANES))
        done = b.gep(place, [_INDEX(1)])
        with cgutils.for_range(builder, b.load(b.gep(place, [_INDEX(2)]))) as loop:
            position = b.load(behind)
            with b.if_then(b.icmp_signed("<", position, least), likely=False):
                loop.do_break()
            first = b.mul(loop.index, _INDEX(LANES))
            for lane, at in reversed(list(zip(lanes, b.places, strict=True))):
                x = b.load(lane)
                share, interval = b.look_up(table, b.and_(x, b.all((1 << SCALE_BITS) - 1)))
                width = b.and_(interval, b.all((1 << WIDTH_BITS) - 1))
                rest = b.lshr(x, b.all(SCALE_BITS))
                quotient = b.lshr(rest, width)
                symbol = b.add(b.ashr(interval, b.all(WIDTH_BITS)), b.sub(rest, b.shl(quotient, width)))
                b.store_at(target, b.add(first, _INDEX(at)), b.trunc(symbol, b.vector(_HALF)))
                frequency, slot = b.and_(share, b.all(0xFFFF)), b.lshr(share, b.all(16))
                x = b.add(b.mul(frequency, quotient), slot)
                empty = b.icmp_unsigned("<", x, b.all(1 << FLOOR_BITS))
                position = b.sub(position, b.count(empty))
                more = b.expand(b.zext(b.load_at(source, position, _HALF), b.vector(_WORD)), empty)
                b.store(b.select(empty, b.or_(b.shl(x, b.all(WORD_BITS)), more), x), lane)
            b.store(position, behind)
            b.store(b.add(loop.index, _INDEX(1)), done)
        b.store(b.load(behind), place)
        for lane, at in zip(lanes, b.places, strict=True):
            b.store_at(kept, _INDEX(at), b.load(lane))
        return _nothing(context, builder)

    return types.none(words, types.int64, slots, states, symbols, cursor), build


def _vector_size(context: Any) -> int:
    features = context.codegen()._tm_features.split(",")
    return 16 if "+avx512f" in features else 8 if "+avx2" in features else 0


def _nothing(context: Any, builder: Any) -> Any:
    return impl_ret_untracked(context, builder, types.none, context.get_dummy_value())


def _data(context: Any, builder: Any, signature: Any, arguments: Any, place: int) -> Any:
    return make_array(signature.args[place])(context, builder, arguments[place]).data


class _Vectors:
    """An IR builder, and what is done with vectors of `size` states."""

    def __init__(self, builder: Any, size: int) -> None:
        self._builder, self.size = builder, size
        self.places = range(0, LANES, size)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._builder, name)

    def vector(self, kind: Any) -> Any:
        return ir.VectorType(kind, self.size)

    def all(self, number: int) -> Any:
        return ir.Constant(self.vector(_WORD), [_WORD(number)] * self.size)

    def splat(self, number: Any) -> Any:
        undefined = ir.Constant(self.vector(_WORD), ir.Undefined)
        first = self.insert_element(undefined, number, _WORD(0))
        return self.shuffle_vector(first, undefined, ir.Constant(self.vector(_WORD), None))

    def load_at(self, data: Any, index: Any, kind: Any) -> Any:
        loaded = self.load(self.bitcast(self.gep(data, [index]), self.vector(kind).as_pointer()))
        loaded.align = kind.width // 8
        return loaded

    def store_at(self, data: Any, index: Any, vector: Any) -> None:
        address = self.bitcast(self.gep(data, [index]), vector.type.as_pointer())
        self.store(vector, address).align = vector.type.element.width // 8

    def look_up(self, table: Any, places: Any) -> tuple[Any, Any]:
        """The lower and the upper words of table[place], for a table of 64 bits each. Indices come two at a time."""
        half = ir.VectorType(_INDEX, self.size // 2)
        pairs, halves = self.bitcast(places, half), []
        for start in range(0, self.size // 2, self.size // 4):
            found = ir.Constant(half, ir.Undefined)
            for j in range(self.size // 4):
                pair = self.extract_element(pairs, _WORD(start + j))
                for part, index in enumerate((self.and_(pair, _INDEX(2**32 - 1)), self.lshr(pair, _INDEX(32)))):
                    entry = self.load(self.gep(table, [index]))
                    found = self.insert_element(found, entry, _WORD(2 * j + part))
            halves.append(self.bitcast(found, self.vector(_WORD)))
        low, high = (
            ir.Constant(self.vector(_WORD), [_WORD(2 * j + part) for j in range(self.size)]) for part in (0, 1)
        )
        return self.shuffle_vector(*halves, low), self.shuffle_vector(*halves, high)

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
        table = ir.Constant(ir.ArrayType(_BYTE, 8 * 256), bytearray(b"".join(bytes(o).ljust(8, b"\0") for o in orders)))
        start = self.mul(self.zext(self.bitcast(mask, _BYTE), _INDEX), _INDEX(8))
        data = cgutils.global_constant(self._builder, f"adaquantfl_{name}", table)
        order = self.zext(self.load_at(self.bitcast(data, _BYTE.as_pointer()), start, _BYTE), vector.type)
        kind = ir.FunctionType(vector.type, [vector.type, vector.type])
        return self.call(cgutils.get_or_insert_function(self.module, kind, "llvm.x86.avx2.permd"), [vector, order])

    def count(self, mask: Any) -> Any:
        return self.zext(self.ctpop(self.bitcast(mask, ir.IntType(self.size))), _INDEX)


encode_rounds: Function = intrinsic(_encode_rounds)
decode_rounds: Function = intrinsic(_decode_rounds)
