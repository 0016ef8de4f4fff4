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


def quiet_log():
    """Silences the library. Keep what is returned: C holds only its address."""
    callback = llama_cpp.llama_log_callback(lambda *_: None)
    llama_cpp.llama_log_set(callback, ctypes.c_void_p(0))
    return callback


class Peer:
    """A model and a context of llama.cpp, driven through its C interface: no text is made."""

    def __init__(self, model: str, threads: int, context: int, flash_attn: bool | None = None):
        llama_cpp.llama_backend_init()
        self.model = llama_cpp.llama_model_load_from_file(
            model.encode(), llama_cpp.llama_model_default_params()
        )
        if not self.model:
            raise SystemExit(f"{model}: llama.cpp cannot load it")
        params = llama_cpp.llama_context_default_params()
        params.n_ctx = max(512, context)
        params.n_threads = params.n_threads_batch = threads
        if flash_attn is not None:
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

    quiet = quiet_log()  # noqa: F841
    peer = Peer(args.model, cell["threads"], cell["prompt_tokens"] + cell["output_tokens"])
    vocab = peer.vocab

    # The speed of a dense model does not depend on which tokens it reads; any valid ids will do.
    prompts = [
        [(17 + 7919 * (b * cell["prompt_tokens"] + i)) % vocab for i in range(cell["prompt_tokens"])]
        for b in range(cell["blocks_planned"])
    ]
    peer.one_pass(prompts[0], cell["output_tokens"])  # warm-up
    passes = [peer.one_pass(prompt, cell["output_tokens"]) for prompt in prompts]
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
