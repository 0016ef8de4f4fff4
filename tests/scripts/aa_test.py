#!/usr/bin/env python3
# SPDX-FileCopyrightText: Triptych contributors
# SPDX-License-Identifier: Apache-2.0
"""Tests of scripts/aa.py: what it counts, and three runs of a tiny model with the program itself."""
import contextlib
import io
import json
import os
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
import aa  # noqa: E402


class Summary(unittest.TestCase):
    def test_counts_intervals_around_zero(self):
        intervals = [{"ln": 0.01, "lo": -0.01, "hi": 0.03}, {"ln": -0.05, "lo": -0.07, "hi": -0.04},
                     {"ln": 0.0, "lo": 0.0, "hi": 0.0}]
        summary = aa.summarize(intervals)
        self.assertAlmostEqual(summary.pop("median_width"), 0.03)
        self.assertEqual(summary, {"runs": 3, "covered": 2, "largest_abs_ln": 0.05})

    def test_below_ninety_percent_fails(self):
        for covered, code in ((90, 0), (89, 1)):
            intervals = [{"seed": i, "ln": 0.5, "lo": -1.0 if i < covered else 0.1, "hi": 1.0}
                         for i in range(100)]
            original = aa.repeat
            aa.repeat = lambda options, rows=intervals: aa.summarize(rows)
            try:
                with tempfile.TemporaryDirectory() as name, \
                        contextlib.redirect_stdout(io.StringIO()):
                    self.assertEqual(aa.main([name, "--triptych", sys.executable]), code)
            finally:
                aa.repeat = original


class Program(unittest.TestCase):
    TINY = ("model.synthetic=llama-tiny", "workload.output_tokens=4", "stacks.a.threads=1",
            "stacks.b.threads=1")

    def run_aa(self, folder, *arguments):
        settings = [part for setting in self.TINY for part in ("--set", setting)]
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = aa.main([folder, "--triptych", os.environ["TRIPTYCH_PROGRAM"], *settings, *arguments])
        return code, out.getvalue(), err.getvalue()

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def test_three_runs(self):
        code, out, err = self.run_aa(self.folder, "--runs", "3")
        record = json.loads((Path(self.folder) / "aa.json").read_text())
        # Three runs on a loaded machine may not cover, so the code must say what the file does.
        self.assertEqual(code, int(record["covered"] < 2.7), err)
        self.assertEqual(record["runs"], 3)
        self.assertEqual([i["seed"] for i in record["intervals"]], [1, 2, 3])
        self.assertEqual(record["settings"], list(self.TINY))
        for interval in record["intervals"]:
            self.assertEqual(interval["blocks"], 10)
            self.assertLessEqual(interval["lo"], interval["ln"])
            self.assertLessEqual(interval["ln"], interval["hi"])
        self.assertEqual(record["covered"], sum(i["lo"] <= 0 <= i["hi"] for i in record["intervals"]))
        self.assertGreater(record["median_width"], 0)
        self.assertIn("cores", record["first_run"])
        self.assertIn(f"{record['covered']} of 3 intervals cover 0; median width", out)
        self.assertEqual(out.count("does not cover 0"), 3 - record["covered"])
        self.assertEqual(len(list(Path(self.folder).glob("aa.json*"))), 1)

    def test_too_few_blocks_are_an_error(self):
        code, _, err = self.run_aa(self.folder, "--runs", "1", "--set", "measure.blocks=3")
        self.assertEqual(code, 2)
        self.assertIn("3 blocks are too few for an interval", err)

    def test_stacks_that_differ_are_an_error(self):
        code, _, err = self.run_aa(self.folder, "--runs", "1", "--set", "stacks.b.weights=w4a16-g32")
        self.assertEqual(code, 2)
        self.assertIn("no comparison of two identical stacks", err)

    def test_a_failed_run_is_named(self):
        code, _, err = self.run_aa(self.folder, "--runs", "1", "--set", "measure.blcks=3")
        self.assertEqual(code, 2)
        self.assertIn("run of seed 1", err)
        self.assertIn("did you mean \"blocks\"", err)

    def test_a_missing_program_is_named(self):
        err = io.StringIO()
        with contextlib.redirect_stderr(err):
            self.assertEqual(aa.main([self.folder, "--triptych", "/nowhere/triptych"]), 2)
        self.assertIn("/nowhere/triptych", err.getvalue())


if __name__ == "__main__":
    unittest.main()
