#!/usr/bin/env python3
# SPDX-FileCopyrightText: Triptych contributors
# SPDX-License-Identifier: Apache-2.0
"""Writes the tables of a Markdown file from a stored results database, through its views.

A table stands between two markers, and the first names where it comes from:
    <!-- table stacks quickstart experiments/results/laptop-2026-01-31/results.sqlite -->
    <!-- /table -->
Kinds are `stacks`, `decomposition`, `token_time`, `threats` and `serving`, from a JSON file `bench_cpu` and
`aa`, those of gpu_tables.py (`floors`, `prefill`, `factors`, `bound`, `engines`, `prompt_kernels`,
`threat_counts`), and `gpu_bench` from what triptych_gpu_bench printed. A source of `-` means an empty table.

usage: readme_tables.py FILE                          rewrites the tables of FILE
       readme_tables.py FILE --from SOURCE            first lets all of them come from SOURCE: a file, or a
                                                      folder with the usual names in it
       readme_tables.py FILE --from SOURCE --empty    only those that come from nowhere
       readme_tables.py FILE --check                  exit 1 if the file would change
"""

import argparse
import json
import pathlib
import re
import sqlite3
import statistics
import sys

import gpu_tables

TABLE = re.compile(
    r"<!-- table (?P<kind>\w+) (?P<experiment>\S+) (?P<database>\S+) -->\n.*?<!-- /table -->",
    re.DOTALL,
)
MIB = 2**20


def interval(middle, low, high, text):
    """`12.3 [12.1, 12.6]`; a bound that is not known is an infinity sign."""
    if middle is None:
        return "-"
    bounds = [text(value) if value is not None else "∞" for value in (low, high)]
    return f"{text(middle)} [{bounds[0]}, {bounds[1]}]"


def optional(value, text):
    return text(value) if value is not None else "-"


def milliseconds(nanoseconds):
    return f"{nanoseconds / 1e6:.2f}"


def markdown(columns, rows):
    lines = ["| " + " | ".join(columns) + " |", "| " + " | ".join(["---"] * len(columns)) + " |"]
    return lines + ["| " + " | ".join(row) + " |" for row in rows]


def stacks(database, experiment):
    rows = database.execute(
        "SELECT * FROM v_stack_summary WHERE experiment = ? AND status = 'done'", [experiment]
    ).fetchall()
    columns = ["stack", "batch", "TPOT ms [95 %]", "TTFT ms", "tokens/s", "x floor", "peak MiB",
               "token agreement"]
    return markdown(columns, [
        [row["stack"],
         str(row["batch"]),
         interval(row["tpot_ns_median"], row["tpot_ns_lo"], row["tpot_ns_hi"], milliseconds),
         milliseconds(row["ttft_ns_median"]),
         f"{row['tokens_per_s']:.1f}",
         optional(row["floor_ratio"], "{:.2f}".format),
         optional(row["peak_bytes"], lambda peak: f"{peak / MIB:.0f}"),
         optional(row["token_agreement"], "{:.1%}".format)]
        for row in rows
    ])


def decomposition(database, experiment):
    rows = database.execute(
        "SELECT * FROM v_decomposition WHERE experiment = ? ORDER BY workload, decomposition,"
        " CASE method WHEN 'path' THEN 0 WHEN 'path_reverse' THEN 1 WHEN 'shapley' THEN 2 ELSE 3 END,"
        " ordinal", [experiment]
    ).fetchall()
    columns = ["workload", "method", "factor", "times [95 %]", "log share [95 %]"]
    lines = [
        [row["workload"], row["method"], row["factor_name"],
         interval(row["factor"], row["factor_lo"], row["factor_hi"], "{:.3f}".format),
         "refused" if row["log_share"] is None else
         interval(row["log_share"], row["share_lo"], row["share_hi"], "{:.1%}".format)]
        for row in rows
    ]
    # A column that says the same in every row says nothing, unless it is the usual one.
    if len({row["decomposition"] for row in rows}) > 1:
        columns[0] = "decomposition"
        for line, row in zip(lines, rows):
            line[0] = row["decomposition"]
            if len({other["workload"] for other in rows}) > 1:
                line[0] += f" at {row['workload']}"
    return markdown(columns, lines)


def token_time(database, experiment):
    rows = database.execute(
        "SELECT cell, stack, class, sum(ns_per_token) AS ns, class_index FROM v_token_time"
        " WHERE experiment = ? GROUP BY cell, class ORDER BY min(comparison), stack_index,"
        " class_index", [experiment]
    ).fetchall()
    cells = list(dict.fromkeys(row["cell"] for row in rows))
    times = {(row["cell"], row["class"]): row["ns"] for row in rows}
    classes = sorted({(row["class_index"], row["class"]) for row in rows})
    used = [name for _, name in classes if any(times[cell, name] for cell in cells)]
    lines = [[name] + [f"{times[cell, name] / 1e3:.1f}" for cell in cells] for name in used]
    total = ["sum"] + [
        f"{sum(times[cell, name] for _, name in classes) / 1e3:.1f}" for cell in cells
    ]
    stacks_of = {row["cell"]: row["stack"] for row in rows}
    alone = len(set(stacks_of.values())) == len(cells)  # one workload point: stacks name the cells
    names = [stacks_of[cell] if alone else cell for cell in cells]
    return markdown(["us per token"] + names, lines + [total])


def threats(database, experiment):
    rows = database.execute(
        "SELECT severity, code, message FROM v_threats WHERE experiment = ?", [experiment]
    ).fetchall()
    return markdown(["severity", "threat", "found"], [
        [row["severity"], row["code"], row["message"].replace("|", "\\|")] for row in rows
    ])


def serving(database, experiment):
    """Percentiles and goodput over all requests of the newest run."""
    rows = database.execute(
        "SELECT s.*, l.metric, l.p50_ns, l.p99_ns FROM v_serving AS s JOIN v_latency AS l USING (cell_id)"
        " WHERE s.experiment = ? AND s.run_id = (SELECT max(run_id) FROM v_runs WHERE experiment = ?)"
        " ORDER BY s.comparison, s.stack_index", [experiment, experiment]
    ).fetchall()
    cells = {row["cell_id"]: row for row in rows}
    times = {(row["cell_id"], row["metric"]): row for row in rows}

    def percentiles(cell_id, metric):
        row = times.get((cell_id, metric))
        return f"{row['p50_ns'] / 1e6:.1f} / {row['p99_ns'] / 1e6:.1f}" if row else "-"

    return markdown(
        ["arrivals", "stack", "requests/s", "goodput/s", "kept", "TTFT ms p50 / p99",
         "TPOT ms p50 / p99", "e2e ms p50 / p99"],
        [[row["arrivals"], row["stack"], f"{row['requests_per_s']:.2f}",
          optional(row["goodput_per_s"], "{:.2f}".format),
          optional(row["slo_attainment"], "{:.0%}".format),
          *(percentiles(cell_id, metric) for metric in ("ttft", "tpot", "e2e"))]
         for cell_id, row in cells.items()])


def bench_cpu(found):
    """What scripts/bench_cpu.sh stored."""
    run = found["rounds"][0]["ours"]["run"]

    def spread(values, scale):
        return (f"{statistics.median(values) / scale:.2f}"
                f" [{min(values) / scale:.2f}, {max(values) / scale:.2f}]")

    names = {"full": "`full`, Q4_1", "intermediate": "`intermediate`, F16"}
    units = {"decode": "decode, ms a token", "prefill": "prefill, ms"}
    lines = markdown(
        ["", "", "Triptych [least, most]", "llama.cpp [least, most]", "ratio [least, most]"],
        [[names[r["stack"]], units[r["metric"]], spread(r["ours_ns"], 1e6), spread(r["peer_ns"], 1e6),
          spread(r["ratios"], 1)] for r in found["results"]])
    version = next(iter(found["rounds"][0]["peer"].values()))["version"]
    return lines + ["", f"{len(found['rounds'])} interleaved rounds, {run['started_utc']}, "
                        f"{run['cpu_model']}, {run['cores']} cores, llama-cpp-python {version}, "
                        f"built from {run['git_sha'][:12]}."]


def aa(found):
    """What scripts/aa.py stored: how many comparisons of a stack with itself show no difference."""
    run = found["first_run"]
    blocks = {interval["blocks"] for interval in found["intervals"]}
    lines = markdown(
        ["runs", "blocks", "intervals of ln F that cover 0", "median width in ln F", "largest abs(ln F)"],
        [[str(found["runs"]), ", ".join(str(count) for count in sorted(blocks)), str(found["covered"]),
          f"{found['median_width']:.4f}", f"{found['largest_abs_ln']:.4f}"]])
    return lines + ["", f"First run {run['started_utc']}, {run['cpu_model']}, {run['cores']} cores, "
                        f"built from {run['git_sha'][:12]}."]


KINDS = {"stacks": stacks, "decomposition": decomposition, "token_time": token_time,
         "threats": threats, "serving": serving}
# From a JSON file that a script stored; the name of the experiment is not used.
JSON_KINDS = {"bench_cpu": bench_cpu, "aa": aa}
# In a folder of results, what does not come from results.sqlite.
FILES = {"bench_cpu": "bench_cpu.json", "aa": "aa.json", "gpu_bench": "gpu_bench.txt"}


def origin(database, experiments, name):
    """One line for each run behind a table; of several experiments some may not have been run."""
    lines, missing = [], []
    for experiment in experiments.split(","):
        found = origins_of(database, experiment.partition("/")[0], name)
        lines += found
        if not found:
            missing.append(experiment)
    if not lines:
        raise ValueError(f"{name}: no run of the experiment {experiments}")
    return lines + [f"There is no run of `{experiment}`." for experiment in missing]


def origins_of(database, experiment, name):
    """The newest run, and older ones whose cells are not all in it."""
    runs = database.execute(
        "SELECT * FROM v_runs WHERE experiment = ? ORDER BY run_id", [experiment]).fetchall()
    used = {row["run_id"] for row in database.execute(
        "SELECT run_id FROM v_stack_summary WHERE experiment = ? AND status = 'done'", [experiment])}
    return [origin_of(run, name, device_of(database, run)) for run in runs if run["run_id"] in used or run is runs[-1]]


def device_of(database, run):
    """The GPU of a run's cells; None on a CPU."""
    row = database.execute("SELECT device FROM cell WHERE run_id = ? AND device LIKE 'cuda: %'",
                           [run["run_id"]]).fetchone()
    return row["device"].removeprefix("cuda: ") if row else None


def origin_of(run, name, device):
    machine = device or f"{run['cpu_model']}, {run['cores']} cores"
    if device and run["read_bytes_per_s"]:
        machine += f" that reads {run['read_bytes_per_s'] / 1e9:.0f} GB/s"
    dirty = " (with uncommitted changes)" if run["git_dirty"] else ""
    return (f"Run {run['run_id']} of `{name}`, {run['started_utc']}, {machine},"
            f" built from {run['git_sha'][:12]}{dirty}.")


def table_of(kind, experiment, name, path):
    """The lines of a table and where it comes from."""
    if kind in JSON_KINDS:
        return JSON_KINDS[kind](json.loads(path.read_text(encoding="utf-8")))
    if kind == "gpu_bench":
        text = path.read_text(encoding="utf-8")
        return markdown(*gpu_tables.gpu_bench(text, experiment)) + [
            "", gpu_tables.gpu_bench_origin(text, name)]
    # immutable: a committed file is not being written, and must not get a -wal beside it.
    database = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro&immutable=1", uri=True)
    database.row_factory = sqlite3.Row
    try:
        lines = (KINDS[kind](database, experiment) if kind in KINDS else
                 markdown(*gpu_tables.KINDS[kind](database, experiment)))
        return lines + ["", *origin(database, experiment, name)]
    finally:
        database.close()


def render(match, folder):
    kind, experiment, name = match["kind"], match["experiment"], match["database"]
    known = [*KINDS, *JSON_KINDS, *gpu_tables.KINDS, "gpu_bench"]
    if kind not in known:
        raise ValueError(f"no table {kind}; known are {', '.join(known)}")
    lines = [f"<!-- table {kind} {experiment} {name} -->"]
    if name != "-":
        path = folder / name
        if not path.is_file():
            raise ValueError(f"{name}: no such file")
        lines += table_of(kind, experiment, name, path)
    else:
        lines.append("*Not measured yet.*")
    return "\n".join(lines + ["<!-- /table -->"])


def source_of(kind, source, folder):
    """`source` itself, or the file that a table of this kind comes from in the folder `source`."""
    if not (folder / source).is_dir():
        return source
    return f"{source.rstrip('/')}/{FILES.get(kind, 'results.sqlite')}"


def rewrite(text, folder, source=None, only_empty=False):
    """`text` with its tables made anew; `source` replaces where they come from."""
    def replace(match):
        if only_empty and match[3] != "-":
            return match[0]
        return f"{match[1]}{source_of(match[2], source, folder)}{match[4]}"

    if source is not None:
        text = re.sub(r"(<!-- table (\w+) \S+ )(\S+)( -->)", replace, text)
    return TABLE.sub(lambda match: render(match, folder), text)


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("file", type=pathlib.Path)
    parser.add_argument("--from", dest="source", help="file or folder, relative to FILE")
    parser.add_argument("--empty", action="store_true", help="with --from: only tables that have no source")
    parser.add_argument("--check", action="store_true", help="change nothing")
    options = parser.parse_args(arguments)
    text = options.file.read_text(encoding="utf-8")
    try:
        new = rewrite(text, options.file.resolve().parent, options.source, options.empty)
    except (ValueError, sqlite3.Error) as error:
        print(f"readme_tables: {error}", file=sys.stderr)
        return 1
    if options.check:
        if new != text:
            print(f"{options.file}: tables differ from their database", file=sys.stderr)
        return int(new != text)
    options.file.write_text(new, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
