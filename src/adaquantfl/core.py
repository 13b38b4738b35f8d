"""The codec core, in C: the only file that knows the library. core/aq.h says what each function does.

One call does a whole frame. The core never allocates, so it is given memory, which is used again from call to call.
Where vectors are long, it shares its work among the threads of `threads.py`.
"""

from __future__ import annotations

import ctypes
import sys
import threading
from collections.abc import Callable
from ctypes import c_double, c_float, c_int32, c_int64, c_uint32, c_uint64, c_void_p
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from .errors import FrameError, QuantizeError
from .threads import get_threads, over_ranges, uninterrupted

Bytes = bytes | bytearray | memoryview
Offsets = npt.NDArray[np.int64]
Vector = npt.NDArray[np.float32]
Doubles = npt.NDArray[np.float64]
Values = npt.NDArray[np.signedinteger]

FIXED, SPARSE, DENSE, AUTO = 0, 1, 2, 256  # codecs
_LIBRARY = {"win32": "libaq.dll", "darwin": "libaq.dylib"}.get(sys.platform, "libaq.so")
_KEPT = 1 << 19  # bytes of memory that a thread keeps from call to call
_MOST_ASKED = 1 << 30  # bytes that are asked for beforehand; a vector of billions mostly needs less than its share
_CHUNKS = 1 << 18  # bytes to write short vectors in: two chunks of the dense code
_TABLES = 400_000  # bytes that reading the dense code takes, whatever the length
_NARROW = 31  # levels up to which the dense code has a symbol for each
_LONG = 100_000  # elements from which threads may pay

_ONE = np.ones(1)

# What may be wrong, in the order of `enum aq_code`.
CODES = (
    "FINE", "MEMORY", "ROOM", "SHORT", "MAGIC", "VERSION", "TRUNCATED", "CHECKSUM", "SIZE", "QUANTIZER", "CODEC",
    "DIMENSION", "TOO_LARGE", "FLOATS", "NO_SCALES", "MANY_SCALES", "NO_SEGMENTS", "BUCKETS", "LAYOUT", "LENGTHS",
    "NUMBER", "NUMBER_END", "SCALES_END", "KEY_END", "PADDING", "LEVELS", "SCALE", "FURTHER", "BLOCKS", "BOUND",
    "SHORT_FORM", "FLAGS", "MANY_SEGMENTS", "NO_KEY", "FIXED_SIZE", "FIXED_BITS", "FIXED_LEVEL", "SHIFT", "DIRECTORY",
    "DIRECTORY_NUMBER", "DIRECTORY_SHORT", "DIRECTORY_LONG", "DIRECTORY_COUNT", "CHUNK", "STATES", "EXPONENT",
    "DENSE_SIZE", "TABLE_END", "TABLE_NUMBER", "TABLE_WIDTH", "TABLE_COUNT", "TABLE_SUM", "TABLE_PADDING", "PAIRS",
    "PAIRS_SUM", "STREAMS", "STREAM", "LOW_BITS", "RAW_SIZE", "RAW_FINITE", "NOT_LEVELS", "WEIGHT", "SUM",
    "NOT_LINEAR", "NOT_FINITE", "NORM", "STRETCH",
)  # fmt: skip
# Sentences about error.numbers, 0 to 3, and error.real, 4 and 5. The codes that have none are rules of the format.
SENTENCES = {
    "MEMORY": "The core lacks {0:,} bytes of memory.",
    "SHORT": "Truncated: {0} bytes, but a frame has at least {1}. Ask the sender for the whole message.",
    "MAGIC": "Not a frame: it starts with {start!r} instead of b'AQFL'.",
    "VERSION": "The frame has version {0}; this software reads version {1}. Update one of them.",
    "TRUNCATED": "Truncated: the body should have {0:,} bytes, the whole message has {1:,}.",
    "CHECKSUM": "The checksum does not match: the frame was truncated or altered on its way. Send it again.",
    "SIZE": "The frame has {0:,} bytes; its header asks for {1:,}. Send exactly one frame per message.",
    "QUANTIZER": "Quantizer tag {0} is unknown. Install or register the package that the sender has.",
    "CODEC": "Codec tag {0} is unknown.",
    "DIMENSION": "The frame has dimension {0:,}, expected {1:,}: sender and receiver differ in model.",
    "SCALE": "A scale is negative, NaN or infinite; a norm is finite and at least 0.",
    "BOUND": "With a scale of {4:g}, an element could decode to {5:g}, beyond 1.70141e+38.",
    "RAW_FINITE": "The frame carries NaN or infinite values: the sender's training has diverged.",
    "NOT_LEVELS": "The frame carries float32 values, not levels. Read it with aq.decode_float32(frame).",
    "WEIGHT": "Values up to {4:g} with weight {5:g} are beyond float32.",
    "SUM": "The sum could reach {4:g}, which is beyond float32.",
    "NOT_FINITE": "The vector has {count:,} NaN or infinite element(s), the first at index {first:,}. "
    "Training has probably diverged: lower the learning rate or clip the update.",
    "NORM": "The vector's norm, {4:g}, is beyond the range of float32. Scale it down first.",
    "STRETCH": "The vector's norm, {4:g}, stretched by {5:g} is beyond float32.",
}
_BROKEN_RULE = "The frame breaks the rule {name} of the wire format ({0}, {1}, {2}, {3}): its sender is at fault."
_MEMORY, _ROOM, _NOT_LINEAR = (CODES.index(name) for name in ("MEMORY", "ROOM", "NOT_LINEAR"))


def _struct(name: str, **fields: Any) -> Any:
    return type(name, (ctypes.Structure,), {"_fields_": list(fields.items())})


_Memory = _struct("Memory", data=c_void_p, size=c_uint64)
_Error = _struct("Error", code=c_int32, unused=c_int32, numbers=c_int64 * 4, real=c_double * 2)
Traits = _struct(
    "Traits", most=c_uint32, linear=c_int32, divides=c_int32, keyed=c_int32, rotates=c_int32, numbered=c_int32,
    least=c_float, highest=c_float, reach=c_int32, beyond=c_int32, clip=c_double,
)  # fmt: skip
_Known = _struct(
    "Known", offsets=c_void_p, segments=c_int64, dimension=c_uint64, key=c_uint64, quantizer=c_int32, keyed=c_int32
)
Facts = _struct(  # a checked frame's; see aq_header
    "Facts", dimension=c_uint64, scales=c_uint64, key=c_uint64, bucket=c_uint64, lengths_at=c_uint64,
    scales_at=c_uint64, body_at=c_uint64, body_size=c_uint64, size=c_uint64, top=c_int64, bound=c_double,
    number=c_float, largest_scale=c_float, s=c_uint32, quantizer=c_int32, codec=c_int32, layout=c_int32,
    whole=c_int32, segmented=c_int32,
)  # fmt: skip
_Plan = _struct(
    "Plan", quantizer=c_int32, codec=c_int32, s=c_uint32, segmented=c_int32, keyed=c_int32, numbered=c_int32,
    number=c_float, dimension=c_uint64, key=c_uint64, offsets=c_void_p, segments=c_int64, scales=c_void_p,
    known=c_void_p, top=c_int64, memory=_Memory, out=c_void_p, room=c_uint64, each=c_void_p,
)  # fmt: skip
_Rounding = _struct(
    "Rounding", x=c_void_p, offsets=c_void_p, segments=c_int64, inverse=c_void_p, key=c_uint64, top=c_int64,
    s=c_uint32, bytes=c_int32, values=c_void_p, each=c_void_p,
)  # fmt: skip


def _load() -> ctypes.CDLL:
    path = Path(__file__).with_name(_LIBRARY)
    try:
        return ctypes.CDLL(str(path))
    except OSError as error:
        raise ImportError(
            f"The codec core {path} cannot be loaded ({error}). In a checkout, build it with `python hatch_build.py`; "
            "elsewhere install the package anew with pip, which builds it."
        ) from None


_lib = _load()


def _function(name: str, result: Any, *arguments: Any) -> Callable[..., Any]:
    function = getattr(_lib, f"aq_{name}")
    function.restype, function.argtypes = result, arguments
    found: Callable[..., Any] = function
    return found


_P, _N, _I = c_void_p, c_int64, c_int32  # pointers, counts and codes
traits_of = _function("traits_of", ctypes.POINTER(Traits), _I)  # a pointer to what the core knows; for tests
_check = _function("check", _I, _P, c_uint64, c_uint64, _P, _P, _P, _P)
_offsets = _function("offsets", None, _P, _P, _P, _P)
_frame = _function("frame", _N, _P, _P, c_uint64, _P)
_fixed_frame = _function("fixed_frame", c_uint64, _P)
_encode = _function("encode", _N, _P, _P, _I, _P)
_compress = _function("compress", _N, _P, _P, _P, _N, _P)
_decode = _function("decode", _I, _P, _P, _P, _I, _Memory, _P, _P)
_add = _function("add", _I, _P, c_uint64, c_uint64, _P, c_double, _P, _P, _Memory, _P, _P)
_squares = _function("squares", _I, _P, _P, _N, _P, _Memory, _P, _P)
_largest = _function("largest", _I, _P, _P, _N, _P, _Memory, _P, _P)
_round_random = _function("round_random", _I, _P, _P, _Memory, _P)
_round_nearest, _round_exponents, _round_lattice = (
    _function(f"round_{name}", None, _P) for name in ("nearest", "exponents", "lattice")
)
_round_steps, _round_centres = (_function(f"round_{name}", None, _P, _P, _P, _P) for name in ("steps", "centres"))
_lattice_points = _function("lattice_points", None, _P, _P, _P)
_rotate = _function("rotate", None, _P, _P, _N, c_uint64, _I, _P, _P)
_checksum = _function("checksum", c_uint32, c_uint32, _P, c_uint64)
use = _function("use", _I, _I)  # vectors of the processor: 0 portable, 1 AVX2, 2 AVX-512; -1 the best. For tests


class Scratch:
    """Memory that the core works in, which grows with what is asked for.

    >>> scratch = Scratch()
    >>> first, second = scratch.take(1000), scratch.take(500)
    >>> first.data == second.data, first.data % 64
    (True, 0)
    """

    def __init__(self) -> None:
        self._block = np.empty(0, dtype=np.uint8)
        self.memory = _Memory(0, 0)

    def __reduce__(self) -> tuple[type[Scratch], tuple[()]]:
        return Scratch, ()  # a copy has memory of its own

    def take(self, size: int) -> Any:
        """At least `size` bytes, with anything in them; what was taken before must not be used any more."""
        if size > self.memory.size:
            self._block = np.empty(0, dtype=np.uint8)  # not both at a time
            self._block = np.empty(size + 64, dtype=np.uint8)
            address = self._block.ctypes.data
            self.memory = _Memory(address + -address % 64, size)
        return self.memory


class _Thread(threading.local):
    """What a thread uses again in every call."""

    def __init__(self) -> None:
        self.error, self.plan, self.bound = _Error(), _Plan(), c_double()
        self.scratch, self.out = Scratch(), Scratch()
        self.raised: BaseException | None = None
        self.error_at, self.plan_at = ctypes.addressof(self.error), ctypes.addressof(self.plan)


_here = _Thread()
_Work = ctypes.CFUNCTYPE(None, c_void_p, c_int64, c_int64)
_Each = ctypes.CFUNCTYPE(None, _Work, c_void_p, c_int64, c_int64)


def _share(work: Any, context: int, units: int, smallest: int) -> None:
    done = False
    try:
        with uninterrupted():
            over_ranges(lambda first, last: work(context, first, last), units, smallest)
            done = True
    except BaseException as error:  # C cannot pass it on: it is raised when C returns, which needs all work to be done
        if not done:
            work(context, 0, units)
        _here.raised = error


_shared = _Each(_share)
_SHARED = ctypes.cast(_shared, c_void_p).value


def _each(dimension: int) -> int | None:
    return _SHARED if dimension >= _LONG and get_threads() > 1 else None


def _memory(size: int, scratch: Scratch | None) -> tuple[Any, Scratch]:
    """Memory for a call: the given scratch's, the thread's where it is small, or new."""
    chosen = scratch or (_here.scratch if size <= _KEPT else Scratch())
    return chosen.take(size), chosen


def _at(array: npt.NDArray[Any]) -> int:
    address: int = array.__array_interface__["data"][0]
    return address


def _refused(error: Any, data: Any = None) -> Exception:
    """The exception for what the core found wrong."""
    numbers, name = (*error.numbers, *error.real), CODES[error.code]
    words: dict[str, Any] = {"name": name}
    if name == "MAGIC":
        words["start"] = bytes(memoryview(data)[:4])
    if name == "NOT_FINITE":
        bad = np.flatnonzero(~np.isfinite(data))
        words |= {"count": len(bad), "first": int(bad[0])}
    kind = QuantizeError if name in ("NOT_FINITE", "NORM", "STRETCH") else FrameError
    return kind(SENTENCES.get(name, _BROKEN_RULE).format(*numbers, **words))


def _raise() -> None:
    """Raise what `_share` could not."""
    if _here.raised is not None:
        raised, _here.raised = _here.raised, None
        raise raised


def _with_memory(
    call: Callable[[Any], int], size: int, scratch: Scratch | None = None, data: Any = None, expected: int = 0
) -> int:
    """Call the core with memory, and with more where it says so; what it returns is 0 or `expected`."""
    while True:
        memory, kept = _memory(size, scratch)
        code = call(memory)
        _raise()
        if code in (0, expected):
            return code
        if code != _MEMORY:
            raise _refused(_here.error, data)
        size = max(int(_here.error.numbers[0]) + _TABLES, 2 * size)
        del kept


# -- headers


class Known:
    """What a receiver knows of a frame before it comes. offsets: None is one norm for all; key: None is not known."""

    def __init__(self, quantizer: int, dimension: int, offsets: Offsets | None, key: int | None) -> None:
        self._keep = None if offsets is None else np.ascontiguousarray(offsets, dtype=np.int64)
        segments, at = (0, None) if self._keep is None else (len(self._keep) - 1, _at(self._keep))
        self._struct = _Known(at, segments, dimension, key or 0, quantizer, key is not None)
        self.at = ctypes.addressof(self._struct)


def check(data: Bytes, dimension: int | None, known: Known | None, traits: Any = None) -> Any:
    """The facts of a frame whose header and checksum are right; FrameError otherwise. traits: of outside quantizers."""
    if dimension is not None and dimension < 1:
        raise FrameError(f"A frame has at least one element; {dimension} were expected.")
    facts, address, size = Facts(), *_span(data)
    of = None if traits is None else ctypes.addressof(traits)
    if _check(address, size, dimension or 0, known and known.at, of, ctypes.addressof(facts), _here.error_at):
        raise _refused(_here.error, data)
    return facts


def _span(data: Any) -> tuple[Any, int]:
    """Something that ctypes takes for the address of bytes, and their number."""
    if isinstance(data, bytes):
        return data, len(data)
    array = np.frombuffer(data, dtype=np.uint8) if len(data) else np.empty(0, dtype=np.uint8)
    return c_void_p(array.ctypes.data), len(array)


def offsets(data: Bytes, facts: Any, known: Known | None) -> Offsets:
    """Where the segments of a checked frame begin, and the dimension."""
    found = np.empty(facts.scales + 1, dtype=np.int64)
    _offsets(_span(data)[0], ctypes.addressof(facts), known and known.at, _at(found))
    return found


# -- writing


def _planned(
    tag: int, codec: int, s: int, dimension: int, top: int, offsets: Offsets | None, known: Known | None
) -> Any:
    plan = _here.plan
    plan.quantizer, plan.codec, plan.s, plan.dimension, plan.top = tag, codec, s, dimension, top
    plan.segmented, plan.segments, plan.offsets = 0, 1, None
    if offsets is not None:
        plan.segmented, plan.segments, plan.offsets = 1, len(offsets) - 1, _at(offsets)
    plan.known, plan.each = known and known.at, _each(dimension)
    plan.scales, plan.keyed, plan.numbered = None, 0, 0
    return plan


def _written(call: Callable[[], int], plan: Any, each: float, data: Any = None) -> bytes:
    """Call the core until memory and room suffice; the frame.

    each: bytes for each element to work in, which mostly suffice.
    """
    most = int(_fixed_frame(_here.plan_at))
    size = _CHUNKS + 64 * int(plan.segments) + min(int(each * plan.dimension), _MOST_ASKED)
    room = most + most // 16 + 1024
    while True:
        plan.memory, kept = _memory(size, None)
        target = _here.out if room <= _KEPT else Scratch()
        plan.room, plan.out = room, target.take(room).data
        found = call()
        del kept  # before the frame is copied
        _raise()
        if found >= 0:
            break
        if -found == _MEMORY:
            size = max(int(_here.error.numbers[0]) + 64, size + size // 4)
        elif -found == _ROOM:
            room = max(int(_here.error.numbers[0]), 2 * room)
        else:
            raise _refused(_here.error, data)
    return ctypes.string_at(plan.out, found)


def compress(
    x: Vector,
    s: int,
    key: int,
    tag: int,
    codec: int,
    offsets: Offsets | None,
    stretch: float | Doubles,
    known: Known | None,
) -> bytes:
    """Floats to a frame of the paper's quantizer."""
    plan, at = _planned(tag, codec, s, len(x), s, offsets, known), _at(x)
    plan.key = key
    factors = _ONE if isinstance(stretch, float) and stretch == 1.0 else np.atleast_1d(np.float64(stretch))
    count, factors_at = len(factors), _at(factors)
    plan_at, error_at, each = _here.plan_at, _here.error_at, 1 / 64 if codec == FIXED else 6
    return _written(lambda: _compress(plan_at, at, factors_at, count, error_at), plan, each, x)


def _planned_levels(
    tag: int, codec: int, s: int, dimension: int, top: int, offsets: Offsets | None, scales: Vector,
    number: float | None, key: int | None, known: Known | None,
) -> Any:  # fmt: skip
    plan = _planned(tag, codec, s, dimension, top, offsets, known)
    plan.scales = _at(scales) if len(scales) else None
    if number is not None:
        plan.numbered, plan.number = 1, number
    if key is not None:
        plan.keyed, plan.key = 1, key
    return plan


def encode(values: Values, codec: int, **facts: Any) -> bytes:
    """Levels to a frame; facts: of `_planned_levels`."""
    plan = _planned_levels(codec=codec, dimension=len(values), **facts)
    at, size, plan_at, error_at = _at(values), values.itemsize, _here.plan_at, _here.error_at
    each = _bytes_each(values, codec, facts["top"])
    return _written(lambda: _encode(plan_at, at, size, error_at), plan, each)


def _bytes_each(values: Values, codec: int, top: int) -> float:
    """Bytes for each level that encoding mostly takes: two for a symbol, or those of a list of the non-zeros."""
    if codec == FIXED:
        return 1 / 64
    if codec == SPARSE or top > _NARROW or len(values) < _LONG:
        return 6
    some = values[:: len(values) // 4096 | 1]
    share = np.count_nonzero(some) / len(some)
    return max(56 * share, 2.0625) if share < 1 / 8 else 2.0625  # with more of them `dense` is mostly smaller


def frame(body: Bytes, codec: int, dimension: int, **facts: Any) -> bytes:
    """A frame of a body that is there already; facts: of `_planned_levels`."""
    plan = _planned_levels(codec=codec, dimension=dimension, **facts)
    address, size = _span(body)
    plan.room = int(size) + 64 + 24 * int(plan.segments)
    whole = ctypes.create_string_buffer(plan.room)
    plan.out = ctypes.addressof(whole)
    found = _frame(_here.plan_at, address, size, _here.error_at)
    if found < 0:
        raise _refused(_here.error)
    return memoryview(whole)[:found].tobytes()


# -- reading


def decode(data: Bytes, facts: Any, values: Values | None, scratch: Scratch | None = None) -> None:
    """The levels of a checked frame into `values`, or only whether its body is right: FrameError otherwise."""
    (address, _), facts_at, error_at, each = (
        _span(data),
        ctypes.addressof(facts),
        _here.error_at,
        _each(facts.dimension),
    )
    at, size = (None, 0) if values is None else (_at(values), values.itemsize)
    _with_memory(
        lambda memory: _decode(address, facts_at, at, size, memory, each, error_at),
        65_536 + {SPARSE: 8 * facts.body_size, DENSE: _TABLES}.get(facts.codec, 0),
        scratch,
    )


def add(
    data: bytes, total: Vector, weight: float, bound: float, known: Known | None = None, scratch: Scratch | None = None
) -> float | None:
    """Add weight x the frame's vector to total; the new bound. None where levels alone do not make the vector."""
    at, size, d, error_at, each = _at(total), len(data), len(total), _here.error_at, _each(len(total))
    known_at, bound_at = known and known.at, ctypes.addressof(_here.bound)
    _here.bound.value = bound
    code = _with_memory(
        lambda memory: _add(data, size, d, known_at, weight, at, bound_at, memory, each, error_at),
        65_536,
        scratch,
        data,
        _NOT_LINEAR,
    )
    return float(_here.bound.value) if code == 0 else None


def crc32(data: Bytes, before: int = 0) -> int:
    """The checksum of frames and messages, as zlib's.

    >>> import zlib
    >>> crc32(b"frame") == zlib.crc32(b"frame")
    True
    """
    address, size = _span(data)
    found: int = _checksum(before, address, size)
    return found


# -- vectors


def squares(x: Vector, offsets: Offsets) -> Doubles:
    """The sum of squares of each segment, in double; NaN and infinite elements are refused."""
    sums = np.empty(len(offsets) - 1)
    _of_segments(_squares, x, offsets, sums)
    return sums


def largest(x: Vector, offsets: Offsets) -> Vector:
    """The largest magnitude of each segment; NaN and infinite elements are refused."""
    found = np.empty(len(offsets) - 1, dtype=np.float32)
    _of_segments(_largest, x, offsets, found)
    return found


def _of_segments(function: Callable[..., int], x: Vector, offsets: Offsets, found: npt.NDArray[Any]) -> None:
    at, cuts, out, error_at, each = _at(x), _at(offsets), _at(found), _here.error_at, _each(len(x))
    needed = 4096 + len(x) // 4096
    _with_memory(lambda memory: function(at, cuts, len(found), out, memory, each, error_at), needed, None, x)


def _rounding(
    x: Vector, offsets: Offsets, s: int, top: int, dtype: npt.DTypeLike, inverse: Doubles | None, key: int
) -> tuple[Any, Values]:
    values: Values = np.empty(len(x), dtype=dtype)
    plan = _Rounding(
        _at(x), _at(offsets), len(offsets) - 1, None if inverse is None else _at(inverse), key, top, s,
        values.itemsize, _at(values), _each(len(x)),
    )  # fmt: skip
    return plan, values


def _rounded(function: Callable[..., Any], plan: Any, *arrays: npt.NDArray[Any]) -> None:
    function(ctypes.addressof(plan), *map(_at, arrays))
    _raise()


def round_random(x: Vector, offsets: Offsets, scales: Vector, s: int, key: int, dtype: npt.DTypeLike) -> Values:
    """Eq. 5: one of the two levels around each element, at random so that the mean is right."""
    plan, values = _rounding(x, offsets, s, s, dtype, None, key)
    plan_at, scales_at, error_at = ctypes.addressof(plan), _at(scales), _here.error_at
    _with_memory(lambda memory: _round_random(plan_at, scales_at, memory, error_at), 65_536 + 32 * len(scales))
    return values


def round_nearest(x: Vector, offsets: Offsets, inverse: Doubles, s: int, dtype: npt.DTypeLike) -> Values:
    """The nearest level, halves to the even one."""
    plan, values = _rounding(x, offsets, s, s, dtype, inverse, 0)
    _rounded(_round_nearest, plan)
    return values


def round_exponents(x: Vector, offsets: Offsets, inverse: Doubles, s: int, key: int, dtype: npt.DTypeLike) -> Values:
    """Natural dithering: level k is 2^(k - s) of the norm."""
    plan, values = _rounding(x, offsets, s, s, dtype, inverse, key)
    _rounded(_round_exponents, plan)
    return values


def round_lattice(
    x: Vector, offsets: Offsets, inverse: Doubles, s: int, top: int, key: int, dtype: npt.DTypeLike
) -> Values:
    """Pairs of elements on a hexagonal lattice, with dither."""
    plan, values = _rounding(x, offsets, s, top, dtype, inverse, key)
    _rounded(_round_lattice, plan)
    return values


def lattice_points(values: npt.NDArray[np.int32], offsets: Offsets, steps: Doubles, key: int) -> Vector:
    """The points of a lattice without their dither, times each segment's step."""
    plan, out = _Rounding(), np.empty(len(values), dtype=np.float32)
    plan.values, plan.bytes, plan.offsets, plan.segments = _at(values), 4, _at(offsets), len(offsets) - 1
    plan.key, plan.each = key, _each(len(values))
    _rounded(_lattice_points, plan, steps, out)
    return out


def round_steps(
    y: Vector, offsets: Offsets, inverse: Doubles, steps: Doubles, centres: Doubles, top: int, dtype: npt.DTypeLike
) -> tuple[Values, Doubles]:
    """Multiples of each block's step, and <|y|, centres> / rms of each block."""
    (plan, values), dots = _rounding(y, offsets, 1, top, dtype, inverse, 0), np.empty(len(offsets) - 1)
    _rounded(_round_steps, plan, steps, centres, dots)
    return values, dots


def round_centres(
    y: Vector, offsets: Offsets, inverse: Doubles, edges: Doubles, centres: Doubles
) -> tuple[Values, Doubles]:
    """The numbers of the nearest centres, from 1 on and signed, and <|y|, centres> / rms of each block."""
    s = len(centres)
    (plan, values), dots = _rounding(y, offsets, s, s, np.int8, inverse, 0), np.empty(len(offsets) - 1)
    _rounded(_round_centres, plan, edges, centres, dots)
    return values, dots


def rotate(x: Vector, offsets: Offsets, key: int, forward: bool, out: Vector | None = None) -> Vector:
    """H D x of every segment, each of 2^k elements, or D H x, which undoes it. out: x itself, or new memory.

    x: the elements from the first offset on, which need not be 0.
    """
    out = np.empty(len(x), dtype=np.float32) if out is None else out
    before = 4 * int(offsets[0])
    _rotate(_at(x) - before, _at(offsets), len(offsets) - 1, key, forward, _at(out) - before, _each(len(x)))
    _raise()
    return out
