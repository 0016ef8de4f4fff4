# SPDX-FileCopyrightText: Triptych contributors
# SPDX-License-Identifier: Apache-2.0
"""The checker can fail: each rule is broken once in a tree made for it."""

import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import check_layers  # noqa: E402  (found by the line above)

TABLE = """
| room | holds | may include |
| --- | --- | --- |
| `base` | words | |
| `profiler` | traces | `base` |
| `engine` | models | `base` `profiler/phase.h` |
"""
SPDX = "// SPDX-FileCopyrightText: Triptych contributors\n// SPDX-License-Identifier: Apache-2.0\n"


class CheckLayersTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        self.write("docs/ARCHITECTURE.md", TABLE)
        self.write("base/a.h", SPDX + "#pragma once\n")
        self.write("base/a.cpp", SPDX + '#include "base/a.h"\n')
        self.write("tests/base/a_test.cpp", SPDX + '#include "base/a.h"\n')

    def write(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def header(self, name, *lines):
        self.write(name, SPDX + "#pragma once\n" + "\n".join(lines) + "\n")

    def assert_found(self, *parts):
        findings = check_layers.check(self.root)
        self.assertEqual(len(findings), 1, findings)
        for part in parts:
            self.assertIn(part, findings[0])

    def test_a_good_tree_has_no_findings(self):
        self.header("engine/e.h", '#include "profiler/phase.h"', '#include "base/a.h"')
        self.assertEqual(check_layers.check(self.root), [])

    def test_an_include_that_points_up(self):
        self.header("base/b.h", '#include "engine/e.h"')
        self.assert_found("base/b.h:4", "base may not include")

    def test_a_header_outside_the_part_that_is_allowed(self):
        self.header("engine/e.h", '#include "profiler/trace.h"')
        self.assert_found("engine/e.h:4", '"profiler/trace.h"')

    def test_an_include_that_does_not_start_at_the_root(self):
        self.header("base/b.h", '#include "a.h"')
        self.assert_found("base/b.h:4", "repository root")

    def test_tests_may_include_every_room_but_rooms_no_tests(self):
        self.write("tests/base/b_test.cpp", SPDX + '#include "engine/e.h"\n#include "tests/s.h"\n')
        self.assertEqual(check_layers.check(self.root), [])
        self.header("base/b.h", '#include "tests/s.h"')
        self.assert_found("base/b.h:4")

    def test_a_source_without_a_test(self):
        self.write("base/b.cpp", SPDX)
        self.assert_found("base/b.cpp", "no test of this name")
        self.write("tests/untested.txt", "base/b.cpp: it only forwards\n")
        self.assertEqual(check_layers.check(self.root), [])

    def test_a_source_is_tested_by_who_includes_its_header(self):
        self.header("base/b.h")
        self.write("base/b.cpp", SPDX)
        self.write("base/b_part.cpp", SPDX)  # has no header of its own: part of base/b.h
        self.assertEqual(len(check_layers.check(self.root)), 2)
        self.write("tests/base/other_test.cpp", SPDX + '#include "base/b.h"\n')
        self.assertEqual(check_layers.check(self.root), [])
        self.header("base/b_part.h")
        self.assert_found("base/b_part.cpp")

    def test_device_code_needs_a_cuda_test(self):
        self.header("base/k.h")
        self.write("base/k.cu", SPDX)
        self.write("tests/base/k_test.cpp", SPDX + '#include "base/k.h"\n')
        self.assert_found("base/k.cu", "no test")
        self.write("tests/base/k_cuda_test.cpp", SPDX + '#include "base/k.h"\n')
        self.assertEqual(check_layers.check(self.root), [])

    def test_headers_of_many_targets_toggle_their_guard(self):
        self.write("base/b-inl.h", SPDX + "#if defined(B) == defined(HWY_TARGET_TOGGLE)\n#endif\n")
        self.assertEqual(check_layers.check(self.root), [])
        self.write("base/b-inl.h", SPDX)
        self.assert_found("HWY_TARGET_TOGGLE is missing")

    def test_a_stale_exception(self):
        self.write("tests/untested.txt", "base/a.cpp: it only forwards\n")
        self.assert_found("tests/untested.txt", "base/a.cpp")

    def test_an_exception_without_a_reason(self):
        self.write("base/b.cpp", SPDX)
        self.write("tests/untested.txt", "base/b.cpp:\n")
        self.assert_found("no reason")

    def test_license_guard_and_length(self):
        self.write("base/b.h", "#pragma once\n")
        self.assert_found("SPDX")
        self.write("base/b.h", SPDX)
        self.assert_found("#pragma once")
        self.header("base/b.h", *["// line"] * check_layers.HEADER_LINES)
        self.assert_found("longer than")

    def test_open_ends_and_machine_paths(self):
        self.header("base/b.h", "// TO" + "DO: later")
        self.assert_found("base/b.h:4", "open end")
        self.header("base/b.h", '// see "/ho' + 'me/someone/model.gguf"')
        self.assert_found("base/b.h:4", "path of one machine")
        self.header("base/b.h", "// https://example.org/ho" + "me/page and a/tm" + "p/b")
        self.assertEqual(check_layers.check(self.root), [])

    def test_a_missing_table_is_a_finding(self):
        self.write("docs/ARCHITECTURE.md", "no table here")
        self.assert_found("table of rooms")


if __name__ == "__main__":
    unittest.main()
