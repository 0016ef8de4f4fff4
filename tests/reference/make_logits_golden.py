#!/usr/bin/env python3
# SPDX-FileCopyrightText: Triptych contributors
# SPDX-License-Identifier: Apache-2.0
"""Reference logits of a GGUF model, made by transformers on the dequantized weights in float32.

usage: make_logits_golden.py MODEL.gguf OUTPUT.json
needs: torch, transformers, accelerate, gguf (versions are written into the output)

For each prompt: the prompt is read at once (prefill), then 64 tokens are decoded greedily. At the
last prompt position and after each decoded token the file holds the logits of NUM_SAMPLED fixed
vocabulary entries, the logsumexp over the vocabulary, the chosen token, and the margin between the
best and the second-best logit, so that a near tie can be told from an error.
"""
import json
import sys
from pathlib import Path

import gguf
import torch
import transformers

PROMPTS = [
    "The capital of France is",
    "Explain why the sky is blue to a ten year old child.",
    "def fibonacci(n):\n    \"\"\"Return the n-th Fibonacci number.\"\"\"\n",
    "<|im_start|>user\nName three uses of a paper clip.<|im_end|>\n<|im_start|>assistant\n",
    "Once upon a time, in a village at the edge of a dark forest,",
    "1, 1, 2, 3, 5, 8, 13,",
    "Der schnelle braune Fuchs springt",
    "Q: What is 17 + 25?\nA:",
    "A GPU has two kinds of work for one token: arithmetic and",
    "    \t  \n\nLeading white space and emoji \U0001f600 in a prompt",
]
DECODE_STEPS = 64
NUM_SAMPLED = 32


def main(model_path: Path, output: Path) -> None:
    torch.set_num_threads(2)
    load = {"gguf_file": model_path.name}
    tokenizer = transformers.AutoTokenizer.from_pretrained(model_path.parent, **load)
    model = transformers.AutoModelForCausalLM.from_pretrained(
        model_path.parent, dtype=torch.float32, attn_implementation="eager", **load
    ).eval()
    vocab = model.config.vocab_size
    sampled = [(i * 7919 + 13) % vocab for i in range(NUM_SAMPLED)]  # 7919 is prime: no repeats

    cases = []
    for prompt in PROMPTS:
        ids = tokenizer(prompt, add_special_tokens=False)["input_ids"]
        case = {"text": prompt, "prompt_ids": ids, "steps": []}
        past, chunk = None, torch.tensor([ids])
        with torch.no_grad():
            for _ in range(DECODE_STEPS + 1):
                result = model(chunk, past_key_values=past, use_cache=True)
                past, logits = result.past_key_values, result.logits[0, -1].double()
                best = torch.topk(logits, 2)
                case["steps"].append(
                    {
                        "token": int(best.indices[0]),
                        "margin": round(float(best.values[0] - best.values[1]), 5),
                        "logsumexp": round(float(torch.logsumexp(logits, 0)), 5),
                        "logits": [round(float(logits[i]), 5) for i in sampled],
                    }
                )
                chunk = torch.tensor([[case["steps"][-1]["token"]]])
        cases.append(case)
        print(repr(tokenizer.decode([s["token"] for s in case["steps"]]))[:100], file=sys.stderr)

    golden = {
        "made_by": f"transformers {transformers.__version__}, torch {torch.__version__}, "
        f"gguf {getattr(gguf, '__version__', '?')}, float32 on the CPU",
        "model": model_path.name,
        "sampled_ids": sampled,
        "cases": cases,
    }
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps(golden, ensure_ascii=True, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(Path(sys.argv[1]), Path(sys.argv[2]))
