#!/usr/bin/env python3
# SPDX-FileCopyrightText: Triptych contributors
# SPDX-License-Identifier: Apache-2.0
"""Makes a results database small enough to be kept in a repository.

Records of traces (tables `activity`, `phase` and `name`) go: what was made of them, the time per class, stays. So do the
records of experiments that are named.
Gaps between tokens stay for some requests of every timed pass, evenly spaced from the first to the
last; all other numbers of a request stay, and so do summaries, factors and threats.

usage: slim_results.py DATABASE [--gaps N] [--records EXPERIMENT]...
"""

import argparse
import pathlib
import sqlite3
import sys

GAPS = 2  # the first request of a pass waits for the prompts of all others, the last for none


def kept(count, wanted):
    """Indices of at most `wanted` of `count` requests, evenly spaced, with both ends."""
    if count <= wanted:
        return set(range(count))
    if wanted <= 1:
        return {count - 1} if wanted else set()
    return {round(i * (count - 1) / (wanted - 1)) for i in range(wanted)}


def slim(database, gaps, whole):
    # A trial of the program's own tables: another kind of file has none of them.
    passes = database.execute(
        "SELECT block_id, count(*) FROM request GROUP BY block_id").fetchall()
    for block_id, count in passes:
        wanted = kept(count, gaps)
        places = ", ".join("?" * len(wanted))
        database.execute(
            f"UPDATE request SET itl_ns = '[]' WHERE block_id = ? AND request_index NOT IN ({places})",
            [block_id, *wanted])
    names = ", ".join("?" * len(whole))
    for table in ("activity", "phase"):
        database.execute(
            f"DELETE FROM {table} WHERE trace_id NOT IN (SELECT trace_id FROM trace JOIN cell USING (cell_id)"
            f" JOIN run USING (run_id) WHERE experiment IN ({names}))", whole)
    database.execute("DELETE FROM name WHERE name_id NOT IN (SELECT name_id FROM activity"
                     " UNION SELECT kind_id FROM activity)")
    database.commit()
    database.execute("PRAGMA journal_mode = DELETE")
    database.execute("VACUUM")


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("database", type=pathlib.Path)
    parser.add_argument("--gaps", type=int, default=GAPS, metavar="N",
                        help=f"requests of a pass whose gaps between tokens stay (default: {GAPS})")
    parser.add_argument("--records", action="append", default=[], metavar="EXPERIMENT",
                        help="an experiment whose traces stay whole (default: none)")
    options = parser.parse_args(arguments)
    if not options.database.is_file():
        print(f"slim_results: {options.database}: no such file", file=sys.stderr)
        return 2
    before = options.database.stat().st_size
    try:
        database = sqlite3.connect(options.database)
        slim(database, options.gaps, options.records)
        database.close()
    except sqlite3.Error as error:
        print(f"slim_results: {options.database}: {error}", file=sys.stderr)
        return 2
    print(f"{options.database.name}: {before} -> {options.database.stat().st_size} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
