// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "experiments/comparison.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "base/strings.h"
#include "base/units.h"
#include "experiments/agreement.h"
#include "experiments/command_stack.h"
#include "experiments/summary.h"
#include "experiments/threats.h"
#include "experiments/traced_pass.h"

namespace triptych {

namespace {

/// One cell while its comparison runs.
struct ActiveCell {
  CellMeasurement data;
  std::unique_ptr<Engine> engine;  ///< Null once the cell cannot go on.
  std::set<int64_t> stored_blocks;
  std::optional<Agreement> agreement;
  bool ran = false;  ///< This engine has run a whole pass, so its peak memory is known.
  [[nodiscard]] bool live() const { return engine != nullptr; }
};

class ComparisonRun {
 public:
  ComparisonRun(RunContext& context, const Comparison& comparison)
      : context_(context),
        comparison_(comparison),
        workload_(context.spec.workloads[comparison.workload]) {}

  Result<ComparisonEnd> run(std::span<const db::CellRow> rows) {
    TRIPTYCH_RETURN_IF_ERROR(load_state(rows));
    TRIPTYCH_TRY(const ComparisonEnd end, measure());
    // A later process takes up what is not at its end; where nothing is, it has nothing to do.
    const bool over = std::none_of(cells_.begin(), cells_.end(),
                                   [](const ActiveCell& cell) { return cell.data.usable(); });
    if (end == ComparisonEnd::kDone || (end == ComparisonEnd::kDeviceLost && over)) {
      TRIPTYCH_RETURN_IF_ERROR(store_results());
    }
    return end;
  }

 private:
  Result<ComparisonEnd> measure() {
    TRIPTYCH_RETURN_IF_ERROR(build_requests_and_engines());
    if (context_.interrupted()) return ComparisonEnd::kInterrupted;
    if (ended()) return *ended_;
    TRIPTYCH_RETURN_IF_ERROR(compare_outputs());
    if (ended()) return *ended_;
    TRIPTYCH_TRY(ComparisonEnd end, run_blocks());
    if (end != ComparisonEnd::kDone) return end;
    TRIPTYCH_TRY(end, run_traces());
    if (end != ComparisonEnd::kDone) return end;
    TRIPTYCH_RETURN_IF_ERROR(store_facts());
    return ended_.value_or(ComparisonEnd::kDone);
  }

  [[nodiscard]] bool ended() const { return ended_.has_value(); }

  /// Rows, blocks and facts that an earlier process left.
  Status load_state(std::span<const db::CellRow> rows) {
    TRIPTYCH_TRY(const std::vector<db::CellFactsRow> facts,
                 context_.store.facts(context_.run.run_id));
    for (size_t i = 0; i < rows.size(); ++i) {
      ActiveCell cell;
      cell.data.row = rows[i];
      cell.data.stack = context_.spec.stacks[comparison_.cells[i].stack];
      TRIPTYCH_TRY(cell.data.blocks, context_.store.blocks(rows[i].cell_id));
      for (const db::BlockRow& block : cell.data.blocks) {
        cell.stored_blocks.insert(block.block_index);
      }
      context_.progress.drop_passes(static_cast<int64_t>(cell.stored_blocks.size()));
      for (const db::CellFactsRow& row : facts) {
        if (row.cell_id == rows[i].cell_id) cell.data.facts = row;
      }
      cells_.push_back(std::move(cell));
    }
    return {};
  }

  /// The cell stops here, with its reason in the database; unless the user cut it off, which says
  /// nothing about it. With the device every other cell of this process is at its end as well, but
  /// not the fault of any: they are left as they are.
  Status retire(ActiveCell& cell, const Error& error) {
    if (context_.interrupted() && !cell.data.stack.builtin()) {
      cell.engine.reset();
      ended_ = ComparisonEnd::kInterrupted;
      return {};
    }
    if (error.code == ErrorCode::kDeviceLost) ended_ = ComparisonEnd::kDeviceLost;
    const bool cannot =
        error.code == ErrorCode::kUnsupported || error.code == ErrorCode::kOutOfMemory;
    cell.data.row.status = cannot ? "skipped" : "failed";
    cell.data.row.reason = error.to_string();
    cell.engine.reset();
    context_.progress.drop_passes(
        static_cast<int64_t>(comparison_.order.size() - cell.stored_blocks.size()));
    context_.progress.note(cell.data.row.name + " " + cell.data.row.status + ": " +
                           cell.data.row.reason);
    return context_.store.set_cell_status(cell.data.row.cell_id, cell.data.row.status,
                                          cell.data.row.reason);
  }

  /// Cells that cannot run end before anything is loaded or built for them.
  Status skip_refused() {
    for (ActiveCell& cell : cells_) {
      if (!cell.data.usable()) continue;
      const Status runs =
          check_cell(context_.shapes, cell.data.stack, workload_, context_.options.memory_bytes);
      if (!runs) TRIPTYCH_RETURN_IF_ERROR(retire(cell, runs.error()));
    }
    return {};
  }

  Status build_requests_and_engines() {
    TRIPTYCH_RETURN_IF_ERROR(skip_refused());
    if (std::none_of(cells_.begin(), cells_.end(),
                     [](const ActiveCell& cell) { return cell.data.usable(); })) {
      return {};
    }
    const PromptPool& pool = context_.prepared.pools.at(workload_.prompts);
    const Checkpoint& checkpoint = *context_.prepared.checkpoint;
    Result<WorkloadRequests> requests =
        build_requests(pool, checkpoint.tokenizer().get(), checkpoint.config(), workload_);
    if (requests) {
      requests_ = std::move(*requests);
      timed_requests_ = requests_.requests;
      TRIPTYCH_RETURN_IF_ERROR(
          set_arrivals(context_.spec, context_.prepared, workload_, timed_requests_));
    }
    for (ActiveCell& cell : cells_) {
      if (!cell.data.usable()) continue;
      if (!requests) {
        TRIPTYCH_RETURN_IF_ERROR(retire(cell, requests.error()));
        continue;
      }
      context_.progress.show("loading " + cell.data.row.name, now_ns());
      Result<std::unique_ptr<Engine>> engine = build_engine(cell.data.stack);
      if (engine) {
        cell.engine = std::move(*engine);
      } else {
        TRIPTYCH_RETURN_IF_ERROR(retire(cell, engine.error()));
        if (ended()) return {};
      }
    }
    return {};
  }

  Result<std::unique_ptr<Engine>> build_engine(const StackSpec& stack) {
    if (!stack.builtin()) return build_command_engine(stack);
    TRIPTYCH_TRY(auto weights, context_.weights.load(stack.weights));
    return context_.options.make_engine(std::move(weights), engine_options(stack, workload_));
  }

  Result<std::unique_ptr<Engine>> build_command_engine(const StackSpec& stack) {
    TRIPTYCH_TRY(auto shapes, context_.shapes.weights(stack.weights));
    TRIPTYCH_TRY(const auto model,
                 external_model_path(
                     context_.prepared.model, *context_.prepared.checkpoint,
                     {.cache = context_.options.cache,
                      .interrupted = context_.options.interrupted,
                      .note = [this](std::string_view text) { context_.progress.note(text); }}));
    TRIPTYCH_TRY(CommandEngineOptions options,
                 command_engine_options(stack, workload_, std::move(shapes), model));
    options.interrupted = context_.options.interrupted;
    return make_command_engine(options);
  }

  Status compare_outputs() {
    if (cells_.empty() || !cells_.front().live()) return {};  // no baseline: threats say so
    std::vector<Engine*> engines;
    std::vector<ActiveCell*> owners;
    for (ActiveCell& cell : cells_) {
      if (!cell.live()) continue;
      engines.push_back(cell.engine.get());
      owners.push_back(&cell);
    }
    const auto facts_stored = [](const ActiveCell* cell) { return cell->data.facts.has_value(); };
    if (std::all_of(owners.begin(), owners.end(), facts_stored)) return {};
    context_.progress.show(comparison_.label + "  comparing outputs", now_ns());
    const std::vector<AgreementResult> results = measure_agreement(engines, requests_.requests);
    const auto lost = std::ranges::find_if(results, &AgreementResult::device_lost);
    if (lost != results.end()) {
      return retire(*owners[static_cast<size_t>(lost - results.begin())],
                    Error{ErrorCode::kDeviceLost, lost->error, "comparing outputs"});
    }
    const bool baseline_failed = !results.front().agreement;
    for (size_t i = 0; i < owners.size(); ++i) {
      owners[i]->agreement = results[i].agreement;
      if (results[i].agreement || (baseline_failed && i > 0)) continue;
      TRIPTYCH_RETURN_IF_ERROR(
          retire(*owners[i], Error{ErrorCode::kCorrupt, results[i].error, "comparing outputs"}));
    }
    return {};
  }

  [[nodiscard]] std::vector<size_t> missing_in(int64_t block) const {
    std::vector<size_t> missing;
    for (const size_t index : comparison_.order[static_cast<size_t>(block)]) {
      const ActiveCell& cell = cells_[index];
      if (cell.live() && !cell.stored_blocks.contains(block)) missing.push_back(index);
    }
    return missing;
  }

  /// One untimed pass of a cell.
  Status warm_up(ActiveCell& cell) {
    context_.progress.show(comparison_.label + "  warm-up  " + cell.data.row.stack, now_ns());
    const int64_t start = now_ns();
    const auto result = cell.engine->generate(requests_.requests, nullptr);
    context_.progress.finish_pass(now_ns() - start);
    cell.ran = true;
    return result ? Status{} : retire(cell, result.error());
  }

  Result<ComparisonEnd> run_blocks() {
    bool warm = false;
    for (int64_t block = 0; block < static_cast<int64_t>(comparison_.order.size()); ++block) {
      if (missing_in(block).empty()) continue;
      if (!warm) {
        TRIPTYCH_TRY(const ComparisonEnd end, warm_up_all());
        if (end != ComparisonEnd::kDone) return end;
        warm = true;
      }
      TRIPTYCH_TRY(const ComparisonEnd end, run_block(block));
      if (end != ComparisonEnd::kDone) return end;
    }
    return ComparisonEnd::kDone;
  }

  Result<ComparisonEnd> warm_up_all() {
    for (int64_t pass = 0; pass < context_.spec.measure.warmup; ++pass) {
      for (ActiveCell& cell : cells_) {
        if (!cell.live()) continue;
        if (context_.interrupted()) return ComparisonEnd::kInterrupted;
        TRIPTYCH_RETURN_IF_ERROR(warm_up(cell));
        if (ended()) return *ended_;
      }
    }
    return ComparisonEnd::kDone;
  }

  /// All missing cells of one block, stored together or not at all.
  Result<ComparisonEnd> run_block(int64_t block) {
    std::vector<db::BlockRow> rows;
    std::vector<ActiveCell*> owners;
    for (const size_t index : missing_in(block)) {
      if (context_.interrupted()) return ComparisonEnd::kInterrupted;
      ActiveCell& cell = cells_[index];
      Result<db::BlockRow> row = timed_pass(cell, block);
      if (!row) {
        TRIPTYCH_RETURN_IF_ERROR(retire(cell, row.error()));
        if (ended()) return *ended_;
        continue;
      }
      const std::vector<size_t>& order = comparison_.order[static_cast<size_t>(block)];
      cell.ran = true;
      row->cell_id = cell.data.row.cell_id;
      row->block_index = block;
      row->order_index = std::find(order.begin(), order.end(), index) - order.begin();
      rows.push_back(std::move(*row));
      owners.push_back(&cell);
    }
    if (rows.empty()) return ComparisonEnd::kDone;
    TRIPTYCH_RETURN_IF_ERROR(context_.store.insert_block(rows));
    for (size_t i = 0; i < rows.size(); ++i) {
      owners[i]->stored_blocks.insert(block);
      owners[i]->data.blocks.push_back(std::move(rows[i]));
    }
    return ComparisonEnd::kDone;
  }

  Result<db::BlockRow> timed_pass(ActiveCell& cell, int64_t block) {
    context_.progress.show(comparison_.label +
                               str_format("  block %lld/%zu  ", static_cast<long long>(block + 1),
                                          comparison_.order.size()) +
                               cell.data.row.stack,
                           now_ns());
    const double load = context_.probe.load_average();
    const std::string started = utc_now();
    TRIPTYCH_TRY(const GenerateResult result, cell.engine->generate(timed_requests_, nullptr));
    TRIPTYCH_TRY(db::BlockRow row, make_block_row(result, timed_requests_));
    row.started_utc = started;
    row.load_average = load;
    row.cpu_mhz = context_.probe.cpu_mhz();  // now, while the cores still run at the pass's clock
    context_.progress.finish_pass(row.wall_ns);
    return row;
  }

  Result<ComparisonEnd> run_traces() {
    for (ActiveCell& cell : cells_) {
      if (!cell.live() || context_.spec.measure.trace_steps == 0) continue;
      if (!is_traceable(*cell.engine)) continue;
      if (context_.interrupted()) return ComparisonEnd::kInterrupted;
      TRIPTYCH_TRY(cell.data.trace, context_.store.trace(cell.data.row.cell_id));
      if (cell.data.trace) continue;
      if (!cell.ran) {  // an earlier process ran the blocks; this one has not loaded its kernels
        TRIPTYCH_RETURN_IF_ERROR(warm_up(cell));
        if (ended()) return *ended_;
        if (!cell.live()) continue;
      }
      context_.progress.show(comparison_.label + "  tracing  " + cell.data.row.stack, now_ns());
      Result<db::TraceRow> trace =
          traced_pass(*cell.engine, requests_.requests, context_.spec.measure.trace_steps,
                      cell.data.row.cell_id);
      if (!trace && context_.interrupted() && !cell.data.stack.builtin()) {
        return ComparisonEnd::kInterrupted;
      }
      if (!trace && trace.error().code == ErrorCode::kDeviceLost) {
        TRIPTYCH_RETURN_IF_ERROR(retire(cell, trace.error()));
        return *ended_;
      }
      if (!trace) {  // its times stand without a trace; the report says what is missing
        cell.data.trace_error = trace.error().to_string();
        continue;
      }
      TRIPTYCH_RETURN_IF_ERROR(context_.store.insert_trace(*trace));
      trace->activities.clear();  // stored; the results need only what was made of them
      cell.data.trace = std::move(*trace);
    }
    return ComparisonEnd::kDone;
  }

  /// Time that one decode step takes at least, with half of the output written.
  [[nodiscard]] double floor_ns(const Engine& engine) const {
    const auto batch =
        std::min(workload_.concurrency, static_cast<int64_t>(requests_.requests.size()));
    const KernelCost cost =
        engine.decode_step_cost(batch, workload_.prompt_tokens + workload_.output_tokens / 2);
    const double read = context_.run.read_bytes_per_s;
    const double compute = context_.run.f32_flops_per_s;
    return 1e9 * std::max(read > 0 ? static_cast<double>(cost.bytes()) / read : 0,
                          compute > 0 ? static_cast<double>(cost.flops) / compute : 0);
  }

  Status store_facts() {
    for (ActiveCell& cell : cells_) {
      if (cell.live() && !cell.data.facts && !cell.ran) {
        TRIPTYCH_RETURN_IF_ERROR(warm_up(cell));  // an earlier process ran the blocks
        if (ended()) return {};
      }
      if (!cell.live() || cell.data.facts) continue;
      db::CellFactsRow facts;
      facts.cell_id = cell.data.row.cell_id;
      facts.linear = cell.engine->kernel_choice(workload_.concurrency);
      facts.weight_bytes = cell.engine->memory().weight_bytes;
      facts.peak_bytes = cell.engine->memory().peak_bytes();
      facts.floor_ns_per_step = floor_ns(*cell.engine);
      if (cell.agreement) {
        facts.token_agreement = cell.agreement->token_agreement;
        facts.max_logit_error = cell.agreement->max_logit_error;
        facts.perplexity = cell.agreement->perplexity;
      }
      if (cell.data.trace)
        facts.trace_dilation = trace_dilation(*cell.data.trace, cell.data.blocks);
      TRIPTYCH_RETURN_IF_ERROR(context_.store.insert_facts(facts));
      cell.data.facts = facts;
    }
    return {};
  }

  Status store_results() {
    const BootstrapOptions bootstrap{.seed = context_.spec.measure.seed};
    std::vector<CellMeasurement> cells;
    std::vector<int64_t> done;
    std::vector<db::SummaryRow> summaries;
    for (ActiveCell& cell : cells_) {
      if (cell.live()) {
        done.push_back(cell.data.row.cell_id);
        const std::vector<db::SummaryRow> rows = summarize(cell.data, bootstrap);
        summaries.insert(summaries.end(), rows.begin(), rows.end());
      }
      cells.push_back(std::move(cell.data));
    }
    std::vector<db::DecompositionRow> decompositions;
    for (const DecomposeSpec& spec : context_.spec.decompositions) {
      TRIPTYCH_TRY(const auto rows, decompose_cells(spec, cells, bootstrap));
      decompositions.insert(decompositions.end(), rows.begin(), rows.end());
    }
    const std::vector<db::ThreatRow> threats =
        comparison_threats({.run_id = context_.run.run_id,
                            .label = comparison_.label,
                            .cores = context_.run.cores,
                            .synthetic_tokens = requests_.synthetic_tokens,
                            .cells = cells,
                            .specs = context_.spec.decompositions,
                            .decompositions = decompositions});
    return context_.store.insert_results(summaries, decompositions, threats, done);
  }

  RunContext& context_;
  const Comparison& comparison_;
  const WorkloadSpec& workload_;
  WorkloadRequests requests_;            // what is compared, warmed up with and traced: no waiting
  std::vector<Request> timed_requests_;  // the same with their arrival times
  std::vector<ActiveCell> cells_;
  /// Set once this process can do no more: the device is lost, or an external engine stopped
  /// because the user wants the run to stop.
  std::optional<ComparisonEnd> ended_;
};

}  // namespace

Result<std::shared_ptr<const ModelWeights>> WeightCache::load(WeightScheme scheme) {
  const auto found = weights_.find(scheme);
  if (found != weights_.end()) return found->second;
  TRIPTYCH_TRY(auto weights, load_weights(checkpoint_, scheme));
  weights_.emplace(scheme, weights);
  return weights;
}

void WeightCache::keep_only(const std::set<WeightScheme>& schemes) {
  std::erase_if(weights_, [&](const auto& entry) { return !schemes.contains(entry.first); });
}

Result<db::BlockRow> make_block_row(const GenerateResult& result,
                                    std::span<const Request> requests) {
  db::BlockRow row;
  row.wall_ns = result.end_ns - result.start_ns;
  row.decode_steps = result.decode_steps;
  row.prefill_steps = result.prefill_steps;
  row.device_wait_ns = result.device_wait_ns;
  row.decode_host_ns = result.decode_host_ns;
  row.prefill_host_ns = result.prefill_host_ns;
  if (row.wall_ns <= 0 || result.requests.size() != requests.size()) {
    return fail(ErrorCode::kCorrupt, "the engine answered without time or with other requests");
  }
  for (size_t i = 0; i < result.requests.size(); ++i) {
    const RequestResult& answer = result.requests[i];
    if (answer.tokens.empty() || answer.token_ns.size() != answer.tokens.size()) {
      return fail(ErrorCode::kCorrupt, str_format("the engine gave no token for request %zu", i));
    }
    if (answer.admit_ns < answer.submit_ns || answer.token_ns.front() < answer.admit_ns ||
        !std::is_sorted(answer.token_ns.begin(), answer.token_ns.end())) {
      return fail(ErrorCode::kCorrupt, str_format("request %zu: times run backwards", i));
    }
    db::RequestRow request;
    request.request_index = static_cast<int64_t>(i);
    request.prompt_tokens = static_cast<int64_t>(requests[i].prompt.size());
    request.output_tokens = static_cast<int64_t>(answer.tokens.size());
    request.ttft_ns = answer.token_ns.front() - answer.submit_ns;
    request.e2e_ns = answer.token_ns.back() - answer.submit_ns;
    request.submit_ns = answer.submit_ns - result.start_ns;
    request.queue_ns = answer.admit_ns - answer.submit_ns;
    request.preemptions = answer.preemptions;
    for (size_t k = 1; k < answer.token_ns.size(); ++k) {
      request.itl_ns.push_back(answer.token_ns[k] - answer.token_ns[k - 1]);
    }
    if (!request.itl_ns.empty()) {
      request.tpot_ns = static_cast<double>(answer.token_ns.back() - answer.token_ns.front()) /
                        static_cast<double>(request.itl_ns.size());
    }
    row.output_tokens += request.output_tokens;
    row.requests.push_back(std::move(request));
  }
  return row;
}

Result<ComparisonEnd> run_comparison(RunContext& context, const Comparison& comparison,
                                     std::span<const db::CellRow> cells) {
  return ComparisonRun(context, comparison).run(cells);
}

}  // namespace triptych
