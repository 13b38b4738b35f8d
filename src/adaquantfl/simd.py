"""LLVM code for vectors of a processor, for what Numba's loops do not become: an IR builder with a vector's width.

Where a processor has no such vectors, LLVM makes shorter ones of them.
"""

# mypy: disable-error-code="no-untyped-call"
from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.imputils import impl_ret_untracked
from numba.np.arrayobj import make_array

BYTE, HALF, WORD, INDEX = (ir.IntType(bits) for bits in (8, 16, 32, 64))
AHEAD = 1024  # elements between a row and the one that is asked for meanwhile
_LINE = 64  # bytes
FLOAT, DOUBLE = ir.FloatType(), ir.DoubleType()


def vector_size(context: Any) -> int:
    """Words in a vector: 16 with AVX-512, 8 with AVX2, and 0 where there is neither."""
    features = context.codegen()._tm_features.split(",")
    return 16 if "+avx512f" in features else 8 if "+avx2" in features else 0


def nothing(context: Any, builder: Any) -> Any:
    """What an intrinsic of type `none` returns."""
    return impl_ret_untracked(context, builder, types.none, context.get_dummy_value())


def data(context: Any, builder: Any, signature: Any, arguments: Any, place: int) -> Any:
    """The address of the first element of the argument at `place`, an array."""
    return make_array(signature.args[place])(context, builder, arguments[place]).data


class Vectors:
    """An IR builder for a row of `lanes` words, in vectors of `size` that begin at `places`."""

    def __init__(self, builder: Any, size: int, lanes: int) -> None:
        self.builder, self.size = builder, size
        self.places = range(0, lanes, size)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.builder, name)

    def vector(self, kind: Any) -> Any:
        return ir.VectorType(kind, self.size)

    def all(self, number: float, kind: Any = WORD) -> Any:
        return ir.Constant(self.vector(kind), [kind(number)] * self.size)

    def splat(self, number: Any) -> Any:
        undefined = ir.Constant(self.vector(number.type), ir.Undefined)
        first = self.insert_element(undefined, number, WORD(0))
        return self.shuffle_vector(first, undefined, ir.Constant(self.vector(WORD), None))

    def load_at(self, data: Any, index: Any, kind: Any) -> Any:
        loaded = self.load(self.bitcast(self.gep(data, [index]), self.vector(kind).as_pointer()))
        loaded.align = _size(kind)
        return loaded

    def prefetch(self, data: Any, index: Any, kind: Any) -> None:
        """Ask for a row that will be needed soon, and may lie behind the array: processors do not look far ahead."""
        pointer = BYTE.as_pointer()
        type_ = ir.FunctionType(ir.VoidType(), [pointer, WORD, WORD, WORD])
        function = cgutils.get_or_insert_function(self.module, type_, "llvm.prefetch.p0i8")
        for at in range(0, self.places.stop, _LINE // _size(kind)):
            address = self.bitcast(self.gep(data, [self.add(index, INDEX(AHEAD + at))]), pointer)
            self.call(function, [address, WORD(0), WORD(3), WORD(1)])

    def store_at(self, data: Any, index: Any, vector: Any) -> None:
        address = self.bitcast(self.gep(data, [index]), vector.type.as_pointer())
        self.store(vector, address).align = _size(vector.type.element)


def _size(kind: Any) -> int:
    """Bytes of an element: arrays are aligned to those, not to vectors."""
    return {FLOAT: 4, DOUBLE: 8}.get(kind) or kind.width // 8
