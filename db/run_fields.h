// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// The columns of runs, cells and conclusions; see row_fields.h.
#pragma once

#include "db/row_fields.h"

namespace triptych::db {

template <Is<RunRow> R, class Visit>
void for_each_field(R& r, Visit&& visit) {
  visit("run_id", AssignedKey{r.run_id});
  visit("experiment", r.experiment);
  visit("question", r.question);
  visit("plan_hash", r.plan_hash);
  visit("spec_path", r.spec_path);
  visit("spec_text", r.spec_text);
  visit("seed", r.seed);
  visit("blocks_planned", r.blocks_planned);
  visit("started_utc", r.started_utc);
  visit("finished_utc", r.finished_utc);
  visit("status", r.status);
  visit("program_version", r.program_version);
  visit("git_sha", r.git_sha);
  visit("git_dirty", r.git_dirty);
  visit("compiler", r.compiler);
  visit("binary_hash", r.binary_hash);
  visit("cpu_model", r.cpu_model);
  visit("cores", r.cores);
  visit("memory_bytes", r.memory_bytes);
  visit("os_kernel", r.os_kernel);
  visit("gpu_name", r.gpu_name);
  visit("gpu_driver", r.gpu_driver);
  visit("read_bytes_per_s", r.read_bytes_per_s);
  visit("f32_flops_per_s", r.f32_flops_per_s);
  visit("interrupted", r.interrupted);
}

template <Is<CellRow> R, class Visit>
void for_each_field(R& r, Visit&& visit) {
  visit("cell_id", AssignedKey{r.cell_id});
  visit("run_id", r.run_id);
  visit("cell_hash", r.cell_hash);
  visit("name", r.name);
  visit("comparison", r.comparison);
  visit("stack", r.stack);
  visit("stack_index", r.stack_index);
  visit("engine", r.engine);
  visit("runtime", r.runtime);
  visit("weights", r.weights);
  visit("linear", r.linear);
  visit("kv", r.kv);
  visit("parallel", r.parallel);
  visit("device", r.device);
  visit("threads", r.threads);
  visit("concurrency_total", r.concurrency_total);
  visit("concurrency_per_instance", r.concurrency_per_instance);
  visit("prompt_tokens", r.prompt_tokens);
  visit("output_tokens", r.output_tokens);
  visit("requests", r.requests);
  visit("sampling", r.sampling);
  visit("eos_policy", r.eos_policy);
  visit("prompt_pool", r.prompt_pool);
  visit("prompt_pool_hash", r.prompt_pool_hash);
  visit("timing_boundary", r.timing_boundary);
  visit("model", r.model);
  visit("model_origin", r.model_origin);
  visit("model_hash", r.model_hash);
  visit("status", r.status);
  visit("reason", r.reason);
  visit("arrivals", r.arrivals);
  visit("slo_ttft_ns", r.slo_ttft_ns);
  visit("slo_tpot_ns", r.slo_tpot_ns);
  visit("slo_e2e_ns", r.slo_e2e_ns);
  visit("kv_cache_tokens", r.kv_cache_tokens);
  visit("prefill_chunk", r.prefill_chunk);
}

template <Is<SummaryRow> R, class Visit>
void for_each_field(R& r, Visit&& visit) {
  visit("cell_id", r.cell_id);
  visit("metric", r.metric);
  visit("median", r.median);
  visit("lo", Bound{r.lo, -kInfinity});
  visit("hi", Bound{r.hi, kInfinity});
  visit("blocks", r.blocks);
}

template <Is<DecompositionRow> R, class Visit>
void for_each_field(R& r, Visit&& visit) {
  visit("run_id", r.run_id);
  visit("comparison", r.comparison);
  visit("decomposition", r.decomposition);
  visit("method", r.method);
  visit("ordinal", r.ordinal);
  visit("factor_name", r.factor_name);
  visit("from_stack", r.from_stack);
  visit("to_stack", r.to_stack);
  visit("log_contribution", r.log_contribution);
  visit("log_lo", Bound{r.log_lo, -kInfinity});
  visit("log_hi", Bound{r.log_hi, kInfinity});
  visit("log_share", r.log_share);
  visit("share_lo", r.share_lo);
  visit("share_hi", r.share_hi);
  visit("log_total", r.log_total);
  visit("log_total_lo", Bound{r.log_total_lo, -kInfinity});
  visit("log_total_hi", Bound{r.log_total_hi, kInfinity});
  visit("blocks", r.blocks);
  visit("metric", r.metric);
  visit("confounded", r.confounded);
}

template <Is<ThreatRow> R, class Visit>
void for_each_field(R& r, Visit&& visit) {
  visit("run_id", r.run_id);
  visit("comparison", r.comparison);
  visit("code", r.code);
  visit("severity", r.severity);
  visit("message", r.message);
}

}  // namespace triptych::db
