#!/usr/bin/env python3
# SPDX-FileCopyrightText: Triptych contributors
# SPDX-License-Identifier: Apache-2.0
"""Counts how often a stack compared with itself shows a difference: experiments/specs/aa.yaml, many times.

usage: aa.py FOLDER [--runs 100] [--triptych PATH] [--set KEY.PATH=VALUE ...]

Each run measures anew with a seed of its own (1 to RUNS), into FOLDER/aa.sqlite. FOLDER/aa.json gets
ln F and its interval of every run; it is rewritten after each, so that a run that is stopped leaves
what it has. Needs nothing but Python and the program, found beside this script or given.
Exit code: 0 when at least 90 % of the intervals cover 0, 1 when fewer do, 2 when a run failed.
"""
import argparse
import json
import math
import os
import sqlite3
import statistics
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# In the repository, and in the folder that scripts/portable.sh makes.
SPECS = (ROOT / "experiments" / "specs" / "aa.yaml", ROOT / "specs" / "aa.yaml")
PROGRAMS = (ROOT / "build" / "cpu" / "bin" / "triptych", ROOT / "bin" / "triptych")
LEAST_COVERED = 0.9
RUN_FIELDS = ("started_utc", "cpu_model", "cores", "os_kernel", "program_version", "git_sha",
              "git_dirty", "compiler")


class RunFailed(Exception):
    """Its text says which run, and why."""


def first_existing(paths, what):
    for path in paths:
        if path.is_file():
            return path
    raise RunFailed(f"no {what}: looked for {', '.join(str(path) for path in paths)}")


def read_interval(database, experiment, seed):
    """The newest run of `database`, which must be the one of `seed`: facts of the run, and its ln F."""
    connection = sqlite3.connect(f"{database.resolve().as_uri()}?mode=ro", uri=True)
    connection.row_factory = sqlite3.Row
    try:
        run = connection.execute("SELECT * FROM v_runs WHERE experiment = ? ORDER BY run_id DESC",
                                 [experiment]).fetchone()
        rows = connection.execute("SELECT * FROM v_decomposition WHERE experiment = ? AND run_id = ?",
                                  [experiment, run["run_id"]]).fetchall()
    finally:
        connection.close()
    if run["seed"] != seed or len(rows) != 1 or rows[0]["factor_name"] != "identical":
        raise RunFailed(f"run of seed {seed}: {database} holds no comparison of two identical stacks;"
                        " the spec must have one workload and a path of two")
    row = rows[0]
    if row["log_total_lo"] is None or row["log_total_hi"] is None:
        raise RunFailed(f"run of seed {seed}: {row['blocks']} blocks are too few for an interval")
    interval = {"seed": seed, "ln": row["log_total"], "lo": row["log_total_lo"],
                "hi": row["log_total_hi"], "blocks": row["blocks"]}
    return {name: run[name] for name in RUN_FIELDS}, interval


def measure(options, experiment, seed):
    database = options.folder / "aa.sqlite"
    command = [options.triptych, "run", options.spec, "--db", database, "--force", "--quiet"]
    for setting in options.set:
        command += ["--set", setting]
    command += ["--set", f"measure.seed={seed}"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    if ended.returncode != 0:
        raise RunFailed(f"run of seed {seed}: {options.triptych} ended with {ended.returncode}:\n"
                        f"{ended.stderr.strip() or ended.stdout.strip()}")
    return read_interval(database, experiment, seed)


def summarize(intervals):
    covered = sum(i["lo"] <= 0 <= i["hi"] for i in intervals)
    return {"runs": len(intervals), "covered": covered,
            "median_width": statistics.median(i["hi"] - i["lo"] for i in intervals),
            "largest_abs_ln": max(abs(i["ln"]) for i in intervals)}


def store(path, record):
    """In one step, so that no reader and no kill finds half a file."""
    new = path.with_name(path.name + ".new")
    new.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    os.replace(new, path)


def percent(ln):
    return f"{100 * math.expm1(ln):.2f} %"


def repeat(options):
    """All runs; the summary of each number of them is stored."""
    experiment = options.experiment
    intervals = []
    record = {}
    load = os.getloadavg()[0]
    for seed in range(1, options.runs + 1):
        run, interval = measure(options, experiment, seed)
        intervals.append(interval)
        record = {"experiment": experiment, "settings": options.set, "load_average_before": load,
                  "first_run": record.get("first_run", run), **summarize(intervals),
                  "intervals": intervals}
        store(options.folder / "aa.json", record)
        mark = "" if interval["lo"] <= 0 <= interval["hi"] else "   does not cover 0"
        print(f"{seed:4} of {options.runs}: ln F {interval['ln']:+.5f} "
              f"[{interval['lo']:+.5f}, {interval['hi']:+.5f}]{mark}", flush=True)
    return record


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="gets aa.sqlite and aa.json")
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--triptych", type=Path, help="the program")
    parser.add_argument("--spec", type=Path, help="default: aa.yaml beside this script's folder")
    parser.add_argument("--experiment", default="aa", help="the name in the spec")
    parser.add_argument("--set", action="append", default=[], metavar="KEY.PATH=VALUE",
                        help="passed on to every run, in order")
    options = parser.parse_args(arguments)
    if options.runs < 1:
        parser.error("--runs: expected at least 1")
    return options


def main(arguments):
    options = parse(arguments)
    try:
        options.triptych = options.triptych or first_existing(PROGRAMS, "program triptych")
        options.spec = options.spec or first_existing(SPECS, "spec")
        options.folder.mkdir(parents=True, exist_ok=True)
        record = repeat(options)
    except (RunFailed, OSError, sqlite3.Error) as error:
        print(f"aa: {error}", file=sys.stderr)
        return 2
    print(f"{record['covered']} of {record['runs']} intervals cover 0; median width of an interval "
          f"{record['median_width']:.5f} in ln F ({percent(record['median_width'])}), "
          f"largest |ln F| {record['largest_abs_ln']:.5f}; stored in {options.folder / 'aa.json'}")
    return int(record["covered"] < LEAST_COVERED * record["runs"])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
