#!/usr/bin/env python3
# SPDX-FileCopyrightText: Triptych contributors
# SPDX-License-Identifier: Apache-2.0
"""Blocks of every GGUF type that the engine reads, with their float32 values by the gguf package.

usage: make_dequantize_golden.py OUTPUT.txt
needs: numpy, gguf, llama-cpp-python (its ggml library quantizes some of the blocks)

A line is `type origin block values`, the last two in hexadecimal as they lie in memory (values are
little-endian float32). Origins: `random` bytes with scales that are normal numbers of either sign;
`ggml` normal values quantized by ggml itself; `zero` all bytes 0; `full` every code and scale at its
largest with the largest finite float16 factors; `tiny` subnormal float16 factors.
"""
import ctypes
import sys
from pathlib import Path

import gguf
import llama_cpp
import numpy as np

# Offsets of the float16 factors in a block, by type.
FACTORS = {
    "BF16": [], "Q8_0": [0], "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2],
    "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208],
}
RANDOM_BLOCKS = 4
GGML_BLOCKS = 3


def put_factors(block: np.ndarray, kind: str, values: list[float]) -> np.ndarray:
    for offset, value in zip(FACTORS[kind], values):
        block[offset:offset + 2] = np.frombuffer(np.float16(value).tobytes(), np.uint8)
    return block


def finite_bf16(block: np.ndarray) -> np.ndarray:
    """Exponent bit 6 cleared, so that no value is infinite or not a number."""
    block[1::2] &= 0xBF
    return block


def quantized_by_ggml(kind: str, values: np.ndarray, block_bytes: int) -> np.ndarray:
    library = ctypes.CDLL(str(Path(llama_cpp.__file__).parent / "lib" / "libggml-base.so"))
    blocks = np.zeros(values.size // gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[kind]][0]
                      * block_bytes, np.uint8)
    function = getattr(library, f"quantize_{kind.lower().replace('_k', '_K')}")
    function.restype = ctypes.c_size_t
    written = function(values.ctypes.data_as(ctypes.c_void_p), blocks.ctypes.data_as(ctypes.c_void_p),
                       ctypes.c_int64(1), ctypes.c_int64(values.size), None)
    assert written == blocks.size, (kind, written, blocks.size)
    return blocks


def blocks_of(kind: str, rng: np.random.Generator) -> list[tuple[str, np.ndarray]]:
    elements, size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[kind]]
    if kind == "BF16":
        size *= 32  # one value is too little for a line
    blocks = []
    for _ in range(RANDOM_BLOCKS):
        block = rng.integers(0, 256, size, dtype=np.uint8)
        factors = [float(rng.normal()) * 2.0 ** int(rng.integers(-10, 4)) for _ in FACTORS[kind]]
        blocks.append(("random", put_factors(block, kind, factors)))
    blocks.append(("zero", np.zeros(size, np.uint8)))
    blocks.append(("full", put_factors(np.full(size, 255, np.uint8), kind, [65504.0, -65504.0])))
    tiny = rng.integers(0, 256, size, dtype=np.uint8)
    blocks.append(("tiny", put_factors(tiny, kind, [-(2.0 ** -24), 3 * 2.0 ** -24])))
    if kind == "BF16":
        return [(origin, finite_bf16(block)) for origin, block in blocks]
    values = rng.normal(0.0, 0.05, GGML_BLOCKS * elements).astype(np.float32)
    for block in quantized_by_ggml(kind, values, size).reshape(GGML_BLOCKS, size):
        blocks.append(("ggml", block))
    return blocks


def main(output: Path) -> None:
    rng = np.random.default_rng(1)
    lines = []
    for kind in FACTORS:
        for origin, block in blocks_of(kind, rng):
            values = gguf.quants.dequantize(block, gguf.GGMLQuantizationType[kind])
            values = np.ascontiguousarray(values, dtype="<f4")
            assert np.isfinite(values).all(), (kind, origin)
            lines.append(f"{kind.lower()} {origin} {block.tobytes().hex()} {values.tobytes().hex()}\n")
    output.write_text("".join(lines))


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(Path(sys.argv[1]))
