# SPDX-FileCopyrightText: Triptych contributors
# SPDX-License-Identifier: Apache-2.0
"""A results database gets smaller, and no view but `itl` tells another number."""

import contextlib
import io
import os
import pathlib
import sqlite3
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
import slim_results  # noqa: E402  (found by the line above)

SPEC = ROOT / "experiments" / "specs" / "tiny.yaml"
SAME = ["v_stack_summary", "v_decomposition", "v_token_time", "v_threats", "v_runs", "v_blocks"]


class SlimResultsTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = pathlib.Path(folder.name) / "results.sqlite"

    def rows(self, query):
        with contextlib.closing(sqlite3.connect(self.path)) as database:
            return database.execute(query).fetchall()

    def slim(self, *arguments):
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as errors:
            code = slim_results.main([str(self.path), *arguments])
        return code, errors.getvalue()

    def test_kept_requests_are_evenly_spaced(self):
        self.assertEqual(slim_results.kept(3, 4), {0, 1, 2})
        self.assertEqual(slim_results.kept(128, 2), {0, 127})
        self.assertEqual(slim_results.kept(9, 3), {0, 4, 8})
        self.assertEqual(slim_results.kept(9, 1), {8})
        self.assertEqual(slim_results.kept(9, 0), set())

    def test_a_run_keeps_its_numbers(self):
        program = os.environ.get("TRIPTYCH_PROGRAM")
        if not program:
            self.skipTest("TRIPTYCH_PROGRAM is not set")
        subprocess.run([program, "run", SPEC, "--db", self.path, "--quiet", "--set", "workload.concurrency=4",
                        "--set", "measure.blocks=2"], check=True, capture_output=True)
        before = {view: self.rows(f"SELECT * FROM {view}") for view in SAME}
        size = self.path.stat().st_size
        records = self.rows("SELECT * FROM v_device_time")
        self.assertEqual(self.slim("--records", "tiny", "--records", "other"), (0, ""))
        self.assertEqual(self.rows("SELECT * FROM v_device_time"), records)
        self.assertGreater(len(records), 0)
        self.assertEqual(self.slim(), (0, ""))
        self.assertEqual(self.rows("SELECT count(*) FROM name"), [(0,)])
        self.assertLess(self.path.stat().st_size, size)
        self.assertEqual({view: self.rows(f"SELECT * FROM {view}") for view in SAME}, before)
        self.assertEqual(self.rows("SELECT DISTINCT request_index FROM v_requests WHERE itl_ns = '[]'"), [(1,), (2,)])
        self.assertEqual(self.rows("SELECT count(*) FROM activity"), [(0,)])
        self.assertEqual(self.slim(), (0, ""))  # a second time changes nothing
        report = subprocess.run([program, "report", "--db", self.path], check=True, capture_output=True)
        self.assertIn(b"baseline", report.stdout)

    def test_faults_are_named(self):
        self.assertIn("no such file", self.slim()[1])
        self.path.write_text("not a database, and long enough to be told from an empty one" * 20)
        code, message = self.slim()
        self.assertEqual(code, 2)
        self.assertIn("results.sqlite: ", message)


if __name__ == "__main__":
    unittest.main()
