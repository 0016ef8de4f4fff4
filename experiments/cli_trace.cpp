// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// triptych attribute and export: traces, from a file or from the database.
#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <map>
#include <ostream>

#include "attribution/breakdown.h"
#include "base/mapped_file.h"
#include "base/strings.h"
#include "experiments/cli_command.h"
#include "experiments/table.h"
#include "experiments/trace_rows.h"
#include "profiler/trace_json.h"

namespace triptych::cli {
namespace {

constexpr std::array<std::string_view, 3> kTableFormats = {"table", "csv", "json"};
constexpr std::array<std::string_view, 2> kPhases = {"decode", "prefill"};
constexpr Option kCellOption = {"cell", ValueKind::kText, "NAME",
                                "cell of the database, e.g. \"full@c=1,prompt=32,output=32\"", ""};

constexpr std::array kAttributeOptions = {
    kDatabaseOption,
    kCellOption,
    Option{"run", ValueKind::kNumber, "ID", "run of the cell", "the newest with a trace of it"},
    Option{"rules", ValueKind::kFile, "FILE", "rules that name the time classes (YAML)",
           "those that are built in"},
    Option{"phase", ValueKind::kText, "KIND", "phases that are divided", "decode", false, kPhases},
    Option{"format", ValueKind::kText, "FORMAT", "form of the rows", "table", false, kTableFormats},
    Option{"allow-dropped", ValueKind::kSwitch, "",
           "divide a trace although records are missing from it", "off: such a trace is refused"}};
constexpr std::array kExportOptions = {
    kDatabaseOption, kCellOption,
    Option{"run", ValueKind::kNumber, "ID", "run of the cell", "the newest with a trace of it"},
    Option{"output", ValueKind::kFile, "FILE", "file to write", "standard output"}};

template <class Names>
size_t index_of(const Names& names, std::string_view name) {
  return static_cast<size_t>(std::find(names.begin(), names.end(), name) - names.begin());
}

Result<Trace> to_trace(const db::TraceRow& row) {
  Trace trace;
  trace.clock = row.clock;
  trace.source = row.source;
  trace.quality.dropped = row.dropped;
  trace.quality.unlinked = row.unlinked;
  for (const db::ActivityRow& activity : row.activities) {
    const size_t kind = index_of(kActivityKindNames, activity.kind);
    if (kind == kActivityKindNames.size()) {
      return fail(ErrorCode::kCorrupt, "unknown kind of activity \"" + activity.kind + "\"");
    }
    trace.activities.push_back({static_cast<ActivityKind>(kind), activity.device_id,
                                activity.stream_id, trace.names.intern(activity.name),
                                activity.start_ns, activity.end_ns,
                                static_cast<uint64_t>(activity.correlation_id), activity.bytes});
  }
  for (const db::PhaseRow& phase : row.phases) {
    trace.phases.push_back({phase.kind == "prefill" ? PhaseKind::kPrefill : PhaseKind::kDecode,
                            phase.phase_index, phase.tokens, phase.start_ns, phase.end_ns});
  }
  TRIPTYCH_RETURN_IF_ERROR(trace.finish());
  return trace;
}

struct DeviceTotal {
  ClassTimes times{};
  int64_t window_ns = 0;
  int64_t tokens = 0;
};

/// Per device: the phases of one kind, or the whole trace when it has no decode step.
std::map<int32_t, DeviceTotal> device_totals(const Attribution& attribution, PhaseKind kind) {
  std::map<int32_t, DeviceTotal> totals;
  for (const StepBreakdown& step : attribution.steps) {
    if (step.phase.kind != kind) continue;
    DeviceTotal& total = totals[step.device_id];
    for (size_t i = 0; i < kNumTimeClasses; ++i) total.times[i] += step.times[i];
    total.window_ns += step.end_ns - step.start_ns;
    total.tokens += step.phase.tokens;
  }
  if (!totals.empty() || kind == PhaseKind::kPrefill) return totals;
  for (const DeviceBreakdown& device : attribution.devices) {
    totals[device.device_id] = {device.times, device.end_ns - device.start_ns, 0};
  }
  return totals;
}

TextTable class_table(const std::map<int32_t, DeviceTotal>& totals) {
  TextTable table;
  table.columns = {"device", "class", "group", "ns", "ns_per_token", "share"};
  table.numeric = {true, false, false, true, true, true};
  for (const auto& [device_id, total] : totals) {
    for (size_t i = 0; i < kNumTimeClasses; ++i) {
      const auto ns = static_cast<double>(total.times[i]);
      std::optional<std::string> per_token;
      std::optional<std::string> share;
      if (total.tokens > 0) per_token = str_format("%.1f", ns / static_cast<double>(total.tokens));
      if (total.window_ns > 0) {
        share = str_format("%.4f", ns / static_cast<double>(total.window_ns));
      }
      table.rows.push_back({std::to_string(device_id), std::string(kTimeClassNames[i]),
                            std::string(time_group(static_cast<TimeClass>(i))),
                            std::to_string(total.times[i]), per_token, share});
    }
  }
  return table;
}

/// What the rows leave out: the window they sum to, and names without a class.
std::string footer(const std::map<int32_t, DeviceTotal>& totals, const Attribution& attribution,
                   PhaseKind kind, int64_t unused_events) {
  const char* phases = kind == PhaseKind::kDecode ? "decode steps" : "prefill";
  std::string text;
  for (const auto& [device_id, total] : totals) {
    int64_t sum = 0;
    for (const int64_t ns : total.times) sum += ns;
    text += str_format("device %d: window %lld ns, ", device_id,
                       static_cast<long long>(total.window_ns)) +
            (total.tokens > 0
                 ? str_format("%s of %lld tokens", phases, static_cast<long long>(total.tokens))
                 : std::string("whole trace, no decode step in it")) +
            str_format(", residual %lld ns\n", static_cast<long long>(total.window_ns - sum));
  }
  const RecordQuality& quality = attribution.quality;
  if (quality.dropped + quality.zero_time + quality.inverted + quality.unlinked > 0) {
    text += str_format(
        "records: %lld dropped, %lld without time, %lld inverted, %lld unlinked\n",
        static_cast<long long>(quality.dropped), static_cast<long long>(quality.zero_time),
        static_cast<long long>(quality.inverted), static_cast<long long>(quality.unlinked));
  }
  if (unused_events > 0) {
    text += str_format("events: %lld are neither device records nor phases and were not used\n",
                       static_cast<long long>(unused_events));
  }
  for (const auto& [name, ns] : attribution.unclassified) {
    text += str_format("unclassified: %lld ns  ", static_cast<long long>(ns)) + name + "\n";
  }
  return text;
}

Result<Classifier> load_rules(const std::string& path) {
  TRIPTYCH_TRY(const MappedFile file, MappedFile::open(path));
  return Classifier::parse(file.text(), path);
}

int print_attribution(const Trace& trace, const Arguments& arguments, CliStreams streams) {
  std::optional<Classifier> rules;
  if (arguments.has("rules")) {
    auto loaded = load_rules(arguments.text("rules"));
    if (!loaded) return report_error(loaded.error(), ErrorSubject::kInput, streams);
    rules = std::move(*loaded);
  }
  const auto attribution =
      attribute(trace, rules ? *rules : Classifier::built_in(), arguments.has("allow-dropped"));
  if (!attribution) return report_error(attribution.error(), ErrorSubject::kInput, streams);
  const auto format = parse_table_format(arguments.has("format") ? arguments.text("format")
                                                                 : std::string(kTableFormats[0]));
  if (!format) return report_error(format.error(), ErrorSubject::kInput, streams);
  const bool prefill = arguments.has("phase") && arguments.text("phase") == kPhases[1];
  const PhaseKind kind = prefill ? PhaseKind::kPrefill : PhaseKind::kDecode;
  const auto totals = device_totals(*attribution, kind);
  if (totals.empty()) {
    streams.err << "triptych: the trace has no device records or no "
                << (prefill ? "prefill" : "phases") << ": nothing to divide\n";
  }
  streams.out << render_table(class_table(totals), *format);
  std::ostream& notes = *format == TableFormat::kTable ? streams.out : streams.err;
  notes << footer(totals, *attribution, kind, trace.unused_events);
  return kExitOk;
}

int usage(const std::string& message, CliStreams streams) {
  return report_error({ErrorCode::kInvalidArgument, message, ""}, ErrorSubject::kInput, streams);
}

int run_attribute(const Arguments& arguments, CliStreams streams) {
  const std::string file = arguments.positional(0);
  if (file.empty() != arguments.has("cell")) {
    return usage("expected either a trace FILE or --cell NAME", streams);
  }
  if (!file.empty()) {
    for (const std::string_view option : {"db", "run"}) {
      if (!arguments.has(option)) continue;
      return usage("--" + std::string(option) + " has no meaning with a trace FILE", streams);
    }
    const auto trace = read_trace_json(file);
    if (!trace) return report_error(trace.error(), ErrorSubject::kInput, streams);
    return print_attribution(*trace, arguments, streams);
  }
  const auto store = db::Store::open(arguments.database(), db::OpenMode::kReadOnly);
  if (!store) return report_error(store.error(), ErrorSubject::kDatabase, streams);
  const auto stored = load_stored_trace(*store, arguments.text("cell"), arguments.number("run"));
  if (!stored) return report_error(stored.error(), ErrorSubject::kDatabase, streams);
  return print_attribution(stored->trace, arguments, streams);
}

int run_export(const Arguments& arguments, CliStreams streams) {
  if (!arguments.has("cell")) return usage("expected --cell NAME", streams);
  const auto store = db::Store::open(arguments.database(), db::OpenMode::kReadOnly);
  if (!store) return report_error(store.error(), ErrorSubject::kDatabase, streams);
  const auto stored = load_stored_trace(*store, arguments.text("cell"), arguments.number("run"));
  if (!stored) return report_error(stored.error(), ErrorSubject::kDatabase, streams);
  if (!arguments.has("output")) {
    write_trace_json(stored->trace, streams.out);
    return kExitOk;
  }
  const std::string path = arguments.text("output");
  std::error_code missing;
  if (std::filesystem::equivalent(path, arguments.database(), missing)) {
    return usage("--output names the database itself: " + path, streams);
  }
  std::ofstream file(path, std::ios::binary);
  write_trace_json(stored->trace, file);
  file.close();
  if (!file) {
    return report_error({ErrorCode::kIo, "cannot be written", path}, ErrorSubject::kInput, streams);
  }
  streams.err << "triptych: " << path << ": " << stored->trace.activities.size()
              << " activities of " << stored->cell.name << "; open it at https://ui.perfetto.dev\n";
  return kExitOk;
}

}  // namespace

Result<StoredTrace> load_stored_trace(const db::Store& store, const std::string& name,
                                      std::optional<int64_t> run_id) {
  TRIPTYCH_TRY(const auto runs, store.runs(""));
  std::vector<std::string> names;
  bool found = false;
  for (const db::RunRow& run : runs) {  // newest first
    if (run_id && run.run_id != *run_id) continue;
    TRIPTYCH_TRY(const auto cells, store.cells(run.run_id));
    for (const db::CellRow& cell : cells) {
      names.push_back(cell.name);
      if (cell.name != name) continue;
      found = true;
      TRIPTYCH_TRY(const auto row, store.trace(cell.cell_id));
      if (!row) continue;
      TRIPTYCH_TRY(Trace trace, to_trace(*row));
      return StoredTrace{cell, std::move(trace)};
    }
  }
  const std::string where =
      run_id ? str_format(" in run %lld", static_cast<long long>(*run_id)) : std::string();
  if (found) {
    return fail(ErrorCode::kNotFound, "the cell \"" + name + "\" has no trace" + where);
  }
  const std::string near = nearest(name, names);
  return fail(ErrorCode::kNotFound,
              "no cell \"" + name + "\"" + where +
                  (near.empty() ? "; 'triptych query \"SELECT cell FROM v_stack_summary\"' has "
                                  "their names"
                                : "; did you mean \"" + near + "\"?"));
}

const Command kAttribute = {
    .name = "attribute",
    .summary = "divide a trace into exclusive time classes",
    .synopsis = "[FILE] [options]",
    .details =
        "Every nanosecond of the decode steps belongs to one class; the classes sum to the window\n"
        "exactly. A trace without decode steps is divided as a whole. With --phase prefill the\n"
        "windows are those in which prompts were read.\n"
        "\n"
        "Arguments:\n"
        "  FILE  Chrome or Kineto JSON trace; or name a stored cell with --cell\n",
    .max_positional = 1,
    .positional_kind = ValueKind::kFile,
    .options = kAttributeOptions,
    .run = run_attribute,
};

const Command kExport = {
    .name = "export",
    .summary = "write a stored trace as JSON for Perfetto",
    .synopsis = "--cell NAME [options]",
    .details = "The file opens in https://ui.perfetto.dev and chrome://tracing.\n",
    .options = kExportOptions,
    .run = run_export,
};

}  // namespace triptych::cli
