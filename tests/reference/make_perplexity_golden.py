#!/usr/bin/env python3
# SPDX-FileCopyrightText: Triptych contributors
# SPDX-License-Identifier: Apache-2.0
"""Reference perplexity of a GGUF model, made by transformers on the dequantized weights in float32.

usage: make_perplexity_golden.py MODEL.gguf TEXT OUTPUT.json
needs: torch, transformers, accelerate, gguf (versions are written into the output)

The text is tokenized without special tokens and cut into windows of WINDOW tokens, the last one
shorter. In each window every token but the first is predicted from those before it in the window.
The perplexity is exp of the mean negative log-likelihood of all predicted tokens.
"""
import json
import math
import sys
from pathlib import Path

import gguf
import torch
import transformers

WINDOW = 512


def main(model_path: Path, text_path: Path, output: Path) -> None:
    torch.set_num_threads(2)
    load = {"gguf_file": model_path.name}
    tokenizer = transformers.AutoTokenizer.from_pretrained(model_path.parent, **load)
    model = transformers.AutoModelForCausalLM.from_pretrained(
        model_path.parent, dtype=torch.float32, attn_implementation="eager", **load
    ).eval()
    ids = tokenizer(text_path.read_text(encoding="utf-8"), add_special_tokens=False)["input_ids"]
    windows = []
    total, predicted = 0.0, 0
    for begin in range(0, len(ids), WINDOW):
        window = torch.tensor(ids[begin : begin + WINDOW])
        with torch.no_grad():
            logits = model(window[None], use_cache=False).logits[0, :-1].double()
        nll = torch.nn.functional.cross_entropy(logits, window[1:], reduction="sum").item()
        windows.append(round(nll, 6))
        total += nll
        predicted += len(window) - 1
    golden = {
        "made_by": f"transformers {transformers.__version__}, torch {torch.__version__}, "
        f"gguf {getattr(gguf, '__version__', '?')}, float32 on the CPU",
        "model": model_path.name,
        "text": text_path.name,
        "window": WINDOW,
        "tokens": len(ids),
        "predicted": predicted,
        "window_nll": windows,
        "perplexity": round(math.exp(total / predicted), 6),
    }
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps(golden, indent=1) + "\n")
    print(golden)


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    main(*map(Path, sys.argv[1:]))
