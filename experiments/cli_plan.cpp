// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// triptych plan: what would run, in which order, what it needs, what is there already.
#include <algorithm>
#include <array>
#include <map>
#include <ostream>

#include "base/strings.h"
#include "base/units.h"
#include "engine/device.h"
#include "experiments/cli_command.h"
#include "experiments/plan_estimate.h"
#include "experiments/plan_print.h"
#include "experiments/runner.h"

namespace triptych::cli {
namespace {

constexpr std::array kOptions = {
    kDatabaseOption, kSetOption,
    Option{"dry-run", ValueKind::kSwitch, "", "accepted for symmetry; plan never runs anything",
           "always on"}};

/// What the database knows that a plan is interested in.
Result<StoredResults> read_stored(const std::filesystem::path& database) {
  StoredResults stored;
  std::error_code ignored;
  if (!database.empty() && !std::filesystem::exists(database, ignored)) return stored;
  TRIPTYCH_TRY(const db::Store store, db::Store::open(database, db::OpenMode::kReadOnly));
  TRIPTYCH_TRY(const auto runs, store.runs(""));
  for (const db::RunRow& run : runs) {  // newest first
    TRIPTYCH_TRY(const auto cells, store.cells(run.run_id));
    // The rate is that of the run's device.
    const bool on_cpu =
        std::ranges::any_of(cells, [](const db::CellRow& cell) { return cell.device == "cpu"; });
    if (on_cpu && stored.read_bytes_per_s == 0) stored.read_bytes_per_s = run.read_bytes_per_s;
    for (const db::CellRow& cell : cells) {
      if (cell.status == "done") stored.done.emplace(cell.cell_hash, run.run_id);
      if (cell.status != "failed" && cell.status != "skipped") continue;
      stored.unmeasured.emplace(
          cell.cell_hash,
          cell.status + str_format(" in run %lld", static_cast<long long>(run.run_id)));
    }
  }
  return stored;
}

int run_plan(const Arguments& arguments, CliStreams streams) {
  const auto spec = load_spec(arguments);
  if (!spec) return report_error(spec.error(), ErrorSubject::kInput, streams);
  const auto prepared = prepare_experiment(*spec);
  if (!prepared) return report_error(prepared.error(), ErrorSubject::kInput, streams);
  const auto stored = read_stored(arguments.database());
  if (!stored) return report_error(stored.error(), ErrorSubject::kDatabase, streams);

  ModelShapes shapes(prepared->checkpoint);
  const auto estimate = estimate_plan(*spec, shapes, machine_memory_bytes());
  if (!estimate) return report_error(estimate.error(), ErrorSubject::kInput, streams);
  std::optional<int64_t> available = available_memory_bytes();
  double cuda_rate = 0;
  if (spec->device == DeviceKind::kCuda) {
    cuda_rate = measure_device_ceilings(spec->device).read_bytes_per_s;
    const auto device = static_cast<int64_t>(device_memory_bytes(spec->device));
    available = device > 0 ? std::optional(device) : std::nullopt;
  }
  streams.out << print_plan({*spec, prepared->inputs, prepared->plan, prepared->fallback_reason,
                             *estimate, available, *stored, cuda_rate});
  for (const RefusedCell& cell : estimate->refused) {
    const bool size = cell.error.code == ErrorCode::kOutOfMemory;
    streams.err << "triptych: error: " << spec->stacks[cell.stack].name << "@"
                << spec->workloads[cell.workload].label()
                << (size ? " does not fit: " : " cannot run: ") << cell.error.to_string() << "\n";
  }
  return estimate->refused.empty() ? kExitOk : kExitOutOfMemory;
}

}  // namespace

const Command kPlan = {
    .name = "plan",
    .summary = "show what a spec would run; nothing is written",
    .synopsis = "SPEC [options]",
    .details =
        "Checks the spec and prints its cells with their content hashes, the order of the blocks,\n"
        "the memory and time it needs, and which cells the database holds already. A cell that\n"
        "cannot run is named with the reason (more memory than the machine has, more positions "
        "than\n"
        "the model has, weights without kernels, ...), and the exit code is 6; 'run' skips it and\n"
        "measures the others. The time on a CUDA device needs the device, whose bandwidth is "
        "measured.\n"
        "\n"
        "Arguments:\n"
        "  SPEC  experiment YAML, e.g. experiments/specs/quickstart.yaml\n",
    .min_positional = 1,
    .max_positional = 1,
    .positional_kind = ValueKind::kFile,
    .options = kOptions,
    .run = run_plan,
};

}  // namespace triptych::cli
