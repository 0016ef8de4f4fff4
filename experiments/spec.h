// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// ExperimentSpec: an experiment YAML, checked and typed. parse_spec() is the only YAML reader.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "engine/checkpoint.h"
#include "engine/command_engine.h"
#include "engine/communicator.h"
#include "engine/engine.h"
#include "engine/runtime_features.h"
#include "engine/weights.h"
#include "experiments/arrivals.h"
#include "experiments/yaml_tree.h"
#include "kernels/sampling.h"

namespace triptych {

/// What a stack with `engine: command` runs; empty for other engines.
struct CommandSpec {
  std::string adapter;            ///< A built-in one, or a .py file as the spec names it; or "".
  std::vector<std::string> argv;  ///< A program of the user's, if there is no adapter.
  std::string options = "{}";     ///< A JSON object for the engine.
  std::filesystem::path folder;   ///< Where it runs: that of the spec.
  CommandTimeouts timeouts;

  /// "hf_transformers {"mode":"eager"}": what takes the place of a runtime.
  [[nodiscard]] std::string text() const;
};

/// One stack: a choice on every axis.
struct StackSpec {
  std::string name;
  std::string engine = "builtin";
  CommandSpec command;
  RuntimeFeatures runtime;
  WeightScheme weights = WeightScheme::kF16;
  KvFormat kv = KvFormat::kF16;
  int num_threads = 0;          ///< Of all ranks together; 0 = all cores.
  int64_t kv_cache_tokens = 0;  ///< The KV budget; 0 = enough for every slot.
  int64_t prefill_chunk = 512;  ///< Prompt tokens a step, with the feature chunked_prefill.
  DeviceKind device = DeviceKind::kCpu;  ///< That of the spec.
  /// Most memory of the device, bytes, or a share of it when at most 1; 0 = all.
  double memory_limit = 0;
  int tensor_parallel = 1;  ///< Ranks.
  AllReduceKind all_reduce = AllReduceKind::kAuto;
  SourcePlace place;

  [[nodiscard]] bool builtin() const { return engine == "builtin"; }
  /// The features of the runtime joined by '+', or what another engine runs.
  [[nodiscard]] std::string runtime_text() const {
    return builtin() ? runtime.to_string() : command.text();
  }
  /// "f16" or "f32"; another engine, and a CUDA device, keeps keys and values in the type of the
  /// weights.
  [[nodiscard]] std::string kv_text() const {
    if (!builtin()) return std::string(weight_scheme_name(weights));
    if (kv == KvFormat::kF32) return "f32";
    return device == DeviceKind::kCuda && weights == WeightScheme::kBF16 ? "bf16" : "f16";
  }
  /// The `parallel` axis: "tp=1,instances=1"; ",allreduce=auto" is appended when there are ranks.
  [[nodiscard]] std::string parallel() const;
};

struct WorkloadSpec {
  std::filesystem::path prompts;  ///< JSONL (see prompt_pool.h), resolved like `path` below.
  int64_t prompt_tokens = 0;      ///< Every prompt is cut, or continued from the pool, to this.
  int64_t output_tokens = 0;
  int64_t concurrency = 1;  ///< Most requests that run together; closed loop: clients.
  int64_t requests = 0;     ///< Per timed pass; default = concurrency.
  ArrivalSpec arrivals;
  SloSpec slo;
  SamplingParams sampling;
  bool ignore_eos = true;

  /// "c=1,prompt=32,output=64"; ",requests=N" is appended when it is not the concurrency, and
  /// ",arrivals=..." when the loop is not closed.
  [[nodiscard]] std::string label() const;
};

struct MeasureSpec {
  int64_t blocks = 10;
  int64_t warmup = 1;        ///< Untimed passes of each cell before the first block.
  bool interleaved = true;   ///< `order: interleaved` or `sequential`.
  int64_t trace_steps = 16;  ///< Decode steps of the traced pass; 0 = no traced pass.
  uint64_t seed = 1;         ///< Order within blocks, bootstrap.
};

struct DecomposeSpec {
  std::string name;
  std::vector<std::string> path;      ///< Two or more stack names.
  std::optional<std::string> corner;  ///< Fourth cell of a 2x2; needs a path of three.
  std::string confounded;             ///< Why a rung may change more than one axis.
  SourcePlace place;
};

struct ExperimentSpec {
  std::string experiment;
  std::string question;
  DeviceKind device = DeviceKind::kCpu;  ///< Where the stacks run, and what is a floor's ceiling.
  ModelRef model;
  std::optional<ModelRef> model_fallback;  ///< Used when `model` is missing; the report says so.
  std::vector<StackSpec> stacks;           ///< In spec order, after matrix expansion.
  std::vector<WorkloadSpec> workloads;     ///< Every combination of the swept fields.
  SourcePlace workload_place;              ///< Of the section.
  MeasureSpec measure;
  std::vector<DecomposeSpec> decompositions;

  /// As given by the user. Paths inside the spec (model, prompts) are relative to its folder there;
  /// in this struct they are already joined with that folder, ready to be opened.
  std::filesystem::path path;
  /// Canonical YAML after --set: parses to the same experiment, whatever comments, layout and
  /// quoting the file had.
  std::string text;

  /// "file:line:column" of a place in this spec.
  [[nodiscard]] std::string where(const SourcePlace& place) const;
};

/// `--set measure.blocks=5`: key path and YAML value.
using SpecOverride = std::pair<std::string, std::string>;
[[nodiscard]] Result<SpecOverride> parse_override(std::string_view text);

/// Errors: `file:line:col: message`, with the offending text, what was expected and the nearest
/// key. Unknown keys, duplicate keys, wrong types and impossible values are errors.
[[nodiscard]] Result<ExperimentSpec> parse_spec(const std::filesystem::path& path,
                                                std::span<const SpecOverride> overrides);
[[nodiscard]] Result<ExperimentSpec> parse_spec_text(std::string_view yaml,
                                                     const std::filesystem::path& path,
                                                     std::span<const SpecOverride> overrides);

}  // namespace triptych
