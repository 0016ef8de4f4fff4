# SPDX-FileCopyrightText: Triptych contributors
# SPDX-License-Identifier: Apache-2.0
"""Tables of what a GPU reached, for readme_tables.py: beside the floor, beside other engines, feature by
feature, kernel by kernel. A table of a database gets (database, name); `name` is one experiment or several
joined by commas, for `factors` and `bound` an experiment, a slash and one of its decompositions.
"""

import json
import math
import pathlib
import re
import statistics

# What the fast runtime is meant to reach; a row of `floors` and `prefill` looks its own up here.
TARGETS = pathlib.Path(__file__).resolve().with_name("gpu_targets.json")
# Names of kernels in a table of prompts; the others are summed.
MOST_KERNELS = 8
# A row that triptych_gpu_bench prints: name, shape, time with its spread, rates, multiple of the floor.
BENCH_ROW = re.compile(r"(?P<name>\S.*?) {2,}(?P<shape>\S.*?) {2,}(?P<us>[\d.]+) \[[\d.]+, [\d.]+\] +"
                       r"[\d.]+ +[\d.]+ +(?P<floors>[\d.]+)")


def point(row):
    """Numbers of a workload point: {'c': 8, 'prompt': 512, 'output': 128}."""
    pairs = (part.split("=", 1) for part in row["comparison"].split(","))
    return {key: int(value) for key, value in pairs if value.isdigit()}


def target(experiment, stack, metric, numbers):
    """The entry of gpu_targets.json for this cell, or None."""
    for entry in json.loads(TARGETS.read_text(encoding="utf-8")):
        if (entry["experiment"], entry["stack"], entry["metric"]) != (experiment, stack, metric):
            continue
        if all(numbers.get(key) == entry[key] for key in ("c", "prompt", "output") if key in entry):
            return entry
    return None


def bounds(middle, low, high, text):
    ends = [text(value) if value is not None else "∞" for value in (low, high)]
    return f"{text(middle)} [{ends[0]}, {ends[1]}]"


def optional(value, text):
    return "-" if value is None else text(value)


def milliseconds(nanoseconds):
    return f"{nanoseconds / 1e6:.2f}"


def done_cells(database, experiments):
    cells = []
    for experiment in experiments.split(","):
        cells += database.execute(
            "SELECT * FROM v_stack_summary WHERE experiment = ? AND status = 'done'", [experiment]).fetchall()
    return cells


def floors(database, experiments):
    """Decode steps beside the floor of the device, with targets where there are some."""
    steps = {row["cell_id"]: row["p50_ns"] for row in database.execute(
        "SELECT cell_id, p50_ns FROM v_latency WHERE metric = 'itl'")}
    rows = []
    for cell in done_cells(database, experiments):
        floor, step = cell["floor_ns_per_step"], steps.get(cell["cell_id"])
        if cell["tpot_ns_median"] is None or step is None or not floor:
            continue
        numbers = point(cell)
        ratios = {"tpot": cell["tpot_ns_median"] / floor, "step": step / floor}
        wanted = [(metric, target(cell["experiment"], cell["stack"], metric, numbers)) for metric in ratios]
        wanted = [(metric, entry["at_most"]) for metric, entry in wanted if entry is not None]
        rows.append([
            cell["model"].removeprefix("synthetic:"), cell["stack"], str(cell["batch"]), str(numbers["prompt"]),
            bounds(cell["tpot_ns_median"], cell["tpot_ns_lo"], cell["tpot_ns_hi"], milliseconds),
            milliseconds(step), milliseconds(floor), f"{ratios['tpot']:.3f}", f"{ratios['step']:.3f}",
            ", ".join(f"{metric} {most:.2f}" for metric, most in wanted) or "-",
            ", ".join("yes" if ratios[metric] <= most else f"no, by {ratios[metric] / most - 1:.1%}"
                      for metric, most in wanted) or "-"])
    return ["model", "stack", "batch", "prompt", "TPOT ms [95 %]", "step ms", "floor ms", "TPOT x floor",
            "step x floor", "target", "met"], rows


def prefill(database, experiments):
    """How fast prompts are read: prompt tokens of a pass over the time to its last first token."""
    rows = []
    for cell in done_cells(database, experiments):
        numbers = point(cell)
        if numbers["c"] > 1 and numbers["output"] > 2:
            continue  # prompts are read between the steps of those that decode
        passes = database.execute(
            "SELECT sum(prompt_tokens) AS tokens, max(submit_ns + ttft_ns) AS ns FROM v_requests"
            " WHERE cell_id = ? GROUP BY block_id", [cell["cell_id"]]).fetchall()
        if not passes:
            continue
        rates = [1e9 * row["tokens"] / row["ns"] for row in passes]
        entry = target(cell["experiment"], cell["stack"], "prefill", numbers)
        middle = statistics.median(rates)
        rows.append([
            cell["stack"], f"{numbers['c']} x {numbers['prompt']}",
            milliseconds(statistics.median(row["ns"] for row in passes)),
            bounds(middle, min(rates), max(rates), "{:.0f}".format),
            optional(entry, lambda found: f"{found['at_least']}"),
            optional(entry, lambda found: "yes" if middle >= found["at_least"] else
                     f"no, by {1 - middle / found['at_least']:.1%}")])
    return ["stack", "prompts", "ms", "tokens/s [least, most]", "target", "met"], rows


def split_name(name):
    experiment, _, decomposition = name.partition("/")
    if not decomposition:
        raise ValueError(f"{name}: expected EXPERIMENT/DECOMPOSITION")
    return experiment, decomposition


def batch_of(workload):
    return point({"comparison": workload})["c"]


def factors(database, name):
    """One path at every batch: what each rung multiplies, with its share of the logarithm."""
    found = database.execute(
        "SELECT * FROM v_decomposition WHERE experiment = ? AND decomposition = ? AND method = 'path'"
        " ORDER BY ordinal", split_name(name)).fetchall()
    workloads = sorted({row["workload"] for row in found}, key=batch_of)
    cells = {(row["ordinal"], row["workload"]): row for row in found}

    def rung(row):
        if row is None:
            return "-"
        share = "refused" if row["log_share"] is None else f"{row['log_share']:.0%}"
        return f"{bounds(row['factor'], row['factor_lo'], row['factor_hi'], '{:.3f}'.format)}, {share}"

    def total(workload):
        row = next(row for row in found if row["workload"] == workload)
        ends = [None if row[key] is None else math.exp(row[key]) for key in ("log_total_lo", "log_total_hi")]
        return bounds(math.exp(row["log_total"]), *ends, "{:.3f}".format)

    names = {row["ordinal"]: f"{row['factor_name']}: {row['from_stack']} -> {row['to_stack']}" for row in found}
    rows = [[names[ordinal]] + [rung(cells.get((ordinal, workload))) for workload in workloads]
            for ordinal in sorted(names)]
    return (["times [95 %], log share"] + [f"batch {batch_of(workload)}" for workload in workloads],
            rows + [["all"] + [total(workload) for workload in workloads]])


def bound(database, name):
    """The stacks of a path: what the host does in a step and how long the device has nothing to do."""
    experiment, decomposition = split_name(name)
    rungs = database.execute(
        "SELECT DISTINCT from_stack, to_stack FROM v_decomposition WHERE experiment = ? AND decomposition = ?"
        " AND method = 'path'", [experiment, decomposition]).fetchall()
    stacks = {stack for row in rungs for stack in row}
    rows, first = [], {}
    for cell in done_cells(database, experiment):
        if cell["stack"] not in stacks:
            continue
        first.setdefault(cell["comparison"], cell["ns_per_token_median"])
        passes = database.execute("SELECT * FROM v_blocks WHERE cell_id = ?", [cell["cell_id"]]).fetchall()

        def host(column, passes=passes):
            known = [row[column] for row in passes if column in row.keys() and row[column] is not None]
            return optional(statistics.median(known) if known else None, lambda ns: f"{ns / 1e3:.0f}")

        traced = database.execute(
            "SELECT sum(ns) AS ns, sum(CASE WHEN class IN ('launch_gap', 'host_wait') THEN ns ELSE 0 END) AS idle"
            " FROM v_token_time WHERE experiment = ? AND cell = ?", [experiment, cell["cell"]]).fetchone()
        idle = traced["idle"] / traced["ns"] if traced["ns"] else None
        rows.append([
            str(cell["batch"]), cell["stack"], optional(cell["tpot_ns_median"], milliseconds),
            f"{first[cell['comparison']] / cell['ns_per_token_median']:.2f}",
            optional(cell["floor_ratio"], "{:.2f}".format), host("host_ns_per_decode_step"),
            host("host_ns_per_prefill_step"), host("host_ns_per_step"), optional(idle, "{:.0%}".format),
            optional(idle, lambda share: "host" if share > 0.5 else "device")])
    return ["batch", "stack", "TPOT ms", "times faster than the first", "TPOT x floor", "host us a decode step",
            "host us a prefill step", "host us a step, all", "device idle in the trace", "bound by"], rows


def short_name(name):
    """What a kernel is, without tiles, architecture and the types of its templates."""
    name = name.removeprefix("void ").replace("(anonymous namespace)::", "")
    return re.sub(r"_(sm\d|\d+x\d).*", "", re.split(r"[<(]", name)[0]).strip() or name


def prompt_kernels(database, experiments):
    """What the device did while prompts were read in the traced pass, the longest first."""
    stored = database.execute("SELECT 1 FROM sqlite_master WHERE name = 'v_device_time'").fetchone()
    rows = []
    for cell in done_cells(database, experiments) if stored else []:
        kernels, whole = {}, 0
        for row in database.execute(
                "SELECT name, records, ns, phase_ns FROM v_device_time WHERE experiment = ? AND cell = ?"
                " AND phase = 'prefill' AND kind <> 'runtime'", [cell["experiment"], cell["cell"]]):
            whole = row["phase_ns"]
            count, ns = kernels.get(short_name(row["name"]), (0, 0))
            kernels[short_name(row["name"])] = (count + row["records"], ns + row["ns"])
        longest = sorted(kernels.items(), key=lambda item: -item[1][1])
        others = [times for _, times in longest[MOST_KERNELS:]]
        lines = longest[:MOST_KERNELS]
        if others:
            lines.append(("all others", tuple(map(sum, zip(*others)))))
        if whole:
            lines.append(("nothing", ("", whole - sum(ns for _, ns in kernels.values()))))
        rows += [[cell["stack"], str(cell["batch"]), name, str(count), milliseconds(ns), f"{ns / whole:.1%}"]
                 for name, (count, ns) in lines]
    none = [["-", "-", "no records of prompts are stored", "-", "-", "-"]]
    return ["stack", "batch", "what ran", "times", "ms", "share"], rows or none


def engines(database, experiments):
    """What each stack is: its features, and the kernels it took or what the external engine says of itself."""
    found = {}
    for cell in done_cells(database, experiments):
        found.setdefault((cell["stack_index"], cell["stack"], cell["runtime"], cell["linear"]), []).append(
            cell["batch"])
    return ["stack", "features", "batch", "kernels of the matrices, or the engine's own words"], [
        [stack, runtime.replace("+", ", "), ", ".join(str(batch) for batch in sorted(set(batches))), linear]
        for (_, stack, runtime, linear), batches in sorted(found.items(), key=lambda item: item[0][0])]


def threat_counts(database, experiments):
    """Threats of some experiments by code, with the first of each."""
    found = {}
    for experiment in experiments.split(","):
        for row in database.execute(
                "SELECT severity, code, message FROM v_threats WHERE experiment = ?", [experiment]):
            found.setdefault((row["severity"], row["code"]), []).append(row["message"])
    order = {"serious": 0, "warning": 1, "note": 2}
    return ["severity", "threat", "found", "for example"], [
        [severity, code, str(len(messages)), messages[0].replace("|", "\\|")]
        for (severity, code), messages in sorted(found.items(), key=lambda item: (order[item[0][0]], item[0][1]))]


def gpu_bench(text, names):
    """Rows of triptych_gpu_bench whose name starts with one of `names`: a line a shape, a column a name."""
    wanted = tuple(names.replace("_", " ").split(","))
    columns, shapes = [], {}
    for line in text.splitlines():
        row = BENCH_ROW.fullmatch(line.rstrip())
        if row is None or not row["name"].replace("_", " ").startswith(wanted):
            continue
        if row["name"] not in columns:
            columns.append(row["name"])
        shapes.setdefault(row["shape"], {})[row["name"]] = f"{row['us']} us, {1 / float(row['floors']):.1%}"
    if not shapes:
        raise ValueError(f"no row of the benchmark begins with {names}")
    return ["shape"] + columns, [[shape] + [cells.get(column, "-") for column in columns]
                                 for shape, cells in shapes.items()]


def gpu_bench_origin(text, name):
    """Which device, with its ceilings, and which program."""
    def line(start):
        return next((line for line in text.splitlines() if line.startswith(start)), "")

    date = next((found for found in text.split() if re.fullmatch(r"\d{4}-\d\d-\d\dT\S+Z", found)), "")
    sha = re.search(r"\(([0-9a-f]{12})[0-9a-f]*[^()]*\)", line("triptych "))
    device = next((found for found in text.splitlines() if re.search(r", sm_\d+, ", found)), "")
    parts = [date, device.split(", driver")[0], line("read "), f"built from {sha[1]}" if sha else ""]
    return f"From `{name}`: " + "; ".join(part for part in parts if part) + "."


KINDS = {"floors": floors, "prefill": prefill, "factors": factors, "bound": bound, "engines": engines,
         "prompt_kernels": prompt_kernels, "threat_counts": threat_counts}
