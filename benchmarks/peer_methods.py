"""How each peer is called: a vector to what it would send, and back. Runs in the peers' own environment.

A method is named in the table METHODS; the peer is imported when the method is made, so that one that is missing
fails alone. Nothing of AdaQuantFL is imported here.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import lzma
import math
import sys
import types
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Encode = Callable[[Array], Any]
Decode = Callable[[Any, int], Array]
Size = Callable[[Any, int], float]  # bytes of what was encoded, for a vector of that many elements
Coder = tuple[Encode, Decode, Size]

NEAREST, RANDOM, DROPPED, LOSSLESS = "nearest", "random", "dropped", "lossless"
FORMULA = "by the formula of its code: it returns floats, so that nothing is decoded"
PACKED = "levels packed to their bits, which it leaves to others and which is not timed"
KEPT = "a float32 and an index of just enough bits for each value kept; the packing is not timed"
AS_SENT = "the bytes it makes"
BLOCKS = "its codes and a float32 for each block; the table of values is known to both sides"
LEVELS = "the bytes it makes of AdaQuantFL's levels as int8"
IDEAL = "its words; the histogram that it codes with is not counted"
MASK = "the bytes it makes, and a bit an element for where they belong"


@dataclass(frozen=True)
class Method:
    """One peer's way to send a vector, at one setting."""

    peer: str  # its name on PyPI
    name: str
    rounding: str
    counted: str  # how its bytes are counted
    make: Callable[[], Coder]
    integers: bool = False  # it codes levels, losslessly, rather than floats

    @property
    def title(self) -> str:
        return f"{self.peer}: {self.name}"


def as_bytes(payload: bytes, n: int) -> int:
    return len(payload)


def torch_vector(x: Array) -> Any:
    import torch

    return torch.from_numpy(x)


def module_alone(name: str) -> Any:
    """A module of a large package without what the packages around it import: those stay empty shells."""
    parents = name.split(".")[:-1]
    for depth in range(1, len(parents) + 1):
        package = ".".join(parents[:depth])
        if package not in sys.modules:
            spec = importlib.machinery.PathFinder.find_spec(package, _path_of(parents[: depth - 1]))
            if spec is None or spec.submodule_search_locations is None:
                raise ModuleNotFoundError(f"No module named {package!r}")
            shell = types.ModuleType(package)
            shell.__path__ = list(spec.submodule_search_locations)
            sys.modules[package] = shell
    return importlib.import_module(name)


def _path_of(parents: list[str]) -> list[str] | None:
    return list(sys.modules[".".join(parents)].__path__) if parents else None


# Plain casts.


def numpy_float16() -> Coder:
    return (
        lambda x: x.astype(np.float16).tobytes(),
        lambda sent, n: np.frombuffer(sent, np.float16).astype(np.float32),
        as_bytes,
    )


def torch_bfloat16() -> Coder:
    import torch

    return (
        lambda x: torch.from_numpy(x).to(torch.bfloat16),
        lambda sent, n: sent.float().numpy(),
        lambda sent, n: 2 * sent.numel(),
    )


def torch_float8() -> Coder:
    """float8_e4m3fn of the vector scaled to the type's range: unscaled, a small update would become zeros."""
    import torch

    def encode(x: Array) -> tuple[Any, float]:
        tensor = torch.from_numpy(x)
        scale = float(tensor.abs().max()) / torch.finfo(torch.float8_e4m3fn).max
        return (tensor / scale).to(torch.float8_e4m3fn), scale

    return encode, lambda sent, n: (sent[0].float() * sent[1]).numpy(), lambda sent, n: sent[0].numel() + 4


def numpy_int8(coder: Callable[[], Coder] | None = None) -> Coder:
    """One scale, the largest magnitude, and 127 levels; then a general-purpose compressor."""
    write, read, size = coder() if coder else general(bytes, bytes, np.int8)

    def encode(x: Array) -> tuple[Any, float]:
        scale = float(np.abs(x).max()) / 127
        return write(np.rint(x * np.float32(1 / scale)).astype(np.int8)), scale

    def decode(sent: tuple[Any, float], n: int) -> Array:
        return read(sent[0], n).astype(np.float32) * np.float32(sent[1])

    return encode, decode, lambda sent, n: size(sent[0], n) + 4


# Lossless coders: of AdaQuantFL's levels, of int8 or of the float32 bytes themselves.


def general(compress: Callable[[bytes], bytes], decompress: Callable[[bytes], bytes], dtype: Any) -> Coder:
    def encode(x: Array) -> bytes:
        return compress(x.astype(dtype, copy=False).tobytes())

    return encode, lambda sent, n: np.frombuffer(decompress(sent), dtype), as_bytes


def zstandard_coder(level: int, dtype: Any) -> Coder:
    import zstandard

    writer, reader = zstandard.ZstdCompressor(level), zstandard.ZstdDecompressor()
    return general(writer.compress, reader.decompress, dtype)


def lz4_coder(dtype: Any) -> Coder:
    import lz4.frame

    return general(lz4.frame.compress, lz4.frame.decompress, dtype)


def brotli_coder(quality: int, dtype: Any) -> Coder:
    import brotli

    return general(partial(brotli.compress, quality=quality), brotli.decompress, dtype)


def zlib_coder(level: int, dtype: Any) -> Coder:
    return general(partial(zlib.compress, level=level), zlib.decompress, dtype)


def lzma_coder(dtype: Any) -> Coder:
    return general(partial(lzma.compress, preset=1), lzma.decompress, dtype)


def blosc2_coder(dtype: Any) -> Coder:
    import blosc2

    blosc2.set_nthreads(1)
    size = np.dtype(dtype).itemsize
    return general(lambda data: blosc2.compress2(data, typesize=size), blosc2.decompress2, dtype)


def constriction_coder(dtype: Any) -> Coder:
    """ANS with the levels' own histogram as the model. The model is not counted: an ideal one."""
    import constriction

    def encode(levels: Array) -> tuple[Array, int, Any]:
        low = int(levels.min())
        symbols = levels.astype(np.int32) - low
        counts = np.bincount(symbols).astype(np.float64)
        model = constriction.stream.model.Categorical(counts / counts.sum(), perfect=False)
        coder = constriction.stream.stack.AnsCoder()
        coder.encode_reverse(symbols, model)
        return coder.get_compressed(), low, model

    def decode(sent: tuple[Array, int, Any], n: int) -> Array:
        words, low, model = sent
        return (constriction.stream.stack.AnsCoder(words).decode(model, n) + low).astype(dtype)

    return encode, decode, lambda sent, n: 4 * len(sent[0])


# Federated learning and distributed training.


def nvflare_adaquant(weight: float) -> Coder:
    quantizer = module_alone("nvflare.app_opt.pt.quantization.ada_quant").AdaQuantizer(weight=weight)

    def encode(x: Array) -> tuple[Any, dict[str, Any]]:
        values, state = quantizer.quantize(torch_vector(x))
        return values, state

    def decode(sent: tuple[Any, dict[str, Any]], n: int) -> Array:
        values, state = sent
        tensor = torch_vector(values) if isinstance(values, np.ndarray) else values
        return quantizer.dequantized(tensor, state).float().numpy() if state else tensor.numpy()

    def size(sent: tuple[Any, dict[str, Any]], n: int) -> int:
        values, state = sent
        parts = [values, *(item for item in state.values() if hasattr(item, "nbytes"))]
        return sum(int(part.nbytes) for part in parts) + 16  # the norm and the offset, as doubles

    return encode, decode, size


def hivemind_coder(kind: str) -> Coder:
    from hivemind.compression import deserialize_torch_tensor, serialize_torch_tensor
    from hivemind.proto import runtime_pb2

    tag = runtime_pb2.CompressionType.Value(kind)

    def encode(x: Array) -> bytes:
        return bytes(serialize_torch_tensor(torch_vector(x), tag).SerializeToString())

    def decode(sent: bytes, n: int) -> Array:
        return deserialize_torch_tensor(runtime_pb2.Tensor.FromString(sent)).float().numpy()

    return encode, decode, as_bytes


def fedlab_qsgd(bits: int) -> Coder:
    from fedlab.contrib.compressor.quantization import QSGDCompressor

    coder = QSGDCompressor(bits)
    # 2^bits levels above zero, and a sign for those only that are not zero
    symbols = math.log2(2 * 2**bits + 1)
    return (
        lambda x: coder.compress(torch_vector(x)),
        lambda sent, n: coder.decompress(sent).numpy(),
        lambda sent, n: n * symbols / 8 + 4,
    )


def index_bytes(n: int) -> float:
    return math.ceil(math.log2(max(n, 2))) / 8


def fedlab_topk(ratio: float) -> Coder:
    from fedlab.contrib.compressor.topk import TopkCompressor

    coder = TopkCompressor(ratio)
    return (
        lambda x: coder.compress(torch_vector(x)),
        lambda sent, n: coder.decompress(*sent, (n,)).numpy(),
        lambda sent, n: len(sent[0]) * (4 + index_bytes(n)),
    )


def fedml_qsgd(bits: int) -> Coder:
    coder = module_alone("fedml.utils.compression").QSGDCompressor()
    return (
        lambda x: coder.compress(torch_vector(x), quantize_level=bits, is_biased=False),
        lambda sent, n: coder.decompress_new(sent).numpy(),
        lambda sent, n: n * (bits + 1) / 8 + 4,
    )


def fedml_topk(ratio: float) -> Coder:
    import torch

    coder = module_alone("fedml.utils.compression").TopKCompressor()

    def encode(x: Array) -> tuple[Any, Any]:
        tensor = torch_vector(x)
        coder.shapes[None] = tensor.shape
        _, indices, values = coder.compress(tensor, ratio=ratio)
        return values, indices

    def decode(sent: tuple[Any, Any], n: int) -> Array:
        coder.shapes[None] = torch.Size([n])
        return coder.decompress_new(*sent).numpy()

    return encode, decode, lambda sent, n: len(sent[0]) * (4 + index_bytes(n))


def openfl_eden(bits: int) -> Coder:
    """EDEN itself; OpenFL's transformer around it also adds the vector up in a Python loop, for a seed."""
    eden = module_alone("openfl.pipelines.eden_pipeline").Eden(nbits=bits)

    def encode(x: Array) -> tuple[Array, dict[int, float]]:
        codes, scales, lengths, n = eden.compress(x, 7)
        pairs = zip(scales, lengths, strict=True)
        return codes, dict(enumerate([7.0, float(n), *(float(item) for pair in pairs for item in pair)]))

    def decode(sent: tuple[Array, dict[int, float]], n: int) -> Array:
        return np.asarray(eden.decompress(*sent))

    return encode, decode, lambda sent, n: sent[0].size + 4 * len(sent[1])


def openfl_pipeline(name: str, module: str, **settings: Any) -> Coder:
    pipeline = getattr(module_alone(f"openfl.pipelines.{module}"), name)(**settings)

    def size(sent: tuple[bytes, list[dict[str, Any]]], n: int) -> float:
        places = sum(len(part.get("bool_list", ())) for part in sent[1]) / 8  # a bit an element
        values = sum(8 * len(part.get("int_to_float", ())) for part in sent[1])
        return len(sent[0]) + places + values

    def decode(sent: tuple[bytes, list[dict[str, Any]]], n: int) -> Array:
        return np.asarray(pipeline.backward(sent[0], list(sent[1])), dtype=np.float32)

    return pipeline.forward, decode, size


# Quantized tensors for other uses.


def bitsandbytes_8bit(block: int) -> Coder:
    from bitsandbytes.functional import dequantize_blockwise, quantize_blockwise

    def size(sent: tuple[Any, Any], n: int) -> int:
        return sent[0].numel() + 4 * sent[1].absmax.numel()

    return (
        lambda x: quantize_blockwise(torch_vector(x), blocksize=block),
        lambda sent, n: dequantize_blockwise(*sent).numpy(),
        size,
    )


def bitsandbytes_4bit(kind: str, block: int) -> Coder:
    from bitsandbytes.functional import dequantize_4bit, quantize_4bit

    def size(sent: tuple[Any, Any], n: int) -> int:
        return sent[0].numel() + 4 * sent[1].absmax.numel()

    return (
        lambda x: quantize_4bit(torch_vector(x), blocksize=block, quant_type=kind),
        lambda sent, n: dequantize_4bit(*sent).reshape(-1).numpy(),
        size,
    )


def padded(x: Array, block: int) -> Array:
    return np.pad(x, (0, -len(x) % block)) if len(x) % block else x


def torchao_affine(bits: int, block: int) -> Coder:
    import torch
    from torchao.quantization.quant_primitives import (
        MappingType,
        choose_qparams_affine,
        dequantize_affine,
        quantize_affine,
    )

    top = 2 ** (bits - 1) - 1

    def encode(x: Array) -> tuple[Any, Any, Any]:
        tensor = torch_vector(padded(x, block))
        scale, zero = choose_qparams_affine(tensor, MappingType.SYMMETRIC, (block,), torch.int8, -top - 1, top)
        return quantize_affine(tensor, (block,), scale, zero, torch.int8, -top - 1, top), scale, zero

    def decode(sent: tuple[Any, Any, Any], n: int) -> Array:
        codes, scale, zero = sent
        return dequantize_affine(codes, (block,), scale, zero, torch.int8, -top - 1, top).numpy()[:n]

    return encode, decode, lambda sent, n: n * bits / 8 + 4 * sent[1].numel()


def gguf_coder(kind: str, block: int) -> Coder:
    from gguf import GGMLQuantizationType
    from gguf.quants import dequantize, quantize

    tag = GGMLQuantizationType[kind]
    return (
        lambda x: quantize(padded(x, block), tag),
        lambda sent, n: dequantize(sent, tag)[:n],
        lambda sent, n: sent.nbytes,
    )


# Compressors of scientific data, which federated learning has borrowed (FedSZ, APPFL).


def zfpy_coder(rate: float) -> Coder:
    import zfpy

    return (
        lambda x: zfpy.compress_numpy(x, rate=rate),
        lambda sent, n: zfpy.decompress_numpy(sent),
        as_bytes,
    )


def zfpy_tolerance(share: float) -> Coder:
    import zfpy

    return (
        lambda x: zfpy.compress_numpy(x, tolerance=share * float(np.std(x))),
        lambda sent, n: zfpy.decompress_numpy(sent),
        as_bytes,
    )


def pysz_coder(share: float) -> Coder:
    """SZ3 with an absolute error bound, in standard deviations."""
    from pysz import sz, szConfig, szErrorBoundMode

    def encode(x: Array) -> Array:
        config = szConfig()
        config.errorBoundMode = szErrorBoundMode.ABS
        config.absErrorBound = share * max(float(np.std(x)), 1e-30)
        return sz.compress(x, config)[0]

    return encode, lambda sent, n: sz.decompress(sent, np.float32, (n,))[0], lambda sent, n: sent.nbytes


def fpzip_coder(precision: int) -> Coder:
    import fpzip

    return (
        lambda x: fpzip.compress(x, precision=precision, order="C"),
        lambda sent, n: fpzip.decompress(sent, order="C").reshape(-1)[:n],
        as_bytes,
    )


F32, I8 = np.float32, np.int8

METHODS = (
    Method("numpy", "float16", NEAREST, AS_SENT, numpy_float16),
    Method("numpy", "int8 of the largest magnitude", NEAREST, AS_SENT, numpy_int8),
    Method("torch", "bfloat16", NEAREST, AS_SENT, torch_bfloat16),
    Method("torch", "float8_e4m3fn, scaled", NEAREST, AS_SENT, torch_float8),
    Method("nvflare", "ADAQUANT, weight 0.01", NEAREST, AS_SENT, partial(nvflare_adaquant, 0.01)),
    Method("nvflare", "ADAQUANT, weight 1", NEAREST, AS_SENT, partial(nvflare_adaquant, 1.0)),
    Method("hivemind", "FLOAT16", NEAREST, AS_SENT, partial(hivemind_coder, "FLOAT16")),
    Method("hivemind", "MEANSTD_16BIT", NEAREST, AS_SENT, partial(hivemind_coder, "MEANSTD_16BIT")),
    Method("hivemind", "UNIFORM_8BIT", NEAREST, AS_SENT, partial(hivemind_coder, "UNIFORM_8BIT")),
    Method("hivemind", "QUANTILE_8BIT", NEAREST, AS_SENT, partial(hivemind_coder, "QUANTILE_8BIT")),
    Method("hivemind", "BLOCKWISE_8BIT", NEAREST, AS_SENT, partial(hivemind_coder, "BLOCKWISE_8BIT")),
    *(Method("fedlab", f"QSGD, {bits} bits", RANDOM, PACKED, partial(fedlab_qsgd, bits)) for bits in (2, 4, 8)),
    *(Method("fedlab", f"top-k, {k:.0%}", DROPPED, KEPT, partial(fedlab_topk, k)) for k in (0.01, 0.1)),
    *(Method("fedml", f"QSGD, {bits} bits", RANDOM, FORMULA, partial(fedml_qsgd, bits)) for bits in (4, 8)),
    Method("fedml", "top-k, 5%", DROPPED, KEPT, partial(fedml_topk, 0.05)),
    *(Method("openfl", f"EDEN, {bits} bits", RANDOM, AS_SENT, partial(openfl_eden, bits)) for bits in (1, 2, 4, 8)),
    *(
        Method("bitsandbytes", f"8 bits, blocks of {n}", NEAREST, BLOCKS, partial(bitsandbytes_8bit, n))
        for n in (256, 4096)
    ),
    Method("bitsandbytes", "NF4, blocks of 64", NEAREST, BLOCKS, partial(bitsandbytes_4bit, "nf4", 64)),
    Method("bitsandbytes", "FP4, blocks of 64", NEAREST, BLOCKS, partial(bitsandbytes_4bit, "fp4", 64)),
    Method("torchao", "int8, groups of 128", NEAREST, BLOCKS, partial(torchao_affine, 8, 128)),
    Method("torchao", "int4, groups of 128", NEAREST, PACKED, partial(torchao_affine, 4, 128)),
    Method("gguf", "Q8_0", NEAREST, AS_SENT, partial(gguf_coder, "Q8_0", 32)),
    Method("gguf", "Q4_0", NEAREST, AS_SENT, partial(gguf_coder, "Q4_0", 32)),
    *(Method("zfpy", f"rate {rate}", NEAREST, AS_SENT, partial(zfpy_coder, rate)) for rate in (4, 8)),
    Method("zfpy", "tolerance 0.1 of the deviation", NEAREST, AS_SENT, partial(zfpy_tolerance, 0.1)),
    *(
        Method("pysz", f"SZ3, bound {b} of the deviation", NEAREST, AS_SENT, partial(pysz_coder, b))
        for b in (0.01, 0.1, 0.5)
    ),
    Method("fpzip", "16 bits of precision", NEAREST, AS_SENT, partial(fpzip_coder, 16)),
    Method("zstandard", "int8, then level 3", NEAREST, AS_SENT, partial(numpy_int8, partial(zstandard_coder, 3, I8))),
    Method("brotli", "int8, then quality 5", NEAREST, AS_SENT, partial(numpy_int8, partial(brotli_coder, 5, I8))),
    Method("constriction", "int8, then ANS", NEAREST, IDEAL, partial(numpy_int8, partial(constriction_coder, I8))),
    Method("zstandard", "float32 bytes, level 3", LOSSLESS, AS_SENT, partial(zstandard_coder, 3, F32)),
    Method("blosc2", "float32 bytes", LOSSLESS, AS_SENT, partial(blosc2_coder, F32)),
    Method("constriction", "ANS", LOSSLESS, IDEAL, partial(constriction_coder, I8), integers=True),
    Method("zstandard", "level 3", LOSSLESS, LEVELS, partial(zstandard_coder, 3, I8), integers=True),
    Method("zstandard", "level 19", LOSSLESS, LEVELS, partial(zstandard_coder, 19, I8), integers=True),
    Method("lz4", "default", LOSSLESS, LEVELS, partial(lz4_coder, I8), integers=True),
    Method("brotli", "quality 5", LOSSLESS, LEVELS, partial(brotli_coder, 5, I8), integers=True),
    Method("blosc2", "default", LOSSLESS, LEVELS, partial(blosc2_coder, I8), integers=True),
    Method("python", "zlib, level 6", LOSSLESS, LEVELS, partial(zlib_coder, 6, I8), integers=True),
    Method("python", "lzma, preset 1", LOSSLESS, LEVELS, partial(lzma_coder, I8), integers=True),
    # The slow ones last.
    Method("openfl", "STC, 10%", DROPPED, AS_SENT, partial(openfl_pipeline, "STCPipeline", "stc_pipeline")),
    Method("openfl", "SKC, 10%, 6 clusters", DROPPED, MASK, partial(openfl_pipeline, "SKCPipeline", "skc_pipeline")),
    Method("openfl", "KC, 6 clusters", NEAREST, AS_SENT, partial(openfl_pipeline, "KCPipeline", "kc_pipeline")),
)
