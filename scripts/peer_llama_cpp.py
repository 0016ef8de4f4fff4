#!/usr/bin/env python3
# SPDX-FileCopyrightText: Triptych contributors
# SPDX-License-Identifier: Apache-2.0
"""Decode and prefill speed of llama.cpp on the same GGUF, the same prompts and the same threads.

usage: peer_llama_cpp.py --model FILE.gguf --db results.sqlite --experiment quickstart [--output FILE]

Needs llama-cpp-python (built for this CPU) in the Python that runs it. Prompt lengths, output
lengths, blocks and threads are read from the experiment's newest run in the database, so that both
sides do the same work. Tokens are chosen greedily from the logits in place; the time of a token ends
when its id is known. Prints one JSON object, with our medians beside the peer's.
"""
import argparse
import ctypes
import json
import sqlite3
import statistics
import time
from pathlib import Path

import llama_cpp
import numpy as np


def argmax(ctx, vocab: int) -> int:
    pointer = llama_cpp.llama_get_logits_ith(ctx, -1)
    return int(np.ctypeslib.as_array(ctypes.cast(pointer, ctypes.POINTER(ctypes.c_float)), (vocab,)).argmax())


def one_pass(ctx, vocab: int, prompt: list[int], output_tokens: int) -> tuple[float, float]:
    """Returns (TTFT, TPOT) in ns of one request."""
    llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(ctx), True)

    def decode(tokens: list[int]) -> int:
        array = (llama_cpp.llama_token * len(tokens))(*tokens)
        if llama_cpp.llama_decode(ctx, llama_cpp.llama_batch_get_one(array, len(tokens))) != 0:
            raise RuntimeError("llama_decode failed")
        return argmax(ctx, vocab)

    start = time.perf_counter_ns()
    token = decode(prompt)
    first = time.perf_counter_ns()
    for _ in range(output_tokens - 1):
        token = decode([token])
    end = time.perf_counter_ns()
    return first - start, (end - first) / max(output_tokens - 1, 1)


def read_experiment(db: str, experiment: str) -> tuple[dict, dict]:
    connection = sqlite3.connect(f"file:{db}?mode=ro", uri=True)
    connection.row_factory = sqlite3.Row
    cell = connection.execute(
        "select c.prompt_tokens, c.output_tokens, c.threads, c.concurrency_total, r.blocks_planned "
        "from cell c join run r using (run_id) where r.experiment = ? and c.status = 'done' "
        "order by r.run_id desc limit 1",
        (experiment,),
    ).fetchone()
    if cell is None:
        raise SystemExit(f"{db}: no finished run of '{experiment}'")
    if cell["concurrency_total"] != 1:
        raise SystemExit("only concurrency 1 is compared")
    ours = {
        row["stack"]: {"tpot_ns": row["tpot_ns_median"], "ttft_ns": row["ttft_ns_median"]}
        for row in connection.execute("select * from v_stack_summary where experiment = ?", (experiment,))
    }
    return dict(cell), ours


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--db", required=True)
    parser.add_argument("--experiment", default="quickstart")
    parser.add_argument("--output", help="write the JSON here, too")
    args = parser.parse_args()
    cell, ours = read_experiment(args.db, args.experiment)

    quiet = llama_cpp.llama_log_callback(lambda *_: None)  # held: C keeps only its address
    llama_cpp.llama_log_set(quiet, ctypes.c_void_p(0))
    llama_cpp.llama_backend_init()
    model = llama_cpp.llama_model_load_from_file(
        args.model.encode(), llama_cpp.llama_model_default_params()
    )
    params = llama_cpp.llama_context_default_params()
    params.n_ctx = max(512, cell["prompt_tokens"] + cell["output_tokens"])
    params.n_threads = params.n_threads_batch = cell["threads"]
    ctx = llama_cpp.llama_init_from_model(model, params)
    vocab = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(model))

    # The speed of a dense model does not depend on which tokens it reads; any valid ids will do.
    prompts = [
        [(17 + 7919 * (b * cell["prompt_tokens"] + i)) % vocab for i in range(cell["prompt_tokens"])]
        for b in range(cell["blocks_planned"])
    ]
    one_pass(ctx, vocab, prompts[0], cell["output_tokens"])  # warm-up
    passes = [one_pass(ctx, vocab, prompt, cell["output_tokens"]) for prompt in prompts]
    result = {
        "peer": f"llama-cpp-python {llama_cpp.__version__}",
        "model": Path(args.model).name,
        "threads": cell["threads"],
        "prompt_tokens": cell["prompt_tokens"],
        "output_tokens": cell["output_tokens"],
        "blocks": cell["blocks_planned"],
        "tpot_ns_median": statistics.median(p[1] for p in passes),
        "tpot_ns_min": min(p[1] for p in passes),
        "tpot_ns_max": max(p[1] for p in passes),
        "ttft_ns_median": statistics.median(p[0] for p in passes),
        "triptych": ours,
    }
    text = json.dumps(result, indent=1)
    print(text)
    if args.output:
        Path(args.output).write_text(text + "\n")


if __name__ == "__main__":
    main()
