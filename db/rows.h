// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// Rows of the results database as plain structs. Units are in the names; NULL is std::optional.
// The SQL definition, with a comment per column, is db/schema.sql.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace triptych::db {

/// One invocation of `triptych run` or `resume` on one experiment.
struct RunRow {
  int64_t run_id = 0;  ///< 0 before insertion.
  std::string experiment{};
  std::string question{};
  std::string plan_hash{};  ///< Identity of cells, blocks and seed.
  std::string spec_path{};  ///< As given by the user.
  std::string spec_text{};  ///< The YAML after --set, so that resume needs no file.
  int64_t seed = 0;
  int64_t blocks_planned = 0;
  std::string started_utc{};
  std::optional<std::string> finished_utc{};
  std::string status{};  ///< "running", "complete", "partial" (some cells failed or skipped).
  std::string program_version{};
  std::string git_sha{};  ///< Of the build; "unknown" outside a checkout.
  bool git_dirty = false;
  std::string compiler{};  ///< Name, version, flags.
  std::string binary_hash{};
  std::string cpu_model{};
  int64_t cores = 0;
  int64_t memory_bytes = 0;
  std::string os_kernel{};
  std::string gpu_name{};  ///< "" without a GPU.
  std::string gpu_driver{};
  double read_bytes_per_s = 0;  ///< Measured at the start of the run.
  double f32_flops_per_s = 0;
  bool interrupted = false;  ///< It is "running", but its program has ended.

  /// What people are told: `status`, or "interrupted".
  [[nodiscard]] std::string state() const {
    return status == "running" && interrupted ? "interrupted" : status;
  }
};

/// One stack at one workload point. Every axis that could confound a comparison is a column.
struct CellRow {
  int64_t cell_id = 0;
  int64_t run_id = 0;
  std::string cell_hash{};   ///< Of stack, workload, inputs and binary.
  std::string name{};        ///< "full@c=1,prompt=32,output=64": unique in an experiment.
  std::string comparison{};  ///< "c=1,prompt=32,output=64": cells that are interleaved together.
  std::string stack{};
  int64_t stack_index = 0;  ///< Order of the stacks in the spec.
  std::string engine{};     ///< "builtin", "command", ...
  std::string runtime{};    ///< Feature names joined by '+', or "eager".
  std::string weights{};
  std::string linear{};  ///< Kernel chosen by the dispatcher for each matrix.
  std::string kv{};
  std::string parallel{};  ///< "tp=1,instances=1,..."
  std::string device{};    ///< "cpu" or the GPU's name.
  int64_t threads = 0;
  int64_t concurrency_total = 0;
  int64_t concurrency_per_instance = 0;
  int64_t prompt_tokens = 0;
  int64_t output_tokens = 0;
  int64_t requests = 0;
  std::string sampling{};     ///< "greedy" or "temperature=...,top_k=...,top_p=...,seed=...".
  std::string eos_policy{};   ///< "ignore" or "stop".
  std::string prompt_pool{};  ///< File name.
  std::string prompt_pool_hash{};
  std::string timing_boundary{};  ///< "submit_to_token_on_host".
  std::string model{};
  std::string model_origin{};
  std::string model_hash{};
  std::string status{};                  ///< "planned", "done", "failed", "skipped".
  std::string reason{};                  ///< Why, when failed or skipped.
  std::string arrivals = "closed";       ///< "closed", "poisson:4/s", "trace:<file>".
  std::optional<int64_t> slo_ttft_ns{};  ///< Promised; none: no promise.
  std::optional<int64_t> slo_tpot_ns{};
  std::optional<int64_t> slo_e2e_ns{};
  int64_t kv_cache_tokens = 0;  ///< The KV budget; 0 = enough for every slot.
  int64_t prefill_chunk = 0;    ///< Prompt tokens a step; 0 = whole prompts.
};

/// How a cell served, over all requests of its timed passes. A row of v_serving.
struct ServingRow {
  int64_t cell_id = 0;
  int64_t requests = 0;
  double requests_per_s = 0;
  std::optional<double> slo_attainment{};  ///< Share of requests that kept every promise.
  std::optional<double> goodput_per_s{};   ///< Those requests per second.
  int64_t preemptions = 0;
};
/// Percentiles over the requests of a cell. A row of v_latency.
struct LatencyRow {
  int64_t cell_id = 0;
  std::string metric{};  ///< "queue", "ttft", "tpot", "itl", "e2e".
  int64_t samples = 0;
  double p50_ns = 0;
  double p90_ns = 0;
  double p99_ns = 0;
};

/// What was found out about a cell before and beside its timed blocks.
struct CellFactsRow {
  int64_t cell_id = 0;
  std::string linear{};          ///< Kernel chosen for each matrix.
  int64_t weight_bytes = 0;      ///< 0: not known; the views say NULL.
  int64_t peak_bytes = 0;        ///< Weights + KV + activations at their highest; 0 as above.
  double floor_ns_per_step = 0;  ///< max(bytes / read rate, flops / rate) of a decode step.
  std::optional<double> token_agreement{};  ///< Share of positions whose argmax is the baseline's.
  std::optional<double> max_logit_error{};  ///< Against the baseline, teacher-forced.
  std::optional<double> perplexity{};       ///< On the prompts and the baseline's output.
  std::optional<double> trace_dilation{};   ///< Traced TPOT / timed TPOT.
};

struct RequestRow {
  int64_t request_index = 0;
  int64_t prompt_tokens = 0;
  int64_t output_tokens = 0;
  int64_t ttft_ns = 0;
  std::optional<double> tpot_ns{};  ///< (last - first) / (tokens - 1); NULL for one token.
  int64_t e2e_ns = 0;
  std::vector<int64_t> itl_ns{};       ///< Gaps between tokens; stored as a JSON array.
  std::optional<int64_t> submit_ns{};  ///< After the pass began; NULL before schema version 2.
  std::optional<int64_t> queue_ns{};   ///< Submission to first step; NULL before version 2.
  int64_t preemptions = 0;             ///< Times its KV cache was given up.
};

/// One timed pass of one cell in one block. (cell_id, block_index) is unique.
struct BlockRow {
  int64_t cell_id = 0;
  int64_t block_index = 0;
  int64_t order_index = 0;  ///< Position of the cell within the block.
  std::string started_utc{};
  int64_t wall_ns = 0;
  int64_t output_tokens = 0;
  int64_t decode_steps = 0;
  double load_average = 0;                 ///< One-minute load before the pass.
  std::optional<double> cpu_mhz{};         ///< Mean over cores, where readable.
  std::optional<int64_t> prefill_steps{};  ///< NULL before schema version 2.
  // NULL where they are not known: time that the host waited for its device, and its own work for
  // steps that only decoded and for steps that read prompts.
  std::optional<int64_t> device_wait_ns{};
  std::optional<int64_t> decode_host_ns{};
  std::optional<int64_t> prefill_host_ns{};
  std::vector<RequestRow> requests{};
};

struct ActivityRow {
  std::string kind{};
  std::string name{};
  int32_t device_id = 0;
  int32_t stream_id = 0;
  int64_t start_ns = 0;
  int64_t end_ns = 0;
  int64_t correlation_id = 0;
  int64_t bytes = 0;
};
struct PhaseRow {
  std::string kind{};  ///< "prefill", "decode".
  int64_t phase_index = 0;
  int64_t tokens = 0;
  int64_t start_ns = 0;
  int64_t end_ns = 0;
};
/// Time of one class on one device over the decode steps of a cell's newest trace.
struct CellTimeRow {
  int64_t cell_id = 0;
  int64_t window_ns = 0;  ///< Of all devices together; the classes sum to it.
  int64_t tokens = 0;     ///< Made in the window, times devices.
  int32_t device_id = 0;
  std::string time_class{};
  std::string group{};
  int64_t ns = 0;
};
/// Exclusive time of one class over the decode steps of a traced pass.
struct TokenTimeRow {
  int32_t device_id = 0;
  std::string time_class{};
  std::string group{};  ///< "compute", "coordination", "memcpy", "unclassified".
  int64_t ns = 0;
};
struct TraceRow {
  int64_t cell_id = 0;
  std::string source{};
  std::string clock{};
  int64_t window_ns = 0;  ///< Sum of the decode windows; the classes sum to it exactly.
  int64_t tokens = 0;     ///< Tokens produced in those windows.
  int64_t steps = 0;
  int64_t dropped = 0;
  int64_t zero_time = 0;
  int64_t inverted = 0;
  int64_t unlinked = 0;
  int64_t unclassified = 0;  ///< Number of records that no rule names.
  std::vector<PhaseRow> phases{};
  std::vector<ActivityRow> activities{};
  std::vector<TokenTimeRow> token_times{};
};

/// A statistic over the blocks of a cell: "tpot_ns", "ttft_ns", "tokens_per_s", "ns_per_token".
struct SummaryRow {
  int64_t cell_id = 0;
  std::string metric{};
  double median = 0;
  double lo = 0;  ///< 95 % interval; NULL in SQL when infinite.
  double hi = 0;
  int64_t blocks = 0;
};

struct DecompositionRow {
  int64_t run_id = 0;
  std::string comparison{};
  std::string decomposition{};  ///< Name in the spec: "builtin".
  std::string method{};         ///< "path", "path_reverse", "shapley", "interaction".
  int64_t ordinal = 0;
  std::string factor_name{};
  std::string from_stack{};
  std::string to_stack{};
  double log_contribution = 0;
  double log_lo = 0;
  double log_hi = 0;
  std::optional<double> log_share{};
  std::optional<double> share_lo{};
  std::optional<double> share_hi{};
  double log_total = 0;
  double log_total_lo = 0;
  double log_total_hi = 0;
  int64_t blocks = 0;
  std::string metric{};      ///< "ns_per_token".
  std::string confounded{};  ///< The spec's reason, "" when the rung changes one axis.
};

struct ThreatRow {
  int64_t run_id = 0;
  std::string comparison{};  ///< "" when it concerns the whole run.
  std::string code{};        ///< Stable word: "few_blocks", "outputs_differ", "machine_load", ...
  std::string severity{};    ///< "note", "warning", "serious".
  std::string message{};
};

}  // namespace triptych::db
