// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "experiments/runner.h"

#include <algorithm>
#include <iostream>
#include <new>
#include <utility>

#include "base/hash.h"
#include "base/strings.h"
#include "base/units.h"
#include "db/store.h"
#include "engine/shard.h"
#include "experiments/command_stack.h"
#include "experiments/comparison.h"
#include "experiments/environment.h"
#include "experiments/held_cells.h"
#include "experiments/progress.h"
#include "experiments/run_lock.h"
#include "experiments/run_rows.h"
#include "experiments/threats.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/device_error.h"

#ifdef TRIPTYCH_HAS_CUDA
#include "kernels/cuda/ceilings.h"
#endif

namespace triptych {

namespace {

/// A comparison of the plan with its rows in the database, both in the same order.
struct Work {
  const Comparison* comparison = nullptr;
  std::vector<db::CellRow> cells;
};

Result<std::map<std::filesystem::path, PromptPool>> load_pools(const ExperimentSpec& spec) {
  std::map<std::filesystem::path, PromptPool> pools;
  for (const WorkloadSpec& workload : spec.workloads) {
    if (pools.contains(workload.prompts)) continue;
    TRIPTYCH_TRY(PromptPool pool, load_prompt_pool(workload.prompts));
    pools.emplace(workload.prompts, std::move(pool));
  }
  return pools;
}

Result<std::map<std::filesystem::path, ArrivalTrace>> load_traces(const ExperimentSpec& spec) {
  std::map<std::filesystem::path, ArrivalTrace> traces;
  for (const WorkloadSpec& workload : spec.workloads) {
    const std::filesystem::path& path = workload.arrivals.trace;
    if (workload.arrivals.kind != ArrivalSpec::Kind::kTrace || traces.contains(path)) continue;
    TRIPTYCH_TRY(ArrivalTrace trace, load_arrival_trace(path));
    traces.emplace(path, std::move(trace));
  }
  return traces;
}

/// Prompts that this model cannot read are bad input. A workload that is too long for it is not:
/// its cells become rows with the reason.
Status check_prompts(const ExperimentSpec& spec, const PreparedExperiment& prepared) {
  const Checkpoint& checkpoint = *prepared.checkpoint;
  for (WorkloadSpec workload : spec.workloads) {
    // Without arrivals all requests are alike to these checks, and thousands of long ones are not
    // made for nothing.
    if (workload.arrivals.kind == ArrivalSpec::Kind::kClosed) workload.requests = 1;
    const Result<WorkloadRequests> requests =
        build_requests(prepared.pools.at(workload.prompts), checkpoint.tokenizer().get(),
                       checkpoint.config(), workload);
    if (requests) {
      std::vector<Request> timed = requests->requests;
      TRIPTYCH_RETURN_IF_ERROR(set_arrivals(spec, prepared, workload, timed));
    } else if (requests.error().code == ErrorCode::kInvalidArgument) {
      return Unexpected{requests.error()};
    }
  }
  return {};
}

/// A stack whose ranks cannot divide the model's heads is a mistake of the spec, not of one cell.
Status check_parallel(const ExperimentSpec& spec, const ModelConfig& config) {
  for (const StackSpec& stack : spec.stacks) {
    const Status divides = check_tensor_parallel(config, stack.tensor_parallel);
    if (divides) continue;
    return fail(ErrorCode::kInvalidArgument,
                "stacks." + stack.name + ".parallel: " + divides.error().message,
                spec.where(stack.place));
  }
  return {};
}

/// One hash for all files: that of the file, or of the list of hashes when there are several; ""
/// without any.
template <class File>
std::string files_hash(const std::map<std::filesystem::path, File>& files) {
  std::vector<std::string> hashes;
  for (const auto& [path, file] : files) hashes.push_back(file.hash);
  if (hashes.empty()) return "";
  return hashes.size() == 1 ? hashes.front() : content_hash(join(hashes, ","));
}

Status open_model(const ExperimentSpec& spec, PreparedExperiment& prepared) {
  Result<std::shared_ptr<const Checkpoint>> checkpoint = open_checkpoint(spec.model);
  prepared.model = spec.model;
  // A model that is there but lacks a part, or may not be read, is a mistake and not a missing one.
  std::error_code ignored;
  const bool missing = std::filesystem::status(spec.model.path, ignored).type() ==
                       std::filesystem::file_type::not_found;
  if (!checkpoint && missing && spec.model_fallback) {
    prepared.fallback_reason = checkpoint.error().to_string();
    checkpoint = open_checkpoint(*spec.model_fallback);
    prepared.model = *spec.model_fallback;
  }
  if (!checkpoint) return Unexpected{checkpoint.error()};
  prepared.checkpoint = *checkpoint;
  return {};
}

/// "triptych resume --run 3", with the database when it is not the default one.
std::string command(const std::string& words, const RunOptions& options) {
  if (options.database == RunOptions{}.database) return "triptych " + words;
  return "triptych " + words + " --db " + options.database.string();
}

/// An open database that no other run writes to: whatever is unfinished in it was interrupted. The
/// lock must be destroyed last (see run_lock.cpp).
struct OpenDatabase {
  RunLock lock;
  db::Store store;
};

Result<OpenDatabase> open_database(const std::filesystem::path& path) {
  TRIPTYCH_TRY(db::Store store, db::Store::open(path, db::OpenMode::kReadWrite));
  TRIPTYCH_TRY(RunLock lock, RunLock::acquire(path));
  TRIPTYCH_RETURN_IF_ERROR(store.mark_interrupted());
  return OpenDatabase{std::move(lock), std::move(store)};
}

class Runner {
 public:
  Runner(const ExperimentSpec& spec, const PreparedExperiment& prepared, const RunOptions& options,
         db::Store& store)
      : spec_(spec),
        prepared_(prepared),
        options_(options),
        store_(store),
        progress_(progress_style(options.quiet), std::cerr) {}

  Result<RunOutcome> run() {
    TRIPTYCH_TRY(const std::vector<db::RunRow> runs, store_.runs(spec_.experiment));
    if (options_.force) return start(prepared_.plan.comparisons, "");
    for (const db::RunRow& run : runs) {
      if (run.status == "running" && run.plan_hash == prepared_.plan.hash) {
        return proceed(run, str_format("continued run %lld, which was not finished",
                                       static_cast<long long>(run.run_id)));
      }
    }
    return run_missing(runs);
  }

  /// Finishes a run of this very plan.
  Result<RunOutcome> proceed(const db::RunRow& run, const std::string& message) {
    progress_.note(message);
    TRIPTYCH_TRY(const std::vector<db::CellRow> rows, store_.cells(run.run_id));
    std::vector<Work> works;
    for (const Comparison& comparison : prepared_.plan.comparisons) {
      std::vector<db::CellRow> cells = rows_of(comparison, rows);
      if (!cells.empty()) works.push_back({&comparison, std::move(cells)});
    }
    return execute(run, std::move(works));
  }

 private:
  /// A new run with the comparisons that no earlier run holds.
  Result<RunOutcome> run_missing(const std::vector<db::RunRow>& runs) {
    std::vector<Comparison> missing;
    std::map<int64_t, HeldCells> held;  // by run
    std::vector<std::vector<db::CellRow>> rows_of_runs;
    for (const db::RunRow& run : runs) {
      TRIPTYCH_TRY(rows_of_runs.emplace_back(), store_.cells(run.run_id));
    }
    for (const Comparison& comparison : prepared_.plan.comparisons) {
      const db::RunRow* holder = nullptr;  // the newest that measured all, else the newest
      std::vector<db::CellRow> found;
      for (size_t i = 0; i < runs.size() && !(holder != nullptr && all_done(found)); ++i) {
        if (!covers(runs[i])) continue;
        std::vector<db::CellRow> cells = rows_of(comparison, rows_of_runs[i]);
        if (cells.empty() || !finished(cells)) continue;
        if (holder != nullptr && !all_done(cells)) continue;
        holder = &runs[i];
        found = std::move(cells);
      }
      if (holder == nullptr) {
        missing.push_back(comparison);
        continue;
      }
      HeldCells& of_run = held[holder->run_id];
      of_run.run_id = holder->run_id;
      of_run.date = holder->finished_utc.value_or(holder->started_utc);
      of_run.cells.insert(of_run.cells.end(), found.begin(), found.end());
    }
    return run_beside(held, missing);
  }

  /// Runs what is missing; what is held counts as well for whether the whole plan is measured.
  Result<RunOutcome> run_beside(const std::map<int64_t, HeldCells>& held,
                                const std::vector<Comparison>& missing) {
    std::vector<std::string> texts;
    bool measured = true;
    for (const auto& [run_id, cells] : held) {
      texts.push_back(cells.to_string());
      measured = measured && all_done(cells.cells);
    }
    const std::string message = join(texts, ", ");
    if (missing.empty()) {
      return RunOutcome{RunEnd::kNothingToRun, held.rbegin()->first,
                        "nothing to run: " + message + "; --force measures again", measured};
    }
    TRIPTYCH_TRY(RunOutcome outcome, start(missing, measured ? message : ""));
    if (measured) return outcome;
    outcome.all_measured = false;
    outcome.message = message + (outcome.message.empty() ? "" : "\n" + outcome.message);
    return outcome;
  }

  /// Could `run` hold what this experiment asks for? Enough blocks, in the same order (drift is
  /// part of what a sequential run measures), and the same decompositions.
  [[nodiscard]] bool covers(const db::RunRow& run) const {
    if (run.plan_hash == prepared_.plan.hash) return true;
    if (run.blocks_planned < spec_.measure.blocks) return false;
    const Result<ExperimentSpec> earlier = stored_spec(run, options_.database);
    const auto same = [](const DecomposeSpec& a, const DecomposeSpec& b) {
      return a.name == b.name && a.path == b.path && a.corner == b.corner &&
             a.confounded == b.confounded;
    };
    return earlier && earlier->measure.interleaved == spec_.measure.interleaved &&
           std::ranges::equal(earlier->decompositions, spec_.decompositions, same);
  }

  Result<RunOutcome> start(const std::vector<Comparison>& comparisons, const std::string& message) {
    if (!message.empty()) progress_.note(message);
    const Environment environment = probe_.environment();
    db::RunRow run =
        make_run_row(spec_, prepared_.inputs, prepared_.plan, environment, build_info());
    std::vector<db::CellRow> rows;
    for (const Comparison& comparison : comparisons) {
      const PromptPool& pool = prepared_.pools.at(spec_.workloads[comparison.workload].prompts);
      for (const PlannedCell& cell : comparison.cells) {
        rows.push_back(
            make_cell_row(spec_, prepared_.inputs, comparison, cell, pool, environment.cores));
      }
    }
    TRIPTYCH_RETURN_IF_ERROR(store_.insert_run(run, rows));
    std::vector<Work> works;
    for (const Comparison& comparison : comparisons) {
      works.push_back({&comparison, rows_of(comparison, rows)});
    }
    return execute(run, std::move(works));
  }

  /// Whatever stops it, the run says that it can go on, and how.
  Result<RunOutcome> execute(const db::RunRow& run, std::vector<Work> works) {
    Result<RunOutcome> outcome = measure_works_in_memory(run, std::move(works));
    if (outcome && outcome->end != RunEnd::kInterrupted) return outcome;
    // What refuses this, a full disk, may be what stopped the run; then the next program marks it.
    static_cast<void>(store_.mark_interrupted());
    if (outcome) return outcome;
    Error error = outcome.error();
    error.message += "\n" + how_to_go_on(run);
    return Unexpected{std::move(error)};
  }

  /// What an engine takes is its cell's matter; this is about rows, requests and weights.
  Result<RunOutcome> measure_works_in_memory(const db::RunRow& run, std::vector<Work> works) {
    try {
      return measure_works(run, std::move(works));
    } catch (const std::bad_alloc&) {
      return fail(ErrorCode::kOutOfMemory, "out of memory");
    }
  }

  Result<RunOutcome> measure_works(db::RunRow run, std::vector<Work> works) {
    if (run.interrupted) TRIPTYCH_RETURN_IF_ERROR(store_.set_running(run.run_id));
    TRIPTYCH_RETURN_IF_ERROR(store_run_threats(run));
    TRIPTYCH_RETURN_IF_ERROR(measure_machine(run));
    std::erase_if(works, [](const Work& work) { return finished(work.cells); });
    int64_t passes = 0;
    for (const Work& work : works) {
      passes +=
          static_cast<int64_t>(work.cells.size()) * (spec_.measure.blocks + spec_.measure.warmup);
    }
    progress_.set_total(passes);
    WeightCache weights(prepared_.checkpoint);
    ModelShapes shapes(prepared_.checkpoint);
    RunContext context{spec_, prepared_, options_, store_, weights, shapes, progress_, probe_, run};
    for (size_t i = 0; i < works.size(); ++i) {
      if (context.interrupted()) return interrupted(run);
      TRIPTYCH_TRY(const ComparisonEnd end,
                   run_comparison(context, *works[i].comparison, works[i].cells));
      if (end == ComparisonEnd::kDeviceLost && !context.interrupted()) return device_lost(run);
      if (end != ComparisonEnd::kDone) return interrupted(run);
      weights.keep_only(schemes_of(std::span(works).subspan(i + 1)));
    }
    return finish(run);
  }

  [[nodiscard]] std::set<WeightScheme> schemes_of(std::span<const Work> works) const {
    std::set<WeightScheme> schemes;
    for (const Work& work : works) {
      for (const PlannedCell& cell : work.comparison->cells) {
        const StackSpec& stack = spec_.stacks[cell.stack];
        if (stack.builtin()) schemes.insert(stack.weights);
      }
    }
    return schemes;
  }

  Status store_run_threats(const db::RunRow& run) {
    TRIPTYCH_TRY(const std::vector<db::ThreatRow> stored, store_.threats(run.run_id));
    const bool known = std::any_of(stored.begin(), stored.end(), [](const db::ThreatRow& threat) {
      return threat.comparison.empty();
    });
    if (known) return {};
    const std::vector<db::ThreatRow> threats =
        run_threats({.run_id = run.run_id,
                     .cores = run.cores,
                     .load_average = probe_.load_average(),
                     .model_origin = prepared_.inputs.model_origin,
                     .fallback_reason = prepared_.fallback_reason});
    if (threats.empty()) return {};
    return store_.insert_results({}, {}, threats, {});
  }

  Status measure_machine(db::RunRow& run) {
    if (run.read_bytes_per_s > 0) return {};
    progress_.show("measuring read bandwidth and arithmetic rate", now_ns());
    const cpu::Ceilings ceilings = options_.measure_ceilings(spec_.device);
    run.read_bytes_per_s = ceilings.read_bytes_per_s;
    run.f32_flops_per_s = ceilings.f32_flops_per_s;
    return store_.set_ceilings(run.run_id, run.read_bytes_per_s, run.f32_flops_per_s);
  }

  /// Two lines for people.
  [[nodiscard]] std::string how_to_go_on(const db::RunRow& run) const {
    const auto id = static_cast<long long>(run.run_id);
    return str_format("run %lld keeps its finished blocks\ncontinue with: %s", id,
                      command(str_format("resume --run %lld", id), options_).c_str());
  }

  [[nodiscard]] RunOutcome interrupted(const db::RunRow& run) const {
    return {RunEnd::kInterrupted, run.run_id, "interrupted: " + how_to_go_on(run)};
  }

  [[nodiscard]] static RunOutcome device_lost(const db::RunRow& run) {
    return {RunEnd::kDeviceLost, run.run_id,
            str_format("the device is lost to this process; run %lld goes on in a fresh one",
                       static_cast<long long>(run.run_id))};
  }

  Result<RunOutcome> finish(const db::RunRow& run) {
    TRIPTYCH_TRY(const std::vector<db::CellRow> cells, store_.cells(run.run_id));
    const bool complete = all_done(cells);
    TRIPTYCH_RETURN_IF_ERROR(
        store_.finish_run(run.run_id, complete ? "complete" : "partial", utc_now()));
    return RunOutcome{complete ? RunEnd::kComplete : RunEnd::kPartial, run.run_id, "", complete};
  }

  const ExperimentSpec& spec_;
  const PreparedExperiment& prepared_;
  const RunOptions& options_;
  db::Store& store_;
  Progress progress_;
  SystemProbe probe_;
};

Result<db::RunRow> find_unfinished(const db::Store& store, std::optional<int64_t> run_id) {
  TRIPTYCH_TRY(const std::vector<db::RunRow> runs, store.runs(""));
  for (const db::RunRow& run : runs) {
    if (run_id ? run.run_id != *run_id : run.status != "running") continue;
    if (run.status == "running") return run;
    return fail(ErrorCode::kInvalidArgument,
                str_format("run %lld of '%s' is finished (%s)", static_cast<long long>(run.run_id),
                           run.experiment.c_str(), run.status.c_str()));
  }
  if (run_id) {
    return fail(ErrorCode::kNotFound,
                str_format("there is no run %lld", static_cast<long long>(*run_id)));
  }
  return fail(ErrorCode::kNotFound, "there is no unfinished run");
}

Status verify_unchanged(const db::RunRow& run, const std::vector<db::CellRow>& cells,
                        const PreparedExperiment& prepared) {
  std::string changed;
  if (run.binary_hash != prepared.inputs.binary_hash) changed = "the program was rebuilt";
  for (const db::CellRow& cell : cells) {
    if (!changed.empty()) break;
    if (cell.model_hash != prepared.inputs.model_hash) {
      changed = "the model is another one (" + cell.model_origin + ", now " +
                prepared.inputs.model_origin + ")";
    }
  }
  // What is left of the plan's inputs once program and model are the same.
  if (changed.empty() && run.plan_hash != prepared.plan.hash) {
    changed = prepared.inputs.command_hashes.empty()
                  ? "the prompts were changed"
                  : "the prompts or an external engine were changed";
  }
  if (changed.empty()) return {};
  return fail(
      ErrorCode::kInvalidArgument,
      str_format("run %lld cannot be continued: %s since it began, and its blocks would not "
                 "be comparable; start anew with: triptych run %s",
                 static_cast<long long>(run.run_id), changed.c_str(), run.spec_path.c_str()));
}

}  // namespace

cpu::Ceilings measure_device_ceilings(DeviceKind device) {
  if (device == DeviceKind::kCpu) {
    cpu::ThreadPool pool(cpu::available_cores());
    return cpu::measure_ceilings(pool);
  }
#ifdef TRIPTYCH_HAS_CUDA
  try {
    const CudaCeilings ceilings = measure_cuda_ceilings();
    return {ceilings.read_bytes_per_s, ceilings.f16_flops_per_s};
  } catch (const DeviceError&) {
    return {};  // no device: the cells say so, each with the reason
  }
#else
  return {};
#endif
}

Status set_arrivals(const ExperimentSpec& spec, const PreparedExperiment& prepared,
                    const WorkloadSpec& workload, std::span<Request> requests) {
  const auto trace = prepared.traces.find(workload.arrivals.trace);
  return schedule_arrivals(workload.arrivals,
                           trace == prepared.traces.end() ? nullptr : &trace->second,
                           spec.measure.seed, requests);
}

Result<PreparedExperiment> prepare_experiment(const ExperimentSpec& spec) {
  PreparedExperiment prepared;
  TRIPTYCH_RETURN_IF_ERROR(open_model(spec, prepared));
  TRIPTYCH_TRY(prepared.pools, load_pools(spec));
  TRIPTYCH_TRY(prepared.traces, load_traces(spec));
  TRIPTYCH_RETURN_IF_ERROR(check_parallel(spec, prepared.checkpoint->config()));
  TRIPTYCH_RETURN_IF_ERROR(check_prompts(spec, prepared));
  PlanInputs& inputs = prepared.inputs;
  inputs.model_hash = prepared.checkpoint->hash();
  inputs.model_name = prepared.checkpoint->config().name;
  inputs.model_origin = prepared.checkpoint->origin();
  inputs.model_is_fallback = !prepared.fallback_reason.empty();
  inputs.prompt_pool_hash = files_hash(prepared.pools);
  inputs.arrival_trace_hash = files_hash(prepared.traces);
  TRIPTYCH_TRY(inputs.binary_hash, file_hash("/proc/self/exe"));
  for (const StackSpec& stack : spec.stacks) {
    if (stack.builtin()) continue;
    TRIPTYCH_TRY(inputs.command_hashes[stack.name], command_hash(stack.command));
  }
  TRIPTYCH_TRY(prepared.plan, make_plan(spec, inputs));
  return prepared;
}

Result<RunOutcome> run_experiment(const ExperimentSpec& spec, const RunOptions& options) {
  TRIPTYCH_TRY(const PreparedExperiment prepared, prepare_experiment(spec));
  TRIPTYCH_TRY(OpenDatabase database, open_database(options.database));
  return Runner(spec, prepared, options, database.store).run();
}

Result<RunOutcome> resume_run(std::optional<int64_t> run_id, const RunOptions& options) {
  if (!std::filesystem::exists(options.database)) {
    return fail(ErrorCode::kNotFound, "there is no such database", options.database.string());
  }
  {  // Read-only first: where nothing can be resumed nothing is written, not even a schema.
    TRIPTYCH_TRY(const db::Store store, db::Store::open(options.database, db::OpenMode::kReadOnly));
    TRIPTYCH_RETURN_IF_ERROR(find_unfinished(store, run_id));
  }
  TRIPTYCH_TRY(OpenDatabase database, open_database(options.database));
  TRIPTYCH_TRY(const db::RunRow run, find_unfinished(database.store, run_id));
  TRIPTYCH_TRY(const ExperimentSpec spec, stored_spec(run, options.database));
  TRIPTYCH_TRY(const PreparedExperiment prepared, prepare_experiment(spec));
  TRIPTYCH_TRY(const std::vector<db::CellRow> cells, database.store.cells(run.run_id));
  TRIPTYCH_RETURN_IF_ERROR(verify_unchanged(run, cells, prepared));
  return Runner(spec, prepared, options, database.store)
      .proceed(run, str_format("continued run %lld", static_cast<long long>(run.run_id)));
}

}  // namespace triptych
