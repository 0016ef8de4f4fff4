#!/usr/bin/env python3
# SPDX-FileCopyrightText: Triptych contributors
# SPDX-License-Identifier: Apache-2.0
"""Checks what a compiler does not: who includes whom, and that every source is licensed and tested.

The table of rooms is read from docs/ARCHITECTURE.md, so the document cannot drift from the check.
usage: check_layers.py [ROOT]     exit 0: nothing found, 1: findings, one a line.
"""

import pathlib
import re
import sys

HEADER_LINES = 300
SOURCE_LINES = 500
SOURCES = {".h", ".cuh", ".cpp", ".cu"}
LICENSED = SOURCES | {".py", ".sh"}
TEXT = LICENSED | {".sql", ".yaml", ".md", ".cmake", ".ipynb", ".txt"}
SKIPPED_DIRS = {"build", "models", "node_modules", "golden", "results"}
SPDX = ("SPDX-FileCopyrightText: Triptych contributors", "SPDX-License-Identifier: Apache-2.0")

INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)
# Written in parts, so that this file does not find itself.
OPEN_END = re.compile(r"\b(" + "|".join(["TO" + "DO", "FIX" + "ME", "XX" + "X", "HA" + "CK"]) + r")\b")
MACHINE_PATH = re.compile(r"(?<![\w.$})~*])/(?:" + "|".join(["work", "root", "home", "tmp"]) + r")/\w")


def read_table(architecture):
    """room -> names it may include: rooms, or single headers (with a slash)."""
    rooms = {}
    for line in architecture.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if line.startswith("| `") and len(cells) == 3 and re.fullmatch(r"`\w+`", cells[0]):
            rooms[cells[0].strip("`")] = set(re.findall(r"`([\w./]+)`", cells[2]))
    return rooms


def read_exceptions(root):
    """Sources that need no test of their own: `path: reason` lines."""
    path = root / "tests" / "untested.txt"
    if not path.exists():
        return {}
    lines = [line for line in path.read_text().splitlines() if line and not line.startswith("#")]
    return dict((part.strip() for part in line.split(":", 1)) for line in lines)


def project_files(root):
    for path in sorted(root.rglob("*")):
        parts = path.relative_to(root).parts
        hidden = any(part.startswith(".") for part in parts)
        if path.is_file() and not hidden and not SKIPPED_DIRS.intersection(parts[:-1]):
            yield path.relative_to(root)


def check_includes(path, text, rooms):
    room = path.parts[0]
    for match in INCLUDE.finditer(text):
        target = match.group(1)
        line = text.count("\n", 0, match.start(1)) + 1
        first = target.split("/")[0]
        if "/" not in target or (first not in rooms and first != "tests"):
            yield f'{path}:{line}: "{target}": write includes from the repository root'
        elif room in rooms and first != room:
            if first not in rooms[room] and target not in rooms[room]:
                yield f'{path}:{line}: "{target}": {room} may not include it (docs/ARCHITECTURE.md)'


def check_text(path, text):
    for number, line in enumerate(text.splitlines(), start=1):
        if OPEN_END.search(line):
            yield f"{path}:{number}: an open end: finish it or leave it out"
        # A shebang, a system path in documentation and a URL are not paths of one machine.
        if MACHINE_PATH.search(line):
            yield f"{path}:{number}: a path of one machine"
    lines = text.splitlines()
    if path.suffix in LICENSED:
        head = "\n".join(lines[:4])
        if not all(line in head for line in SPDX):
            yield f"{path}:1: the two SPDX lines are missing"
    if path.suffix in {".h", ".cuh"}:
        # Highway compiles -inl.h once per instruction set; a guard that toggles takes the place.
        guard = "HWY_TARGET_TOGGLE" if path.name.endswith("-inl.h") else "#pragma once"
        if guard not in text:
            yield f"{path}:1: {guard} is missing"
        if len(lines) > HEADER_LINES:
            yield f"{path}:{len(lines)}: header longer than {HEADER_LINES} lines"
    elif path.suffix in {".cpp", ".cu"} and path.parts[0] != "tests" and len(lines) > SOURCE_LINES:
        yield f"{path}:{len(lines)}: source longer than {SOURCE_LINES} lines"


def header_of(source, files):
    """The header that `source` implements: of its own name, or the longest that begins its name; of
    two like it the one that is not for CUDA only."""
    stem = source.stem.removesuffix("_no_cuda").removesuffix("_cuda")
    while stem:
        for name in (stem + ".h", stem + "_cuda.h"):
            if source.with_name(name) in files:
                return source.with_name(name)
        stem = stem.rpartition("_")[0]
    return None


def check_tests(files, includes, rooms, exceptions):
    """Every source has a test of its name, or one in its room that includes its header."""
    untested = set()
    for source in files:
        if source.parts[0] not in rooms or source.suffix not in {".cpp", ".cu"}:
            continue
        device = source.suffix == ".cu" or source.stem.endswith("_cuda")
        device = device and not source.stem.endswith("_no_cuda")
        tests = [path for path in files if path.parts[:2] == ("tests", source.parts[0])]
        # Code that needs a device counts as tested only where a device is.
        tests = [path for path in tests if path.name.endswith("_cuda_test.cpp") or not device]
        header = header_of(source, files)
        named = any(path.name == f"{source.stem}_test.cpp" for path in tests)
        if not named and not any(str(header) in includes[path] for path in tests):
            untested.add(source.as_posix())
    for source in sorted(untested - set(exceptions)):
        yield f"{source}:1: no test of this name in tests/, and none includes its header"
    for source in sorted(set(exceptions) - untested):
        yield f"tests/untested.txt: {source} is tested or gone: remove the line"
    for source, reason in exceptions.items():
        if not reason:
            yield f"tests/untested.txt: {source} has no reason"


def check(root):
    """All findings, as `path:line: text`."""
    rooms = read_table((root / "docs" / "ARCHITECTURE.md").read_text())
    if "base" not in rooms:
        return ["docs/ARCHITECTURE.md: the table of rooms was not found"]
    findings = []
    includes = {}
    files = list(project_files(root))
    for path in files:
        if path.suffix not in TEXT and path.name != "CMakeLists.txt":
            continue
        text = (root / path).read_text(errors="replace")
        includes[path] = set(INCLUDE.findall(text))
        findings += check_text(path, text)
        if path.suffix in SOURCES:
            findings += check_includes(path, text, rooms)
    findings += check_tests(files, includes, rooms, read_exceptions(root))
    if not any(path.suffix in SOURCES for path in files):
        findings.append(f"{root}: no sources found")
    return findings


def main(arguments):
    root = pathlib.Path(arguments[1] if len(arguments) > 1 else ".").resolve()
    findings = check(root)
    for finding in findings:
        print(finding)
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
