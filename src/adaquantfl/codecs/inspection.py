"""What is in a frame, in words: for `adaquantfl inspect`."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ..theory import bits_per_element, paper_bits
from .coding import decode
from .frame import FLOAT32, Bytes, Header, read_frame
from .raw import decode_float32
from .registry import all_codecs, by_tag

_LARGE = 2**24  # elements: beyond it a tiny frame could ask for much memory and time


def describe(data: Bytes) -> str:
    """A frame's header and the make-up of its levels, one fact a line. FrameError where it is malformed."""
    frame = read_frame(data)
    header = frame.header
    facts = [
        ("quantizer", f"{_quantizer(header)} (tag {header.quantizer})"),
        ("dimension", f"{header.dimension:,}"),
        ("frame", f"{frame.size:,} bytes, checksum right"),
        ("body", f"{len(frame.body):,} bytes"),
    ]
    if header.quantizer == FLOAT32:
        values = decode_float32(data)
        facts.append(("values", f"{values.min():g} to {values.max():g}, l2 norm {np.linalg.norm(values):g}"))
    elif header.dimension > _LARGE:
        facts.append(("levels", f"not shown: more than {_LARGE:,} elements are not decoded here"))
    else:
        levels = decode(data)
        counts = np.unique(levels.values, return_counts=True)[1]
        share = counts / counts.sum()
        facts[1:1] = [("codec", f"{by_tag(frame).NAME} (tag {header.codec})")]
        facts += [
            ("levels s", f"{header.s} ({bits_per_element(header.top)} bits and a sign)"),
            ("scales", _span(header.scales)),
            *_further(header),
            ("non-zero", f"{np.count_nonzero(levels.values) / header.dimension:.4%}"),
            ("entropy", f"{-np.sum(share * np.log2(share)):.4f} bits per element"),
            ("sent", f"{8 * frame.size / header.dimension:.4f} bits per element"),
            (
                "with codec",
                ", ".join(f"{codec.NAME} {len(codec.encode(levels)):,}" for codec in all_codecs()) + " bytes",
            ),
        ]
        if header.kind.traits.from_paper:
            formula = paper_bits(header.dimension, header.s, len(header.scales))
            facts.append(("paper's C_s", f"{formula:,} bits; the frame has {8 * frame.size / formula:.4f} of it"))
    return "\n".join(f"{name:12} {value}" for name, value in facts)


def _quantizer(header: Header) -> str:
    if header.quantizer == FLOAT32:
        return "float32"
    return f"{header.kind.name}, {header.norm} norm" if header.norm else header.kind.name


def _span(numbers: npt.NDArray[np.float32]) -> str:
    return f"{numbers[0]:g}" if len(numbers) == 1 else f"{len(numbers):,}, {numbers.min():g} to {numbers.max():g}"


def _further(header: Header) -> list[tuple[str, str]]:
    """What some quantizers send in addition to the scales."""
    facts = []
    number = header.kind.traits.number
    if number and header.number is not None:
        facts.append((number.name, f"{header.number:g}"))
    if header.key is not None:
        facts.append(("stream key", f"{header.key:#018x}"))
    if header.top != header.s:
        facts.append(("largest", f"a level may reach {header.top:,}"))
    return facts
