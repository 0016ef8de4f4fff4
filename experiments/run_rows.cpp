// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "experiments/run_rows.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "base/strings.h"
#include "base/units.h"
#include "kernels/device_info.h"

namespace triptych {

namespace {

std::optional<int64_t> slo_ns(const std::optional<double>& ms) {
  if (!ms) return std::nullopt;
  return std::llround(*ms * 1e6);
}

}  // namespace

db::RunRow make_run_row(const ExperimentSpec& spec, const PlanInputs& inputs, const RunPlan& plan,
                        const Environment& environment, const BuildInfo& build) {
  db::RunRow row;
  row.experiment = spec.experiment;
  row.question = spec.question;
  row.plan_hash = plan.hash;
  row.spec_path = spec.path.string();
  row.spec_text = spec.text;
  row.seed = static_cast<int64_t>(spec.measure.seed);
  row.blocks_planned = spec.measure.blocks;
  row.started_utc = utc_now();
  row.status = "running";
  row.program_version = build.program_version;
  row.git_sha = build.git_sha;
  row.git_dirty = build.git_dirty;
  row.compiler = build.compiler;
  row.binary_hash = inputs.binary_hash;
  row.cpu_model = environment.cpu_model;
  row.cores = environment.cores;
  row.memory_bytes = environment.memory_bytes;
  row.os_kernel = environment.os_kernel;
  if (spec.device != DeviceKind::kCuda) return row;
  if (const auto devices = query_devices(); devices.has_value()) {
    row.gpu_name = devices->front().name;
    row.gpu_driver = devices->front().driver;
  }
  return row;
}

Result<ExperimentSpec> stored_spec(const db::RunRow& run, const std::filesystem::path& database) {
  namespace fs = std::filesystem;
  Result<ExperimentSpec> here = parse_spec_text(run.spec_text, run.spec_path, {});
  const fs::path given = run.spec_path;
  std::error_code ignored;
  if (given.is_absolute() || (here && fs::exists(given, ignored))) return here;
  const fs::path home = fs::absolute(database, ignored).lexically_normal().parent_path();
  for (fs::path folder = home; !folder.empty(); folder = folder.parent_path()) {
    const fs::path candidate = (folder / given).lexically_normal();
    if (fs::is_regular_file(candidate, ignored)) {
      Result<ExperimentSpec> there = parse_spec_text(run.spec_text, candidate, {});
      if (there) return there;
    }
    if (folder == folder.root_path()) break;
  }
  if (here || here.error().code != ErrorCode::kNotFound) return here;
  Error error = here.error();
  error.message += "\nthe run was started with the spec \"" + run.spec_path +
                   "\", which is neither here nor beside or above the database; go to the folder "
                   "in which that is its path";
  return Unexpected{std::move(error)};
}

namespace {

/// "cpu", or "cuda: NVIDIA H200, sm_90".
std::string device_name(DeviceKind device) {
  if (device == DeviceKind::kCpu) return "cpu";
  const auto devices = query_devices();
  if (!devices) return "cuda";
  const DeviceInfo& first = devices->front();
  return "cuda: " + first.name + str_format(", sm_%d%d", first.compute_major, first.compute_minor);
}

}  // namespace

db::CellRow make_cell_row(const ExperimentSpec& spec, const PlanInputs& inputs,
                          const Comparison& comparison, const PlannedCell& cell,
                          const PromptPool& pool, int64_t cores) {
  const StackSpec& stack = spec.stacks[cell.stack];
  const WorkloadSpec& workload = spec.workloads[comparison.workload];
  db::CellRow row;
  row.cell_hash = cell.hash;
  row.name = cell.name;
  row.comparison = comparison.label;
  row.stack = stack.name;
  row.stack_index = static_cast<int64_t>(cell.stack);
  row.engine = stack.engine;
  row.runtime = stack.runtime_text();
  row.weights = weight_scheme_name(stack.weights);
  row.linear = "auto";
  row.kv = stack.kv_text();
  row.parallel = stack.parallel();
  row.device = device_name(stack.device);
  row.threads =
      std::max<int64_t>(stack.num_threads > 0 ? stack.num_threads : cores, stack.tensor_parallel);
  row.concurrency_total = workload.concurrency;
  row.concurrency_per_instance = workload.concurrency;
  row.prompt_tokens = workload.prompt_tokens;
  row.output_tokens = workload.output_tokens;
  row.requests = workload.requests;
  row.sampling = to_string(workload.sampling);
  row.eos_policy = workload.ignore_eos ? "ignore" : "stop";
  row.prompt_pool = workload.prompts.filename().string();
  row.prompt_pool_hash = pool.hash;
  row.arrivals = workload.arrivals.label();
  row.slo_ttft_ns = slo_ns(workload.slo.ttft_ms);
  row.slo_tpot_ns = slo_ns(workload.slo.tpot_ms);
  row.slo_e2e_ns = slo_ns(workload.slo.e2e_ms);
  row.kv_cache_tokens = stack.kv_cache_tokens;
  row.prefill_chunk = stack.runtime.has(RuntimeFeature::kChunkedPrefill) ? stack.prefill_chunk : 0;
  row.timing_boundary = "submit_to_token_on_host";
  row.model = inputs.model_name;
  row.model_origin = inputs.model_origin;
  row.model_hash = inputs.model_hash;
  row.status = "planned";
  return row;
}

}  // namespace triptych
