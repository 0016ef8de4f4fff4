// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// The columns of each row type, listed once for writing and reading. Private to this room. Here:
// what was measured; run_fields.h: what was planned and concluded.
//
// for_each_field(row, visit) calls visit(column, member) for each column of the row's own table in
// order. A key that SQLite assigns comes as AssignedKey; a bound of an interval as Bound.
#pragma once

#include <limits>
#include <string_view>
#include <type_traits>

#include "db/rows.h"

namespace triptych::db {

/// An INTEGER PRIMARY KEY: written as NULL, so that SQLite chooses it.
template <class T>
struct AssignedKey {
  T& value;
};
/// A bound of an interval: infinite in memory, NULL in SQL.
template <class T>
struct Bound {
  T& value;
  double when_null;
};
template <class T>
AssignedKey(T&) -> AssignedKey<T>;
template <class T>
Bound(T&, double) -> Bound<T>;

/// Row type R or const R, so that one list serves reading and writing.
template <class R, class Row>
concept Is = std::is_same_v<std::remove_const_t<R>, Row>;

template <class Row>
inline constexpr std::string_view kTable = "";
template <>
inline constexpr std::string_view kTable<RunRow> = "run";
template <>
inline constexpr std::string_view kTable<CellRow> = "cell";
template <>
inline constexpr std::string_view kTable<CellFactsRow> = "cell_facts";
template <>
inline constexpr std::string_view kTable<BlockRow> = "block";
template <>
inline constexpr std::string_view kTable<RequestRow> = "request";
template <>
inline constexpr std::string_view kTable<TraceRow> = "trace";
template <>
inline constexpr std::string_view kTable<PhaseRow> = "phase";
template <>
inline constexpr std::string_view kTable<TokenTimeRow> = "token_time";
template <>
inline constexpr std::string_view kTable<SummaryRow> = "summary";
template <>
inline constexpr std::string_view kTable<DecompositionRow> = "decomposition";
template <>
inline constexpr std::string_view kTable<ThreatRow> = "threat";

template <>
inline constexpr std::string_view kTable<ServingRow> = "v_serving";
template <>
inline constexpr std::string_view kTable<LatencyRow> = "v_latency";

inline constexpr double kInfinity = std::numeric_limits<double>::infinity();

template <Is<CellFactsRow> R, class Visit>
void for_each_field(R& r, Visit&& visit) {
  visit("cell_id", r.cell_id);
  visit("linear", r.linear);
  visit("weight_bytes", r.weight_bytes);
  visit("peak_bytes", r.peak_bytes);
  visit("floor_ns_per_step", r.floor_ns_per_step);
  visit("token_agreement", r.token_agreement);
  visit("max_logit_error", r.max_logit_error);
  visit("perplexity", r.perplexity);
  visit("trace_dilation", r.trace_dilation);
}

template <Is<BlockRow> R, class Visit>
void for_each_field(R& r, Visit&& visit) {
  visit("cell_id", r.cell_id);
  visit("block_index", r.block_index);
  visit("order_index", r.order_index);
  visit("started_utc", r.started_utc);
  visit("wall_ns", r.wall_ns);
  visit("output_tokens", r.output_tokens);
  visit("decode_steps", r.decode_steps);
  visit("load_average", r.load_average);
  visit("cpu_mhz", r.cpu_mhz);
  visit("prefill_steps", r.prefill_steps);
  visit("device_wait_ns", r.device_wait_ns);
  visit("decode_host_ns", r.decode_host_ns);
  visit("prefill_host_ns", r.prefill_host_ns);
}

template <Is<RequestRow> R, class Visit>
void for_each_field(R& r, Visit&& visit) {
  visit("request_index", r.request_index);
  visit("prompt_tokens", r.prompt_tokens);
  visit("output_tokens", r.output_tokens);
  visit("ttft_ns", r.ttft_ns);
  visit("tpot_ns", r.tpot_ns);
  visit("e2e_ns", r.e2e_ns);
  visit("itl_ns", r.itl_ns);
  visit("submit_ns", r.submit_ns);
  visit("queue_ns", r.queue_ns);
  visit("preemptions", r.preemptions);
}

template <Is<ServingRow> R, class Visit>
void for_each_field(R& r, Visit&& visit) {
  visit("cell_id", r.cell_id);
  visit("requests", r.requests);
  visit("requests_per_s", r.requests_per_s);
  visit("slo_attainment", r.slo_attainment);
  visit("goodput_per_s", r.goodput_per_s);
  visit("preemptions", r.preemptions);
}

template <Is<LatencyRow> R, class Visit>
void for_each_field(R& r, Visit&& visit) {
  visit("cell_id", r.cell_id);
  visit("metric", r.metric);
  visit("samples", r.samples);
  visit("p50_ns", r.p50_ns);
  visit("p90_ns", r.p90_ns);
  visit("p99_ns", r.p99_ns);
}

template <Is<CellTimeRow> R, class Visit>
void for_each_field(R& r, Visit&& visit) {
  visit("cell_id", r.cell_id);
  visit("window_ns", r.window_ns);
  visit("tokens", r.tokens);
  visit("device_id", r.device_id);
  visit("time_class", r.time_class);
  visit("class_group", r.group);
  visit("ns", r.ns);
}

template <Is<TraceRow> R, class Visit>
void for_each_field(R& r, Visit&& visit) {
  visit("cell_id", r.cell_id);
  visit("source", r.source);
  visit("clock", r.clock);
  visit("window_ns", r.window_ns);
  visit("tokens", r.tokens);
  visit("steps", r.steps);
  visit("dropped", r.dropped);
  visit("zero_time", r.zero_time);
  visit("inverted", r.inverted);
  visit("unlinked", r.unlinked);
  visit("unclassified", r.unclassified);
}

template <Is<PhaseRow> R, class Visit>
void for_each_field(R& r, Visit&& visit) {
  visit("kind", r.kind);
  visit("phase_index", r.phase_index);
  visit("tokens", r.tokens);
  visit("start_ns", r.start_ns);
  visit("end_ns", r.end_ns);
}

template <Is<TokenTimeRow> R, class Visit>
void for_each_field(R& r, Visit&& visit) {
  visit("device_id", r.device_id);
  visit("time_class", r.time_class);
  visit("class_group", r.group);
  visit("ns", r.ns);
}

}  // namespace triptych::db
