#!/usr/bin/env python3
# SPDX-FileCopyrightText: Triptych contributors
# SPDX-License-Identifier: Apache-2.0
"""One turn of llama.cpp in scripts/bench_cpu.py: loads, warms up, measures, prints JSON and ends.

usage: bench_cpu_peer.py MODEL.gguf --prompts POOL.jsonl --requests N --prompt-tokens N
                         --output-tokens N --threads N --flash-attn 0|1

A process of its own for each turn, so that its threads, which spin between operations, are gone when
another engine runs. Prompts are made as the spec's workload makes them: request i begins at line i of
the pool, is continued by the lines that follow, a line break between them, and cut to length.
"""
import argparse
import ctypes
import json
import time

import llama_cpp
import numpy as np


def quiet_log():
    """Silences the library. Keep what is returned: C holds only its address."""
    callback = llama_cpp.llama_log_callback(lambda *_: None)
    llama_cpp.llama_log_set(callback, ctypes.c_void_p(0))
    return callback


class Peer:
    """A model and a context of llama.cpp, driven through its C interface: no text is made."""

    def __init__(self, model: str, threads: int, context: int, flash_attn: bool):
        llama_cpp.llama_backend_init()
        self.model = llama_cpp.llama_model_load_from_file(
            model.encode(), llama_cpp.llama_model_default_params()
        )
        if not self.model:
            raise SystemExit(f"{model}: llama.cpp cannot load it")
        params = llama_cpp.llama_context_default_params()
        params.n_ctx = max(512, context)
        params.n_threads = params.n_threads_batch = threads
        params.flash_attn_type = int(flash_attn)
        self.context = llama_cpp.llama_init_from_model(self.model, params)
        self.vocab = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(self.model))

    def decode(self, tokens: list[int]) -> int:
        """Reads `tokens` and returns the id that follows, chosen greedily from the logits in place.
        Only the last token's logits are made."""
        array = (llama_cpp.llama_token * len(tokens))(*tokens)
        if llama_cpp.llama_decode(self.context, llama_cpp.llama_batch_get_one(array, len(tokens))) != 0:
            raise RuntimeError("llama_decode failed")
        logits = ctypes.cast(llama_cpp.llama_get_logits_ith(self.context, -1),
                             ctypes.POINTER(ctypes.c_float))
        return int(np.ctypeslib.as_array(logits, (self.vocab,)).argmax())

    def one_pass(self, prompt: list[int], output_tokens: int) -> tuple[float, float]:
        """Returns (TTFT, TPOT) in ns of one request."""
        llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(self.context), True)
        start = time.perf_counter_ns()
        token = self.decode(prompt)
        first = time.perf_counter_ns()
        for _ in range(output_tokens - 1):
            token = self.decode([token])
        end = time.perf_counter_ns()
        return first - start, (end - first) / max(output_tokens - 1, 1)


def tokenize(peer: Peer, text: str) -> list[int]:
    data = text.encode()
    ids = (llama_cpp.llama_token * (len(data) + 8))()
    count = llama_cpp.llama_tokenize(
        llama_cpp.llama_model_get_vocab(peer.model), data, len(data), ids, len(ids), False, False
    )
    if count < 0:
        raise SystemExit(f"llama.cpp cannot tokenize {text!r}")
    return ids[:count]


def make_prompt(peer: Peer, pool: list[str], first: int, length: int) -> list[int]:
    ids = tokenize(peer, pool[first % len(pool)])
    while len(ids) < length:
        first += 1
        ids += tokenize(peer, "\n" + pool[first % len(pool)])
    return ids[:length]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--prompts", required=True)
    parser.add_argument("--requests", type=int, required=True)
    parser.add_argument("--prompt-tokens", type=int, required=True)
    parser.add_argument("--output-tokens", type=int, required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--flash-attn", type=int, choices=(0, 1), required=True)
    args = parser.parse_args()
    with open(args.prompts, encoding="utf-8") as lines:
        pool = [json.loads(line)["text"] for line in lines if line.strip()]

    quiet = quiet_log()  # noqa: F841
    context = args.prompt_tokens + args.output_tokens
    peer = Peer(args.model, args.threads, context, bool(args.flash_attn))
    prompts = [make_prompt(peer, pool, i, args.prompt_tokens) for i in range(args.requests)]
    peer.one_pass(prompts[0], args.output_tokens)  # warm-up: pages of the file, threads
    passes = [peer.one_pass(prompt, args.output_tokens) for prompt in prompts]
    print(json.dumps({
        "ttft_ns": [p[0] for p in passes],
        "tpot_ns": [p[1] for p in passes],
        "version": llama_cpp.__version__,
        "system": llama_cpp.llama_print_system_info().decode().strip(),
    }))


if __name__ == "__main__":
    main()
