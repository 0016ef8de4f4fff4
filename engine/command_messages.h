// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// Messages between this program and an engine that is a child process; docs/EXTERNAL_ENGINES.md is
// their contract.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "engine/engine.h"
#include "engine/json.h"

namespace triptych {

inline constexpr int64_t kCommandProtocol = 1;

/// What an engine is asked to load.
struct OpenMessage {
  std::filesystem::path model;  ///< A Hugging Face directory or a .gguf file.
  std::string weights;          ///< "f16", "bf16", "f32".
  std::optional<int32_t> eos_token_id;
  Json options = Json::object();
};
[[nodiscard]] std::string open_message(const OpenMessage& open, const EngineOptions& options);
/// `trace`: where the engine is to leave a trace of the pass; null: nowhere.
[[nodiscard]] std::string generate_message(int64_t pass, int64_t concurrency,
                                           std::span<const Request> requests,
                                           const TraceFile* trace = nullptr);
[[nodiscard]] std::string score_message(std::span<const int32_t> tokens, int64_t prefill_tokens);

/// What an engine says when it has loaded.
struct EngineReady {
  std::string engine;
  std::string version;
  std::string device;  ///< "cpu", or the name of the GPU.
  int64_t vocab_size = 0;
  bool can_score = false;
  bool can_arrivals = false;
  bool can_trace = false;
  std::string kernels;       ///< Its own words.
  std::string frameworks;    ///< "torch 2.11.0, transformers 5.17.0"
  int64_t weight_bytes = 0;  ///< 0 if it was not told.

  /// "hf_transformers 1 on cpu: attention=sdpa; torch 2.11.0": what is stored with the results.
  [[nodiscard]] std::string text() const;
};
/// Errors: kCorrupt (a member is missing, of another type or impossible), kUnsupported (another
/// protocol).
[[nodiscard]] Result<EngineReady> parse_ready(const Json& record);

/// A line as a JSON object. Logits are found by their form and not read character by character as
/// JSON: they are most of what an engine ever sends. Errors: those of parse_json_object().
[[nodiscard]] Result<Json> parse_record(const std::string& line);

/// The error that a record of type "error" tells.
[[nodiscard]] Error parse_error_record(const Json& record);

/// Logits of one position. Errors: kCorrupt (another position, not vocab_size numbers, a NaN).
[[nodiscard]] Status parse_logits(const Json& record, int64_t position, int64_t vocab_size,
                                  std::vector<float>& logits);

/// Member `key`, which must be there. Errors: kCorrupt.
[[nodiscard]] Result<int64_t> required_integer(const Json& record, const char* key);
[[nodiscard]] Result<std::string> required_string(const Json& record, const char* key);
/// Member `key` as one line of moderate length, or "". Errors: kCorrupt.
[[nodiscard]] Result<std::string> optional_text(const Json& record, const char* key);

}  // namespace triptych
