#!/usr/bin/env python3
# SPDX-FileCopyrightText: Triptych contributors
# SPDX-License-Identifier: Apache-2.0
"""Triptych beside llama.cpp on the same files, prompts and threads, and the speed of the tool itself.

usage: bench_cpu.py --program BIN/triptych --tool-speed BIN/triptych_tool_speed --f16 FILE.gguf
                    [--rounds 5] [--output DIR]

Runs in the Python that has llama-cpp-python; scripts/bench_cpu.sh sets all of it up. A round runs
every engine once, in a random order and never two at a time: `triptych run` of
experiments/specs/bench_cpu.yaml (both stacks, interleaved), and for each pair llama.cpp once under
each of SETTINGS, of which the one with the better median counts, for each number by itself. A ratio
is llama.cpp's time over ours in the same round; the table shows the median over the rounds and the
range. DIR gets bench_cpu.json. The last line of the output is the summary.
"""
import argparse
import json
import os
import platform
import random
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SPEC = ROOT / "experiments" / "specs" / "bench_cpu.yaml"
PROMPTS = ROOT / "experiments" / "prompts" / "qa.jsonl"
Q4 = ROOT / "models" / "SmolLM2-135M-Instruct.Q4_1.gguf"
STACKS = ("full", "intermediate")
# What the spec says; run_ours() refuses a run that did anything else.
THREADS, PROMPT_TOKENS, OUTPUT_TOKENS, REQUESTS = 2, 128, 64, 2
# Flash attention; how OpenMP threads wait at a barrier: spinning first (the default), or asleep.
SETTINGS = {f"flash {'on' if flash else 'off'}, {wait}": (flash, wait)
            for flash in (0, 1) for wait in ("spinning", "asleep")}
METRICS = {"decode": "tpot_ns", "prefill": "ttft_ns"}
# Limits of the tool's own speed: seconds, and MiB of the whole process where there is one.
TOOL_LIMITS = {"attribution": (2.0, 500.0), "insert": (5.0, None), "report": (1.0, None)}


def run(command: list, **environment: str) -> str:
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True,
                          env=os.environ | environment)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))} failed ({done.returncode}):\n{done.stderr.strip()}")
    return done.stdout


def run_ours(program: Path, folder: Path, number: int) -> dict:
    database = folder / f"round{number}.sqlite"
    run([program, "run", SPEC, "--db", database, "--set", f"measure.seed={number + 1}", "--quiet"])
    connection = sqlite3.connect(f"file:{database}?mode=ro", uri=True)
    connection.row_factory = sqlite3.Row
    facts = dict(connection.execute("select * from v_runs").fetchone())
    del facts["spec_path"]  # of this checkout; the spec is always the same
    turn = {"run": facts}
    for stack in STACKS:
        rows = connection.execute("select * from v_requests where stack = ?", (stack,)).fetchall()
        shape = {(row["prompt_tokens"], row["output_tokens"]) for row in rows}
        if len(rows) != REQUESTS or shape != {(PROMPT_TOKENS, OUTPUT_TOKENS)}:
            sys.exit(f"{SPEC.name}: {stack} ran {len(rows)} requests of {shape}, expected "
                     f"{REQUESTS} of ({PROMPT_TOKENS}, {OUTPUT_TOKENS})")
        turn[stack] = {name: statistics.median(row[name] for row in rows) for name in METRICS.values()}
        cell = connection.execute("select * from v_history where stack = ?", (stack,)).fetchone()
        turn[stack]["floor_ns"] = cell["floor_ns_per_step"]
    return turn


def run_peer(model: Path, setting: str) -> dict:
    flash_attention, wait = SETTINGS[setting]
    environment = {"OMP_WAIT_POLICY": "passive"} if wait == "asleep" else {}
    text = run([sys.executable, ROOT / "scripts" / "bench_cpu_peer.py", model, "--prompts", PROMPTS,
                "--requests", REQUESTS, "--prompt-tokens", PROMPT_TOKENS, "--output-tokens",
                OUTPUT_TOKENS, "--threads", THREADS, "--flash-attn", flash_attention], **environment)
    turn = json.loads(text.splitlines()[-1])
    return turn | {name: statistics.median(turn[name]) for name in METRICS.values()}


def run_rounds(args: argparse.Namespace, folder: Path) -> list[dict]:
    order = random.Random(1)
    models = {"full": Q4, "intermediate": args.f16}
    rounds = []
    for number in range(args.rounds):
        turns = ["ours"] + [(stack, setting) for stack in STACKS for setting in SETTINGS]
        order.shuffle(turns)
        done = {"order": [turn if turn == "ours" else ": ".join(turn) for turn in turns],
                "load_average": os.getloadavg()[0], "peer": {}}
        for turn in turns:
            if turn == "ours":
                done["ours"] = run_ours(args.program, folder, number)
            else:
                done["peer"]["{}: {}".format(*turn)] = run_peer(models[turn[0]], turn[1])
        print(f"round {number + 1} of {args.rounds} done", file=sys.stderr, flush=True)
        rounds.append(done)
    return rounds


def spread(values: list[float], scale: float = 1.0) -> str:
    return (f"{statistics.median(values) / scale:.2f} "
            f"[{min(values) / scale:.2f}, {max(values) / scale:.2f}]")


def compare(rounds: list[dict], stack: str, metric: str) -> dict:
    """Times of both sides, ns, by round; the peer's under its better setting."""
    key = METRICS[metric]
    ours = [r["ours"][stack][key] for r in rounds]
    peers = {name: [r["peer"][f"{stack}: {name}"][key] for r in rounds] for name in SETTINGS}
    best = min(peers, key=lambda name: statistics.median(peers[name]))
    ratios = [peer / own for peer, own in zip(peers[best], ours)]
    return {"stack": stack, "metric": metric, "ours_ns": ours, "peer_ns": peers[best],
            "peer_setting": best, "ratios": ratios, "ratio": statistics.median(ratios)}


def print_comparison(rounds: list[dict], results: list[dict]) -> None:
    first = rounds[0]["ours"]["run"]
    peer = next(iter(rounds[0]["peer"].values()))
    print(f"\n{first['cpu_model']}, {first['cores']} cores; {THREADS} threads; prompt {PROMPT_TOKENS}, "
          f"output {OUTPUT_TOKENS} tokens, batch 1, greedy; {len(rounds)} rounds, {REQUESTS} requests each")
    print(f"peer: llama-cpp-python {peer['version']}, {peer['system']}")
    print(f"{'':20}  {'Triptych ms':>24}  {'llama.cpp ms':>24}  {'ratio':>19}  llama.cpp's setting")
    for r in results:
        print(f"{r['stack'] + ' ' + r['metric']:20}  {spread(r['ours_ns'], 1e6):>24}  "
              f"{spread(r['peer_ns'], 1e6):>24}  {spread(r['ratios']):>19}  {r['peer_setting']}")
    print("decode: ms a token after the first; prefill: ms to the first token; median [least, most]")
    bandwidth = statistics.median(r["ours"]["run"]["read_bytes_per_s"] for r in rounds)
    flops = statistics.median(r["ours"]["run"]["f32_flops_per_s"] for r in rounds)
    print(f"\nread bandwidth {bandwidth / 1e9:.1f} GB/s, f32 {flops / 1e9:.0f} GFLOP/s, "
          "measured in the same runs")
    for result in (r for r in results if r["metric"] == "decode"):
        # The floor of a run was made with the bandwidth of that run.
        read = statistics.median(r["ours"][result["stack"]]["floor_ns"] / 1e9
                                 * r["ours"]["run"]["read_bytes_per_s"] for r in rounds)
        floor_ms = read / bandwidth * 1e3
        times = {"Triptych": result["ours_ns"], "llama.cpp": result["peer_ns"]}
        bound = ", ".join(
            f"{who} {ms / floor_ms:.2f}x the floor ({read / ms / 1e6:.1f} GB/s: "
            f"{'reading' if ms < 1.3 * floor_ms else 'decoding and arithmetic'} bounds it)"
            for who, ms in ((who, statistics.median(ns) / 1e6) for who, ns in times.items()))
        print(f"{result['stack']}: {read / 1e6:.1f} MB read a token, "
              f"floor {floor_ms:.2f} ms a token; {bound}")


def time_tool(args: argparse.Namespace, folder: Path, repeats: int) -> dict:
    """Best of `repeats`: other work on the machine only adds time. Memory: the most of them."""
    def best(name: str) -> dict:
        turns = []
        for i in range(repeats):
            file = [folder / f"{name}{i}.sqlite"] if name == "insert" else []
            turns.append(json.loads(run([args.tool_speed, name, *file])))
        return {"seconds": min(t["seconds"] for t in turns), "peak_mib": max(t["peak_mib"] for t in turns)}

    results = {name: best(name) for name in ("attribution", "insert")}
    cells = folder / "cells.sqlite"
    run([args.tool_speed, "cells", cells])
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        run([args.program, "report", "--db", cells])
        seconds.append(time.perf_counter() - start)
    results["report"] = {"seconds": min(seconds)}
    return results


def print_tool(results: dict) -> bool:
    what = {"attribution": "attribution of 1,000,000 activities",
            "insert": "insert of 1,000,000 activities", "report": "report over 1,000 cells"}
    print()
    kept = True
    for name, result in results.items():
        limit, memory_limit = TOOL_LIMITS[name]
        line = f"{what[name]}: {result['seconds']:.2f} s (limit {limit:g} s)"
        kept &= result["seconds"] <= limit
        if memory_limit is not None:
            line += f", {result['peak_mib']:.0f} MiB (limit {memory_limit:g} MiB)"
            kept &= result["peak_mib"] <= memory_limit
        print(line)
    return kept


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--program", type=Path, required=True)
    parser.add_argument("--tool-speed", type=Path, required=True)
    parser.add_argument("--f16", type=Path, required=True, help="the Q4_1 model with F16 matrices")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--output", type=Path, help="folder that gets bench_cpu.json")
    args = parser.parse_args()
    for needed in (Q4, args.f16, args.program, args.tool_speed):
        if not needed.exists():
            sys.exit(f"{needed}: not there; scripts/bench_cpu.sh makes what is needed")
    load = os.getloadavg()[0]
    if load > 0.5:
        print(f"warning: load average {load:.2f} before the first round; "
              "times are not those of a quiet machine")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        tool = time_tool(args, folder, 3)
        rounds = run_rounds(args, folder)
    results = [compare(rounds, stack, metric) for metric in METRICS for stack in STACKS]
    print_comparison(rounds, results)
    kept = print_tool(tool)
    if not kept:
        print("a limit of the tool's own speed was not kept")
    if args.output:
        args.output.mkdir(parents=True, exist_ok=True)
        path = args.output / "bench_cpu.json"
        record = {"system": platform.platform(), "load_average_before": load, "results": results,
                  "tool": tool, "tool_limits": TOOL_LIMITS, "rounds": rounds}
        path.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
        print(f"stored in {path}")
    ratio = {(r["stack"], r["metric"]): r["ratio"] for r in results}
    prefill = min(ratio[stack, "prefill"] for stack in STACKS)
    print(f"ratio to llama.cpp: full={ratio['full', 'decode']:.2f} "
          f"intermediate={ratio['intermediate', 'decode']:.2f} prefill={prefill:.2f}")


if __name__ == "__main__":
    main()
