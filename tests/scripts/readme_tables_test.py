# SPDX-FileCopyrightText: Triptych contributors
# SPDX-License-Identifier: Apache-2.0
"""Tables of Markdown files come from databases; those of this project are up to date."""

import contextlib
import io
import json
import pathlib
import sqlite3
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
import readme_tables  # noqa: E402  (found by the line above)

TEXT = "before\n<!-- table stacks toy - -->\nold\n<!-- /table -->\nafter\n"
SCHEMA = """
CREATE TABLE cell (run_id, device);
CREATE TABLE v_runs (run_id, experiment, started_utc, gpu_name, cpu_model, cores, git_sha, git_dirty);
INSERT INTO v_runs VALUES (4, 'toy', '2026-01-31T12:00:00Z', '', 'a CPU', 2, '0123456789abcdef', 1);
CREATE TABLE v_stack_summary (experiment, stack, batch, tpot_ns_median, tpot_ns_lo, tpot_ns_hi,
  ttft_ns_median, tokens_per_s, floor_ratio, peak_bytes, token_agreement, status, run_id);
INSERT INTO v_stack_summary VALUES ('toy', 'baseline', 1, 12.5e6, 12.0e6, NULL, 80e6, 79.9, NULL,
  104857600, 1.0, 'done', 4), ('toy', 'one_token', 1, NULL, NULL, NULL, 80e6, 12.5, NULL, 104857600, NULL, 'done', 4),
  ('toy', 'broken', 1, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 'failed', 3);
CREATE TABLE v_decomposition (experiment, workload, method, factor_name, factor, factor_lo, factor_hi,
  log_share, share_lo, share_hi, decomposition, ordinal);
INSERT INTO v_decomposition VALUES
  ('toy', 'c=1', 'path', 'kernel', 1.0, 0.9, 1.1, NULL, NULL, NULL, 'builtin', 1),
  ('toy', 'c=1', 'path', 'runtime', 1.9, 1.8, 2.0, 0.677, 0.6, 0.7, 'builtin', 0);
CREATE TABLE v_token_time (experiment, cell, stack, class, ns_per_token, comparison, stack_index,
  class_index);
INSERT INTO v_token_time VALUES ('toy', 'a@c=1', 'a', 'gemm', 3000.0, 'c=1', 0, 0),
  ('toy', 'a@c=1', 'a', 'norm', 0.0, 'c=1', 0, 2), ('toy', 'a@c=1', 'a', 'sync', 500.0, 'c=1', 0, 8);
CREATE TABLE v_threats (experiment, severity, code, message);
INSERT INTO v_threats VALUES ('toy', 'note', 'few_blocks', '3 blocks | at least 5');
CREATE TABLE v_serving (experiment, cell_id, run_id, stack, stack_index, comparison, arrivals,
  requests_per_s, goodput_per_s, slo_attainment);
INSERT INTO v_serving VALUES ('toy', 7, 4, 'full', 0, 'c=1', 'poisson:2', 1.957, 0.98, 0.5),
  ('toy', 3, 1, 'full', 0, 'c=1', 'of an older run', 9, 9, 9);
CREATE TABLE v_latency (cell_id, metric, p50_ns, p99_ns);
INSERT INTO v_latency VALUES (7, 'ttft', 1.5e6, 2.5e6), (7, 'e2e', 30e6, 40e6), (3, 'ttft', 1, 1);
"""
BENCH = {
    "rounds": [{"ours": {"run": {"started_utc": "2026-01-31T12:00:00Z", "cpu_model": "a CPU", "cores": 2,
                                 "git_sha": "0123456789abcdef"}},
                "peer": {"full: flash on": {"version": "1.2.3"}}}],
    "results": [{"stack": "full", "metric": "decode", "ours_ns": [2e6, 4e6, 3e6],
                 "peer_ns": [6e6, 6e6, 6e6], "ratios": [3.0, 1.5, 2.0]}],
}


class ReadmeTablesTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        database = sqlite3.connect(self.folder / "toy.sqlite")
        database.executescript(SCHEMA)
        database.close()

    def table(self, kind):
        text = TEXT.replace("stacks", kind)
        return readme_tables.rewrite(text, self.folder, "toy.sqlite")

    def test_no_database_is_a_table_that_says_so(self):
        self.assertEqual(readme_tables.rewrite(TEXT, self.folder), TEXT.replace("old", "*Not measured yet.*"))

    def test_stacks(self):
        text = self.table("stacks")
        self.assertIn("| baseline | 1 | 12.50 [12.00, ∞] | 80.00 | 79.9 | - | 100 | 100.0% |", text)
        self.assertIn("| one_token | 1 | - | 80.00 | 12.5 | - | 100 | - |", text)
        self.assertNotIn("broken", text)
        self.assertIn("Run 4 of `toy.sqlite`, 2026-01-31T12:00:00Z, a CPU, 2 cores, built from"
                      " 0123456789ab (with uncommitted changes).", text)
        self.assertTrue(text.startswith("before\n<!-- table stacks toy toy.sqlite -->\n"))
        self.assertTrue(text.endswith("<!-- /table -->\nafter\n"))

    def test_decomposition_shows_a_refused_share(self):
        text = self.table("decomposition")
        self.assertIn("| c=1 | path | runtime | 1.900 [1.800, 2.000] | 67.7% [60.0%, 70.0%] |\n"
                      "| c=1 | path | kernel | 1.000 [0.900, 1.100] | refused |\n", text)

    def test_several_decompositions_are_named(self):
        database = sqlite3.connect(self.folder / "toy.sqlite")
        database.execute("INSERT INTO v_decomposition VALUES"
                         " ('toy', 'c=1', 'path', 'arena', 1.1, 1.0, 1.2, NULL, NULL, NULL, 'alone', 0)")
        database.commit()
        database.close()
        text = self.table("decomposition")
        self.assertIn("| decomposition | method |", text)
        self.assertIn("| alone | path | arena | 1.100", text)
        self.assertIn("| builtin | path | runtime | 1.900", text)

    def test_token_time_leaves_out_empty_classes_and_sums(self):
        text = self.table("token_time")
        self.assertIn("| us per token | a |\n| --- | --- |\n| gemm | 3.0 |\n| sync | 0.5 |\n| sum | 3.5 |",
                      text)

    def test_threats(self):
        self.assertIn("| note | few_blocks | 3 blocks \\| at least 5 |", self.table("threats"))

    def test_serving_shows_the_newest_run(self):
        text = self.table("serving")
        self.assertIn("| poisson:2 | full | 1.96 | 0.98 | 50% | 1.5 / 2.5 | - | 30.0 / 40.0 |", text)
        self.assertNotIn("older", text)

    def test_bench_cpu_comes_from_a_json_file(self):
        (self.folder / "bench.json").write_text(json.dumps(BENCH))
        text = readme_tables.rewrite(TEXT.replace("stacks toy -", "bench_cpu bench bench.json"), self.folder)
        self.assertIn("| `full`, Q4_1 | decode, ms a token | 3.00 [2.00, 4.00] | 6.00 [6.00, 6.00] |"
                      " 2.00 [1.50, 3.00] |", text)
        self.assertIn("1 interleaved rounds, 2026-01-31T12:00:00Z, a CPU, 2 cores, llama-cpp-python 1.2.3,"
                      " built from 0123456789ab.", text)

    def test_aa_comes_from_a_json_file(self):
        run = {"started_utc": "2026-01-31T12:00:00Z", "cpu_model": "a CPU", "cores": 2,
               "git_sha": "0123456789abcdef"}
        found = {"first_run": run, "runs": 3, "covered": 2, "median_width": 0.03, "largest_abs_ln": 0.05,
                 "intervals": [{"blocks": 10}, {"blocks": 10}, {"blocks": 9}]}
        (self.folder / "aa.json").write_text(json.dumps(found))
        text = readme_tables.rewrite(TEXT.replace("stacks toy -", "aa aa aa.json"), self.folder)
        self.assertIn("| 3 | 9, 10 | 2 | 0.0300 | 0.0500 |", text)
        self.assertIn("First run 2026-01-31T12:00:00Z, a CPU, 2 cores, built from 0123456789ab.", text)

    def test_rewriting_twice_changes_nothing(self):
        once = self.table("stacks")
        self.assertEqual(readme_tables.rewrite(once, self.folder), once)

    def test_faults_are_named(self):
        for text, part in ((TEXT.replace("stacks", "nonsense"), "no table nonsense"),
                           (TEXT.replace("toy -", "toy gone.sqlite"), "gone.sqlite"),
                           (TEXT.replace("toy -", "other toy.sqlite"), "no run")):
            with self.assertRaisesRegex(ValueError, part):
                readme_tables.rewrite(text, self.folder)

    def test_check_changes_nothing_and_fails_on_a_difference(self):
        path = self.folder / "README.md"
        path.write_text(TEXT)
        with contextlib.redirect_stderr(io.StringIO()):
            self.assertEqual(readme_tables.main([str(path), "--check"]), 1)
            self.assertEqual(path.read_text(), TEXT)
            self.assertEqual(readme_tables.main([str(path), "--from", "toy.sqlite"]), 0)
            self.assertEqual(readme_tables.main([str(path), "--check"]), 0)

    def test_the_tables_of_this_project_are_up_to_date(self):
        for path in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
            result = subprocess.run(
                [sys.executable, ROOT / "scripts" / "readme_tables.py", path, "--check"],
                capture_output=True, text=True, check=False)
            self.assertEqual(result.returncode, 0, result.stderr)


if __name__ == "__main__":
    unittest.main()
