#!/usr/bin/env python3
# SPDX-FileCopyrightText: Triptych contributors
# SPDX-License-Identifier: Apache-2.0
"""Tests of scripts/bench_cpu.py: which numbers are compared, and what the limits mean."""
import contextlib
import io
import re
import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
import bench_cpu  # noqa: E402


def make_round(own: float, without_flash: float, with_flash: float) -> dict:
    """Times in ms, the same for both pairs; prefill is ten times decode."""
    times = lambda ms: {"tpot_ns": ms * 1e6, "ttft_ns": ms * 1e7}  # noqa: E731
    run = {"cpu_model": "Example", "cores": 2, "read_bytes_per_s": 20e9, "f32_flops_per_s": 100e9}
    peer = {"version": "1", "system": "AVX"}
    return {
        "ours": {"run": run} | {s: times(own) | {"floor_ns": 5e6} for s in bench_cpu.STACKS},
        "peer": {f"{s}: {name}": peer | times((without_flash, with_flash)[flash])
                 for s in bench_cpu.STACKS for name, (flash, _) in bench_cpu.SETTINGS.items()},
    }


class Compare(unittest.TestCase):
    def test_the_peer_gets_its_better_setting_and_rounds_stay_together(self):
        rounds = [make_round(10, 12, 9), make_round(20, 24, 30), make_round(10, 20, 8)]
        result = bench_cpu.compare(rounds, "full", "decode")
        # Medians 20 and 9: with flash attention, although one round was slower with it.
        self.assertIn("flash on", result["peer_setting"])
        self.assertEqual(result["ratios"], [0.9, 1.5, 0.8])
        self.assertEqual(result["ratio"], 0.9)

    def test_faster_is_above_one(self):
        self.assertEqual(bench_cpu.compare([make_round(5, 10, 11)], "intermediate", "prefill")["ratio"], 2)

    def test_the_table_says_bytes_floor_and_what_bounds(self):
        rounds = [make_round(6, 12, 13)]
        results = [bench_cpu.compare(rounds, s, m) for m in bench_cpu.METRICS for s in bench_cpu.STACKS]
        text = io.StringIO()
        with contextlib.redirect_stdout(text):
            bench_cpu.print_comparison(rounds, results)
        # 5 ms at 20 GB/s are 100 MB.
        self.assertIn("full: 100.0 MB read a token, floor 5.00 ms a token", text.getvalue())
        self.assertIn("Triptych 1.20x the floor (16.7 GB/s: reading bounds it)", text.getvalue())
        self.assertIn("llama.cpp 2.40x the floor (8.3 GB/s: decoding and arithmetic bounds it)",
                      text.getvalue())


class ToolLimits(unittest.TestCase):
    def kept(self, **changes) -> bool:
        good = {"attribution": {"seconds": 2.0, "peak_mib": 500.0}, "insert": {"seconds": 5.0},
                "report": {"seconds": 1.0}}
        for name, values in changes.items():
            good[name] = good[name] | values
        with contextlib.redirect_stdout(io.StringIO()):
            return bench_cpu.print_tool(good)

    def test_each_limit_counts(self):
        self.assertTrue(self.kept())
        self.assertFalse(self.kept(attribution={"seconds": 2.1}))
        self.assertFalse(self.kept(attribution={"peak_mib": 501.0}))
        self.assertFalse(self.kept(insert={"seconds": 5.1}))
        self.assertFalse(self.kept(report={"seconds": 1.1}))


class Spec(unittest.TestCase):
    def test_the_constants_are_those_of_the_spec(self):
        text = bench_cpu.SPEC.read_text(encoding="utf-8")
        for key, value in (("prompt_tokens", bench_cpu.PROMPT_TOKENS),
                           ("output_tokens", bench_cpu.OUTPUT_TOKENS),
                           ("requests", bench_cpu.REQUESTS)):
            self.assertRegex(text, rf"(?m)^  {key}: {value}$")
        self.assertEqual(set(re.findall(r"threads: (\d+)", text)), {str(bench_cpu.THREADS)})
        self.assertIn(bench_cpu.Q4.name, text)


if __name__ == "__main__":
    unittest.main()
