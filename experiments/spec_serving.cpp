// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// The parts of a workload that say how requests come, how their tokens are chosen and what they are
// promised: arrivals, sampling and slo.
#include <array>
#include <limits>

#include "experiments/spec_sections.h"

namespace triptych {
namespace {

constexpr std::array<std::string_view, 4> kArrivalKeys = {"poisson", "trace", "speed", "lengths"};
constexpr std::array<std::string_view, 1> kArrivalWords = {"closed"};
constexpr std::array<std::string_view, 1> kSamplings = {"greedy"};
constexpr std::array<std::string_view, 4> kSamplingKeys = {"temperature", "top_k", "top_p", "seed"};
constexpr std::array<std::string_view, 3> kSloKeys = {"ttft_ms", "tpot_ms", "e2e_ms"};
constexpr double kLowestRate = 1e-6;
constexpr double kHighestRate = 1e6;
constexpr double kHighestMs = 1e9;

ArrivalSpec read_arrival(YamlReader& reader, const YamlValue& value,
                         const std::filesystem::path& folder) {
  const std::string what = "workload.arrivals";
  ArrivalSpec arrivals;
  if (value.kind == YamlValue::Kind::kScalar) {
    static_cast<void>(reader.word(value, what, kArrivalWords));
    return arrivals;
  }
  if (!reader.mapping(value, what, kArrivalKeys)) return arrivals;
  const YamlValue* poisson = value.find("poisson");
  const YamlValue* trace = value.find("trace");
  if ((poisson != nullptr) == (trace != nullptr)) {
    reader.error(value.place,
                 what + ": expected closed, {poisson: requests per second} or {trace: file}");
    return arrivals;
  }
  if (poisson != nullptr) {
    arrivals.kind = ArrivalSpec::Kind::kPoisson;
    arrivals.rate_per_s = reader.number(*poisson, what + ".poisson", kLowestRate, kHighestRate);
    for (const std::string_view key : {"speed", "lengths"}) {
      if (const YamlValue* extra = value.find(key)) {
        reader.error(extra->place, what + "." + std::string(key) + " is for traces only");
      }
    }
    return arrivals;
  }
  arrivals.kind = ArrivalSpec::Kind::kTrace;
  arrivals.trace = resolve_path(folder, reader.string(*trace, what + ".trace"));
  require_file(reader, *trace, what + ".trace", arrivals.trace);
  if (const YamlValue* speed = value.find("speed")) {
    arrivals.speed = reader.number(*speed, what + ".speed", kLowestRate, kHighestRate);
  }
  if (const YamlValue* lengths = value.find("lengths")) {
    arrivals.lengths = reader.boolean(*lengths, what + ".lengths");
  }
  return arrivals;
}

}  // namespace

std::vector<ArrivalSpec> read_arrivals(YamlReader& reader, const YamlValue& workload,
                                       const std::filesystem::path& folder) {
  const YamlValue* value = workload.find("arrivals");
  if (value == nullptr) return {ArrivalSpec{}};
  if (value->kind != YamlValue::Kind::kSequence) return {read_arrival(reader, *value, folder)};
  std::vector<ArrivalSpec> all;
  for (const YamlValue& item : value->items) all.push_back(read_arrival(reader, item, folder));
  if (all.empty()) reader.error(value->place, "workload.arrivals: the list is empty");
  return all;
}

SamplingParams read_sampling(YamlReader& reader, const YamlValue& workload) {
  SamplingParams params;
  const YamlValue* value = workload.find("sampling");
  if (value == nullptr) return params;
  if (value->kind != YamlValue::Kind::kMapping) {
    static_cast<void>(reader.word(*value, "workload.sampling", kSamplings));
    return params;
  }
  const std::string what = "workload.sampling";
  if (!reader.mapping(*value, what, kSamplingKeys)) return params;
  reader.require(*value, value->place, what, "temperature", kSamplingKeys);
  if (const YamlValue* temperature = value->find("temperature")) {
    params.temperature = static_cast<float>(reader.number(*temperature, what + ".temperature",
                                                          SamplingParams::kLowestTemperature,
                                                          SamplingParams::kHighestTemperature));
  }
  if (const YamlValue* top_k = value->find("top_k")) {
    params.top_k = static_cast<int32_t>(
        reader.integer(*top_k, what + ".top_k", 0, std::numeric_limits<int32_t>::max()));
  }
  if (const YamlValue* top_p = value->find("top_p")) {
    params.top_p = static_cast<float>(
        reader.number(*top_p, what + ".top_p", SamplingParams::kLowestTopP, 1.0));
  }
  if (const YamlValue* seed = value->find("seed")) {
    params.seed = static_cast<uint64_t>(
        reader.integer(*seed, what + ".seed", 0, std::numeric_limits<int64_t>::max()));
  }
  return params;
}

SloSpec read_slo(YamlReader& reader, const YamlValue& workload) {
  SloSpec slo;
  const YamlValue* section = workload.find("slo");
  if (section == nullptr || !reader.mapping(*section, "workload.slo", kSloKeys)) return slo;
  const auto read = [&](std::string_view key, std::optional<double>& value) {
    if (const YamlValue* given = section->find(key)) {
      value = reader.number(*given, "workload.slo." + std::string(key), 1e-3, kHighestMs);
    }
  };
  read("ttft_ms", slo.ttft_ms);
  read("tpot_ms", slo.tpot_ms);
  read("e2e_ms", slo.e2e_ms);
  if (section->entries.empty()) {
    reader.error(section->place, "workload.slo: expected ttft_ms, tpot_ms or e2e_ms");
  }
  return slo;
}

}  // namespace triptych
