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
import json

import llama_cpp
from peer_llama_cpp import Peer, quiet_log


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
