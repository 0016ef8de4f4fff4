// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// PromptPool: the prompts of a workload, and the requests that every stack gets from them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "engine/engine.h"
#include "engine/model_config.h"
#include "engine/tokenizer.h"
#include "experiments/spec.h"

namespace triptych {

/// One line of a pool: text or token ids, never both.
struct Prompt {
  std::string text;
  std::vector<int32_t> token_ids;
  int line = 0;  ///< From 1.
};

struct PromptPool {
  std::filesystem::path path;
  std::string hash;             ///< Content hash of the file's bytes.
  std::vector<Prompt> prompts;  ///< In file order, at least one.
};

/// Reads JSONL: each line {"text": "..."} or {"token_ids": [1, 2, ...]}; blank lines are skipped.
/// Errors: kNotFound, kIo; kInvalidArgument at `file:line` (not JSON, other keys, empty prompt,
/// negative id, not UTF-8, no prompt at all).
[[nodiscard]] Result<PromptPool> load_prompt_pool(const std::filesystem::path& path);
/// The same from memory; `path` is named in errors.
[[nodiscard]] Result<PromptPool> parse_prompt_pool(std::string_view jsonl,
                                                   const std::filesystem::path& path);

struct WorkloadRequests {
  /// workload.requests of them, each of prompt_tokens tokens, without arrival times.
  std::vector<Request> requests;
  /// Text was hashed to token ids because the model has no tokenizer: lengths are those asked for,
  /// but the words mean nothing (threat `synthetic_tokens`).
  bool synthetic_tokens = false;
};

/// Errors: kOutOfMemory when prompt_tokens + output_tokens exceeds config.max_position (> 0), or
/// the prompts the machine's memory.
[[nodiscard]] Status check_lengths(const ModelConfig& config, const WorkloadSpec& workload);

/// Request i starts at prompt i modulo the pool's size. A prompt that is longer than prompt_tokens
/// is cut; a shorter one is continued by the prompts that follow it (a line break between texts),
/// so that the cells of all stacks and concurrencies read the same tokens. No BOS is added. Without
/// a tokenizer (`tokenizer` null) each word of a text becomes the id content_hash(word) mod
/// vocab_size. Errors: kInvalidArgument at `file:line` for an id outside the vocabulary;
/// those of check_lengths().
[[nodiscard]] Result<WorkloadRequests> build_requests(const PromptPool& pool,
                                                      const Tokenizer* tokenizer,
                                                      const ModelConfig& config,
                                                      const WorkloadSpec& workload);

}  // namespace triptych
