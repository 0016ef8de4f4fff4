# SPDX-FileCopyrightText: Triptych contributors
# SPDX-License-Identifier: Apache-2.0
"""Tables of what a GPU reached, from views and from what the benchmark prints."""

import json
import pathlib
import sqlite3
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
import gpu_tables  # noqa: E402  (found by the line above)
import readme_tables  # noqa: E402

ONE, MANY = "c=1,prompt=512,output=128", "c=8,prompt=512,output=128"
READING = "c=8,prompt=512,output=1"
SCHEMA = f"""
CREATE TABLE cell (run_id, device);
CREATE TABLE v_runs (run_id, experiment, started_utc, gpu_name, cpu_model, cores, git_sha, git_dirty,
  read_bytes_per_s);
INSERT INTO cell VALUES (1, 'cuda: a GPU'), (2, 'cuda: a GPU'), (3, 'cuda: a GPU');
INSERT INTO v_runs VALUES (1, 'toy', '2026-01-31T12:00:00Z', 'a GPU', 'a CPU', 2, '0123456789abcdef', 0, 4.6e12),
  (2, 'toy', '2026-01-31T13:00:00Z', 'a GPU', 'a CPU', 2, '0123456789abcdef', 0, 4.7e12),
  (3, 'other', '2026-01-31T14:00:00Z', 'a GPU', 'a CPU', 2, '0123456789abcdef', 0, 4.7e12);
CREATE TABLE v_stack_summary (experiment, cell, stack, stack_index, batch, comparison, model, tpot_ns_median,
  tpot_ns_lo, tpot_ns_hi, ns_per_token_median, floor_ns_per_step, floor_ratio, runtime, linear, status, run_id,
  cell_id);
INSERT INTO v_stack_summary VALUES
  ('toy', 'slow@{ONE}', 'slow', 0, 1, '{ONE}', 'synthetic:shape', 8e6, 7.9e6, 8.1e6, 8e6, 3e6, 2.667, 'words',
   'engine 1.2', 'done', 1, 1),
  ('toy', 'fast@{ONE}', 'fast', 1, 1, '{ONE}', 'synthetic:shape', 3.3e6, 3.2e6, NULL, 4e6, 3e6, 1.1, 'arena+graph',
   'q=stream', 'done', 1, 2),
  ('toy', 'fast@{MANY}', 'fast', 1, 8, '{MANY}', 'synthetic:shape', 4e6, 4e6, 4e6, 5e5, 3e6, 1.333, 'arena+graph',
   'q=gemm', 'done', 2, 3),
  ('toy', 'fast@{READING}', 'fast', 1, 8, '{READING}', 'synthetic:shape', NULL, NULL, NULL, 1e7, 3e6, NULL,
   'arena+graph', 'q=gemm', 'done', 2, 4),
  ('toy', 'gone@{ONE}', 'gone', 2, 1, '{ONE}', 'synthetic:shape', NULL, NULL, NULL, NULL, NULL, NULL, '', '',
   'skipped', 1, 5);
CREATE TABLE v_latency (cell_id, metric, p50_ns);
INSERT INTO v_latency VALUES (1, 'itl', 8e6), (2, 'itl', 3.24e6), (2, 'ttft', 1), (3, 'itl', 3.6e6);
CREATE TABLE v_requests (cell_id, block_id, prompt_tokens, submit_ns, ttft_ns);
INSERT INTO v_requests VALUES (2, 20, 512, 0, 16e6), (4, 40, 512, 0, 20e6), (4, 40, 512, 1e6, 24e6),
  (4, 41, 512, 0, 20e6), (4, 41, 512, 0, 10e6), (3, 30, 512, 0, 1);
CREATE TABLE v_decomposition (experiment, decomposition, method, workload, ordinal, factor_name, from_stack,
  to_stack, factor, factor_lo, factor_hi, log_share, log_total, log_total_lo, log_total_hi);
INSERT INTO v_decomposition VALUES
  ('toy', 'paper', 'path', '{MANY}', 0, 'engine', 'slow', 'fast', 2.0, 1.9, NULL, NULL, ln(2), ln(1.9), NULL),
  ('toy', 'paper', 'path', '{ONE}', 0, 'engine', 'slow', 'fast', 1.5, 1.4, 1.6, 1.0, ln(1.5), ln(1.4), ln(1.6)),
  ('toy', 'paper', 'shapley', '{ONE}', 0, 'engine', '', '', 9, 9, 9, 1.0, 9, 9, 9);
CREATE TABLE v_blocks (cell_id, host_ns_per_step, host_ns_per_decode_step);
INSERT INTO v_blocks VALUES (1, NULL, NULL), (2, 2e6, 30e3), (2, 4e6, 50e3), (3, 1e6, 1e3);
CREATE TABLE v_token_time (experiment, cell, class, ns);
INSERT INTO v_token_time VALUES ('toy', 'fast@{ONE}', 'gemm', 20), ('toy', 'fast@{ONE}', 'launch_gap', 70),
  ('toy', 'fast@{ONE}', 'host_wait', 10), ('toy', 'fast@{MANY}', 'gemm', 90), ('toy', 'fast@{MANY}', 'launch_gap', 10);
CREATE TABLE v_device_time (experiment, cell, phase, kind, name, records, ns, phase_ns);
INSERT INTO v_device_time VALUES
  ('toy', 'slow@{ONE}', 'prefill', 'kernel', 'nvjet_sm90_hsh_64x8_2x1', 2, 3e6, 8e6),
  ('toy', 'slow@{ONE}', 'prefill', 'kernel', 'nvjet_sm90_hsh_320x128_TNT', 1, 1e6, 8e6),
  ('toy', 'slow@{ONE}', 'prefill', 'kernel', 'void at::native::(anonymous namespace)::Cat<float, 4>(int)', 4, 2e6, 8e6),
  ('toy', 'slow@{ONE}', 'prefill', 'runtime', 'cudaLaunchKernel', 9, 7e6, 8e6),
  ('toy', 'slow@{ONE}', 'decode', 'kernel', 'nvjet_sm90_hsh_64x8_2x1', 2, 3e6, 9e6),
  ('toy', 'fast@{READING}', 'prefill', 'kernel', 'a', 1, 9e6, 1e7);
CREATE TABLE v_threats (experiment, severity, code, message);
INSERT INTO v_threats VALUES ('toy', 'note', 'b', 'x | y'), ('toy', 'serious', 'z', 'first'),
  ('other', 'serious', 'z', 'second'), ('toy', 'warning', 'a', 'w');
"""
TARGETS = [
    {"experiment": "toy", "stack": "fast", "metric": "tpot", "c": 1, "prompt": 512, "at_most": 1.1},
    {"experiment": "toy", "stack": "fast", "metric": "step", "c": 8, "at_most": 1.15},
    {"experiment": "toy", "stack": "fast", "metric": "prefill", "c": 8, "prompt": 512, "at_least": 50000},
    {"experiment": "toy", "stack": "fast", "metric": "prefill", "c": 1, "at_least": 30000},
]
# The width is that of the program.
BENCH = """2026-01-31T12:00:00Z
triptych 0.1.0 (0123456789abcdef0123456789abcdef01234567; GNU 12.2.0 -O2)
a GPU, sm_90, 132 SMs, 140 GiB, L2 60.0 MiB, driver 580 (CUDA 13.0)
read 4668 GB/s, copy (read + write) 4210 GB/s, f16 product 746 Tflop/s

kernel                       shape                              us a call [p10, p90]               GB/s   Tflop/s x floor
some_linear                  down m 1 [4096, 14336]             28.87 [28.72, 28.91]               4069       4.1   1.250
some_linear overlapped       down m 1 [4096, 14336]             26.71 [26.64, 26.79]               4398       4.4   1.000
library                      down m 1 [4096, 14336]             30.28 [30.20, 30.33]               3880       3.9   2.000
some_linear                  down m 4 [4096, 14336]             31.93 [31.86, 32.06]               3683      14.7   1.600
another                      B 1 x 512, page 16                 5.00 [5.00, 5.00]                   419       1.7  10.000
"""


class GpuTablesTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        (self.folder / "res").mkdir()
        (self.folder / "res" / "gpu_bench.txt").write_text(BENCH)
        self.database = sqlite3.connect(self.folder / "res" / "results.sqlite")
        self.addCleanup(self.database.close)
        self.database.create_function("ln", 1, gpu_tables.math.log)
        self.database.executescript(SCHEMA)
        self.database.row_factory = sqlite3.Row
        (self.folder / "targets.json").write_text(json.dumps(TARGETS))
        self.targets, gpu_tables.TARGETS = gpu_tables.TARGETS, self.folder / "targets.json"

    def tearDown(self):
        gpu_tables.TARGETS = self.targets

    def test_floors_show_targets_of_steps_that_decode(self):
        columns, rows = gpu_tables.floors(self.database, "toy")
        self.assertEqual(columns[4:9], ["TPOT ms [95 %]", "step ms", "floor ms", "TPOT x floor", "step x floor"])
        self.assertEqual(rows, [
            ["shape", "slow", "1", "512", "8.00 [7.90, 8.10]", "8.00", "3.00", "2.667", "2.667", "-", "-"],
            ["shape", "fast", "1", "512", "3.30 [3.20, ∞]", "3.24", "3.00", "1.100", "1.080", "tpot 1.10", "yes"],
            ["shape", "fast", "8", "512", "4.00 [4.00, 4.00]", "3.60", "3.00", "1.333", "1.200", "step 1.15",
             "no, by 4.3%"]])

    def test_prefill_is_the_rate_to_the_last_first_token(self):
        _, rows = gpu_tables.prefill(self.database, "toy")
        # 1024 tokens in 25 ms and in 20 ms; where others decode meanwhile there is no row.
        self.assertEqual(rows[-1], ["fast", "8 x 512", "22.50", "46080 [40960, 51200]", "50000", "no, by 7.8%"])
        self.assertEqual(rows[-2], ["fast", "1 x 512", "16.00", "32000 [32000, 32000]", "30000", "yes"])
        self.assertNotIn("8 x 512", [row[1] for row in rows[:-1]])

    def test_factors_are_a_column_a_batch(self):
        columns, rows = gpu_tables.factors(self.database, "toy/paper")
        self.assertEqual(columns[1:], ["batch 1", "batch 8"])
        self.assertEqual(rows, [
            ["engine: slow -> fast", "1.500 [1.400, 1.600], 100%", "2.000 [1.900, ∞], refused"],
            ["all", "1.500 [1.400, 1.600]", "2.000 [1.900, ∞]"]])

    def test_bound_by_host_or_device(self):
        _, rows = gpu_tables.bound(self.database, "toy/paper")
        self.assertEqual(rows[0], ["1", "slow", "8.00", "1.00", "2.67", "-", "-", "-", "-", "-"])
        self.assertEqual(rows[1], ["1", "fast", "3.30", "2.00", "1.10", "40", "-", "3000", "80%", "host"])
        self.assertEqual(rows[2][-2:], ["10%", "device"])

    def test_idle_time_of_an_engine_that_wrote_a_trace(self):
        self.database.executemany("INSERT INTO v_token_time VALUES ('toy', ?, ?, ?)", [
            (f"slow@{ONE}", "elementwise", 30), (f"slow@{ONE}", "launch_gap", 60), (f"slow@{ONE}", "host_wait", 1)])
        _, rows = gpu_tables.bound(self.database, "toy/paper")
        self.assertEqual(rows[0], ["1", "slow", "8.00", "1.00", "2.67", "-", "-", "-", "67%", "host"])

    def test_what_prompts_are_read_with(self):
        columns, rows = gpu_tables.prompt_kernels(self.database, "toy")
        self.assertEqual(columns[2:], ["what ran", "times", "ms", "share"])
        self.assertEqual(rows, [
            ["slow", "1", "nvjet", "3", "4.00", "50.0%"], ["slow", "1", "at::native::Cat", "4", "2.00", "25.0%"],
            ["slow", "1", "nothing", "", "2.00", "25.0%"],
            ["fast", "8", "a", "1", "9.00", "90.0%"], ["fast", "8", "nothing", "", "1.00", "10.0%"]])

    def test_short_kernels_are_summed(self):
        self.database.executemany(
            "INSERT INTO v_device_time VALUES ('toy', ?, 'prefill', 'kernel', ?, 1, ?, 8e6)",
            [(f"slow@{ONE}", letter, 1e4) for letter in "abcdefgh"])
        _, rows = gpu_tables.prompt_kernels(self.database, "toy")
        self.assertEqual([row[2:] for row in rows[8:10]], [
            ["all others", "2", "0.02", "0.2%"], ["nothing", "", "1.92", "24.0%"]])

    def test_without_records_the_table_says_so(self):
        none = [["-", "-", "no records of prompts are stored", "-", "-", "-"]]
        self.assertEqual(gpu_tables.prompt_kernels(self.database, "other")[1], none)
        self.database.execute("DROP TABLE v_device_time")  # of an older program
        self.assertEqual(gpu_tables.prompt_kernels(self.database, "toy")[1], none)

    def test_engines_tell_what_ran(self):
        _, rows = gpu_tables.engines(self.database, "toy")
        self.assertEqual(rows, [["slow", "words", "1", "engine 1.2"], ["fast", "arena, graph", "1", "q=stream"],
                                ["fast", "arena, graph", "8", "q=gemm"]])

    def test_threats_are_counted_worst_first(self):
        _, rows = gpu_tables.threat_counts(self.database, "toy,other")
        self.assertEqual(rows, [["serious", "z", "2", "first"], ["warning", "a", "1", "w"],
                                ["note", "b", "1", "x \\| y"]])

    def test_bench_is_a_line_a_shape_and_a_column_a_kernel(self):
        columns, rows = gpu_tables.gpu_bench(BENCH, "some_linear,library")
        self.assertEqual(columns, ["shape", "some_linear", "some_linear overlapped", "library"])
        self.assertEqual(rows, [
            ["down m 1 [4096, 14336]", "28.87 us, 80.0%", "26.71 us, 100.0%", "30.28 us, 50.0%"],
            ["down m 4 [4096, 14336]", "31.93 us, 62.5%", "-", "-"]])
        with self.assertRaisesRegex(ValueError, "no row"):
            gpu_tables.gpu_bench(BENCH, "nothing")

    def test_a_decomposition_must_be_named(self):
        with self.assertRaisesRegex(ValueError, "expected EXPERIMENT/DECOMPOSITION"):
            gpu_tables.factors(self.database, "toy")

    def test_a_page_is_filled_from_a_folder(self):
        page = "".join(f"<!-- table {kind} {name} - -->\n<!-- /table -->\n" for kind, name in (
            ("factors", "toy/paper"), ("floors", "toy,other,third"), ("gpu_bench", "another")))
        self.database.commit()
        text = readme_tables.rewrite(page, self.folder, "res")
        self.assertIn("<!-- table factors toy/paper res/results.sqlite -->\n", text)
        self.assertIn("| B 1 x 512, page 16 | 5.00 us, 10.0% |", text)
        self.assertIn("From `res/gpu_bench.txt`: 2026-01-31T12:00:00Z; a GPU, sm_90, 132 SMs, 140 GiB, L2 60.0 MiB;"
                      " read 4668 GB/s, copy (read + write) 4210 GB/s, f16 product 746 Tflop/s;"
                      " built from 0123456789ab.", text)
        # Cells of both runs of the experiment are shown, so both are named, with their own ceilings.
        self.assertIn("Run 1 of `res/results.sqlite`, 2026-01-31T12:00:00Z, a GPU that reads 4600 GB/s,", text)
        self.assertIn("Run 2 of `res/results.sqlite`, 2026-01-31T13:00:00Z, a GPU that reads 4700 GB/s,", text)
        self.assertIn("Run 3 of `res/results.sqlite`", text)
        self.assertIn("There is no run of `third`.", text)
        self.assertEqual(readme_tables.rewrite(text, self.folder), text)

    def test_only_empty_tables_are_filled(self):
        page = ("<!-- table aa aa - -->\n<!-- /table -->\n"
                "<!-- table factors toy/paper res/results.sqlite -->\n<!-- /table -->\n")
        self.database.commit()
        text = readme_tables.rewrite(page.replace("aa aa", "gpu_bench another"), self.folder, "res", True)
        self.assertIn("<!-- table gpu_bench another res/gpu_bench.txt -->", text)
        self.assertIn("<!-- table factors toy/paper res/results.sqlite -->", text)

    def test_targets_of_this_project_name_cells_of_its_specs(self):
        for entry in json.loads(self.targets.read_text()):
            self.assertTrue((ROOT / "experiments" / "specs" / f"{entry['experiment']}.yaml").is_file())
            self.assertEqual(len({"at_most", "at_least"} & entry.keys()), 1)


if __name__ == "__main__":
    unittest.main()
