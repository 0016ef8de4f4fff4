#!/usr/bin/env python3
# SPDX-FileCopyrightText: Triptych contributors
# SPDX-License-Identifier: Apache-2.0
"""Writes a GGUF file with every matrix of another as F16; norms and metadata stay as they are.

usage: make_f16_gguf.py QUANTIZED.gguf OUTPUT.gguf
needs: gguf (and numpy)
"""
import os
import sys
from pathlib import Path

import gguf
import numpy as np

# The writer sets these itself.
WRITER_KEYS = {"general.architecture", "general.file_type", "general.quantization_version"}


def copy_metadata(reader: gguf.GGUFReader, writer: gguf.GGUFWriter) -> None:
    for field in reader.fields.values():
        if field.name in WRITER_KEYS or field.name.startswith("GGUF."):
            continue
        element = field.types[-1] if field.types[0] == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(field.name, field.contents(), field.types[0], sub_type=element)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_F16)


def main(source: Path, output: Path) -> None:
    reader = gguf.GGUFReader(source)
    # Written beside the file and renamed, so that a run that is stopped leaves no half file.
    partial = output.with_suffix(".partial")
    writer = gguf.GGUFWriter(partial, reader.get_field("general.architecture").contents())
    copy_metadata(reader, writer)
    for tensor in reader.tensors:
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        is_matrix = len(tensor.shape) > 1
        writer.add_tensor(tensor.name, values.astype(np.float16 if is_matrix else np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    os.replace(partial, output)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(Path(sys.argv[1]), Path(sys.argv[2]))
