#!/usr/bin/env python3
# SPDX-FileCopyrightText: Triptych contributors
# SPDX-License-Identifier: Apache-2.0
"""Reference logits of small random models of every family, made by transformers in float32.

usage: families.py TRIPTYCH OUTPUT_DIR [cases|long]     default: both
needs: torch, transformers (versions are written into the output)

`TRIPTYCH synth` writes each model; the test makes the same weights from the config and the seed that
are stored here, so that no weights need to be committed. The prompt is read at once (prefill), then
DECODE_STEPS tokens are decoded greedily. OUTPUT_DIR gets NAME.f32, the logits of every position,
[positions, vocab_size] little-endian float32, and cases.json with config, tokens and, for each
greedy token, the margin between the best and the second-best logit. LONG_CASES are larger, decode
LONG_STEPS tokens and give tokens and margins only: long_cases.json.
"""
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
import transformers

VOCAB = 128
PROMPT = 23
DECODE_STEPS = 16
LONG_STEPS = 63
LONG_MARGIN = 0.01
LONG_DISTINCT = 20

LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
LINEAR = {"rope_type": "linear", "factor": 4.0}
# With this base the wavelengths of a head of 16 reach from 6 to 1000, into all bands of LLAMA3.
THETA = {"rope_theta": 500.0}

# name: (architecture, what differs from it)
CASES = {
    "llama_gqa": ("llama-tiny", {}),
    "llama_mha_tied": ("llama-tiny", {"num_key_value_heads": 4, "tie_word_embeddings": True}),
    "llama_mqa_wide_heads": ("llama-tiny", {"num_key_value_heads": 1, "head_dim": 24}),
    "llama_llama3": ("llama-tiny", {"rope_scaling": LLAMA3, **THETA}),
    "llama_linear": ("llama-tiny", {"rope_scaling": LINEAR, "rms_norm_eps": 1e-3}),
    "mistral_window": ("mistral-tiny", {"sliding_window": 12}),
    "mistral_short_window": ("mistral-tiny", {"sliding_window": 3, "num_key_value_heads": 1}),
    "mistral_full": ("mistral-tiny", {"sliding_window": None, "head_dim": 32}),
    "qwen2_gqa": ("qwen2-tiny", {"tie_word_embeddings": False}),
    "qwen2_mqa_tied": ("qwen2-tiny", {"num_key_value_heads": 1, "rms_norm_eps": 1e-3}),
    "qwen2_window": (
        "qwen2-tiny",
        {"use_sliding_window": True, "sliding_window": 10, "max_window_layers": 1},
    ),
    "qwen2_layer_types": (
        "qwen2-tiny",
        {
            "num_hidden_layers": 3,
            "use_sliding_window": True,
            "sliding_window": 7,
            "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
            "rope_scaling": LINEAR,
            **THETA,
        },
    ),
    "qwen3_wide_heads": ("qwen3-tiny", {}),
    "qwen3_tied_large_eps": ("qwen3-tiny", {"tie_word_embeddings": True, "rms_norm_eps": 0.1}),
    "qwen3_window_llama3": (
        "qwen3-tiny",
        {
            "use_sliding_window": True,
            "sliding_window": 9,
            "max_window_layers": 0,
            "rope_scaling": LLAMA3,
            **THETA,
        },
    ),
    "qwen3_mha": ("qwen3-tiny", {"num_key_value_heads": 4, "head_dim": 16}),
}

LARGE = {
    "vocab_size": 256,
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "head_dim": 64,
}
# Every window is shorter than the prompt and the text, some layers of some models have none.
LONG_CASES = {
    "llama_llama3": ("llama-tiny", {**LARGE, "rope_scaling": LLAMA3, **THETA}),
    "mistral_window": ("mistral-tiny", {**LARGE, "sliding_window": 20, "head_dim": 32}),
    "qwen2_window": (
        "qwen2-tiny",
        {
            **LARGE,
            "use_sliding_window": True,
            "sliding_window": 17,
            "max_window_layers": 2,
            "tie_word_embeddings": False,
        },
    ),
    "qwen3_wide_heads": ("qwen3-tiny", {**LARGE, "head_dim": 128, "num_attention_heads": 4}),
}


def synthesize(triptych: str, arch: str, seed: int, changes: dict, directory: Path) -> dict:
    command = [triptych, "synth", arch, str(directory), "--seed", str(seed), "--dtype", "f32"]
    for key, value in {"vocab_size": VOCAB, "max_position_embeddings": 512, **changes}.items():
        command += ["--set", f"{key}={json.dumps(value)}"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return json.loads((directory / "config.json").read_text())


@torch.no_grad()
def run(
    directory: Path, prompt: list[int], steps: int
) -> tuple[list[int], list[float], np.ndarray]:
    """Greedy tokens, their margins, and the logits after the prompt's and all but the last token."""
    model = transformers.AutoModelForCausalLM.from_pretrained(
        directory, dtype=torch.float32, attn_implementation="eager"
    ).eval()
    tokens, margins, rows = [], [], []
    past, chunk = None, torch.tensor([prompt])
    for _ in range(steps + 1):
        result = model(chunk, past_key_values=past, use_cache=True)
        past = result.past_key_values
        rows.append(result.logits[0])
        best = torch.topk(result.logits[0, -1].double(), 2)
        tokens.append(int(best.indices[0]))
        margins.append(round(float(best.values[0] - best.values[1]), 6))
        chunk = torch.tensor([[tokens[-1]]])
    logits = torch.cat(rows)
    whole = model(torch.tensor([prompt + tokens[:-1]]), use_cache=False).logits[0]
    assert torch.allclose(logits, whole, atol=1e-4), "the reference contradicts itself"
    return tokens, margins, logits.numpy().astype("<f4")


def write(output: Path, file: str, cases: list[dict]) -> None:
    golden = {
        "made_by": f"transformers {transformers.__version__}, torch {torch.__version__}, "
        "float32 on the CPU, eager attention",
        "cases": cases,
    }
    (output / file).write_text(json.dumps(golden, indent=1) + "\n")


def make(triptych: str, name: str, case: tuple, seed: int, steps: int) -> tuple[dict, np.ndarray]:
    arch, changes = case
    generator = torch.Generator().manual_seed(seed)
    prompt = torch.randint(VOCAB, (PROMPT,), generator=generator).tolist()
    with tempfile.TemporaryDirectory() as folder:
        config = synthesize(triptych, arch, seed, changes, Path(folder) / name)
        tokens, margins, logits = run(Path(folder) / name, prompt, steps)
    made = {
        "name": name,
        "seed": seed,
        "config": config,
        "prompt": prompt,
        "tokens": tokens,
        "margins": margins,
    }
    print(f"{name} {seed}: {logits.shape}, |logit| <= {abs(logits).max():.2f}", file=sys.stderr)
    return made, logits


def make_long(triptych: str, name: str, case: tuple, seed: int) -> dict:
    """The first seed whose text is no loop and has no near tie: at one, another rounding may choose
    another token, and what follows says nothing."""
    while True:
        made, _ = make(triptych, name, case, seed, LONG_STEPS)
        if min(made["margins"]) >= LONG_MARGIN and len(set(made["tokens"])) >= LONG_DISTINCT:
            return made
        seed += 1


def main(triptych: str, output: Path, which: str) -> None:
    torch.set_num_threads(2)
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    output.mkdir(parents=True, exist_ok=True)
    if which != "long":
        cases = []
        for seed, (name, case) in enumerate(CASES.items(), start=100):
            made, logits = make(triptych, name, case, seed, DECODE_STEPS)
            logits.tofile(output / f"{name}.f32")
            cases.append(made)
        write(output, "cases.json", cases)
    if which != "cases":
        cases = [
            make_long(triptych, name, case, 1000 * number)
            for number, (name, case) in enumerate(LONG_CASES.items(), start=1)
        ]
        write(output, "long_cases.json", cases)


if __name__ == "__main__":
    arguments = sys.argv[1:]
    if len(arguments) == 2:
        arguments.append("both")
    if len(arguments) != 3 or arguments[2] not in ("cases", "long", "both"):
        sys.exit(__doc__)
    main(arguments[0], Path(arguments[1]), arguments[2])
