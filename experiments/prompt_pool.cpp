// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "experiments/prompt_pool.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/hash.h"
#include "base/mapped_file.h"
#include "base/random.h"
#include "base/strings.h"
#include "base/units.h"
#include "engine/memory_need.h"

namespace triptych {
namespace {

using Json = nlohmann::json;

/// Reads one line of a pool; the message of an error is without place.
Result<Prompt> parse_prompt(std::string_view line) {
  const auto refuse = [](std::string message) {
    return fail(ErrorCode::kInvalidArgument, std::move(message));
  };
  if (!is_valid_utf8(line)) return refuse("this line is not UTF-8 text");
  const Json json = Json::parse(line, nullptr, false);
  if (json.is_discarded()) return refuse("this line is not JSON");
  if (!json.is_object() || json.size() != 1 ||
      !(json.contains("text") || json.contains("token_ids"))) {
    return refuse("expected {\"text\": \"...\"} or {\"token_ids\": [...]}, found " +
                  std::string(line.substr(0, 60)));
  }
  Prompt prompt;
  if (json.contains("text")) {
    if (!json["text"].is_string()) return refuse("\"text\" is not a string");
    prompt.text = json["text"].get<std::string>();
    if (trim(prompt.text).empty()) return refuse("\"text\" is empty");
    return prompt;
  }
  const Json& ids = json["token_ids"];
  if (!ids.is_array() || ids.empty()) return refuse("\"token_ids\" is not a list of numbers");
  for (const Json& id : ids) {
    if (!id.is_number_integer() || id < 0 || id > std::numeric_limits<int32_t>::max()) {
      // Only scalars are shown: a list in a list in a list would be dumped by recursion.
      return refuse(
          "\"token_ids\" holds " +
          (id.is_structured() ? std::string("a list or an object") : id.dump().substr(0, 60)) +
          ", which is not a token id");
    }
    prompt.token_ids.push_back(id.get<int32_t>());
  }
  return prompt;
}

/// One id a word, drawn from the word's own bytes, so that equal texts give equal tokens.
std::vector<int32_t> hash_words(std::string_view text, int64_t vocab_size) {
  std::vector<int32_t> ids;
  size_t i = 0;
  while ((i = text.find_first_not_of(" \t\r\n", i)) != std::string_view::npos) {
    const size_t end = std::min(text.find_first_of(" \t\r\n", i), text.size());
    uint64_t hash = 0;
    for (const char c : text.substr(i, end - i)) hash = mix64(hash ^ static_cast<unsigned char>(c));
    ids.push_back(static_cast<int32_t>(hash % static_cast<uint64_t>(vocab_size)));
    i = end;
  }
  return ids;
}

std::string place(const PromptPool& pool, const Prompt& prompt) {
  return pool.path.string() + ":" + std::to_string(prompt.line);
}

/// The tokens of every prompt of the pool: as the start of a request, and as a continuation.
struct TokenizedPool {
  std::vector<std::vector<int32_t>> first;
  std::vector<std::vector<int32_t>> next;
};

Result<TokenizedPool> tokenize(const PromptPool& pool, const Tokenizer* tokenizer,
                               int64_t vocab_size) {
  TokenizedPool tokenized;
  for (const Prompt& prompt : pool.prompts) {
    if (!prompt.text.empty()) {
      tokenized.first.push_back(tokenizer != nullptr ? tokenizer->encode(prompt.text)
                                                     : hash_words(prompt.text, vocab_size));
      tokenized.next.push_back(tokenizer != nullptr ? tokenizer->encode("\n" + prompt.text)
                                                    : tokenized.first.back());
      if (!tokenized.first.back().empty() && !tokenized.next.back().empty()) continue;
      return fail(ErrorCode::kInvalidArgument, "the tokenizer makes no token of this text",
                  place(pool, prompt));
    }
    for (const int32_t id : prompt.token_ids) {
      if (id < vocab_size) continue;
      return fail(ErrorCode::kInvalidArgument,
                  str_format("token id %d is outside the model's vocabulary of %lld", id,
                             static_cast<long long>(vocab_size)),
                  place(pool, prompt));
    }
    tokenized.first.push_back(prompt.token_ids);
    tokenized.next.push_back(prompt.token_ids);
  }
  return tokenized;
}

}  // namespace

Result<PromptPool> parse_prompt_pool(std::string_view jsonl, const std::filesystem::path& path) {
  PromptPool pool;
  pool.path = path;
  pool.hash = content_hash(jsonl);
  int number = 0;
  for (size_t begin = 0; begin < jsonl.size();) {
    ++number;
    const size_t end = std::min(jsonl.find('\n', begin), jsonl.size());
    const std::string_view line = trim(jsonl.substr(begin, end - begin));
    begin = end + 1;
    if (line.empty()) continue;
    auto prompt = parse_prompt(line);
    if (!prompt) {
      return fail(prompt.error().code, prompt.error().message,
                  path.string() + ":" + std::to_string(number));
    }
    prompt->line = number;
    pool.prompts.push_back(std::move(*prompt));
  }
  if (pool.prompts.empty()) {
    return fail(ErrorCode::kInvalidArgument, "the prompt pool is empty", path.string());
  }
  return pool;
}

Result<PromptPool> load_prompt_pool(const std::filesystem::path& path) {
  TRIPTYCH_TRY(const MappedFile file, MappedFile::open(path));
  return parse_prompt_pool(file.text(), path);
}

Status check_lengths(const ModelConfig& config, const WorkloadSpec& workload) {
  const int64_t length = workload.prompt_tokens + workload.output_tokens;
  if (config.max_position > 0 && length > config.max_position) {
    return fail(
        ErrorCode::kOutOfMemory,
        str_format("%lld prompt + %lld output tokens = %lld, but the model %s has "
                   "positions for %lld",
                   static_cast<long long>(workload.prompt_tokens),
                   static_cast<long long>(workload.output_tokens), static_cast<long long>(length),
                   config.name.c_str(), static_cast<long long>(config.max_position)));
  }
  // Once to compare outputs with, once with arrival times.
  const double bytes = 2.0 * sizeof(int32_t) * static_cast<double>(workload.requests) *
                       static_cast<double>(workload.prompt_tokens);
  if (bytes > machine_memory_bytes()) {
    return fail(
        ErrorCode::kOutOfMemory,
        str_format("%lld requests of %lld tokens are ", static_cast<long long>(workload.requests),
                   static_cast<long long>(workload.prompt_tokens)) +
            format_bytes(bytes) + ", more than the machine's " +
            format_bytes(machine_memory_bytes()));
  }
  return {};
}

Result<WorkloadRequests> build_requests(const PromptPool& pool, const Tokenizer* tokenizer,
                                        const ModelConfig& config, const WorkloadSpec& workload) {
  TRIPTYCH_CHECK(!pool.prompts.empty() && workload.prompt_tokens > 0 && workload.requests > 0,
                 "a checked pool and workload");
  TRIPTYCH_RETURN_IF_ERROR(check_lengths(config, workload));
  TRIPTYCH_TRY(const TokenizedPool tokens, tokenize(pool, tokenizer, config.vocab_size));
  WorkloadRequests built;
  built.synthetic_tokens =
      tokenizer == nullptr && std::any_of(pool.prompts.begin(), pool.prompts.end(),
                                          [](const Prompt& p) { return !p.text.empty(); });
  const size_t wanted = static_cast<size_t>(workload.prompt_tokens);
  for (int64_t i = 0; i < workload.requests; ++i) {
    Request request;
    request.max_new_tokens = workload.output_tokens;
    request.ignore_eos = workload.ignore_eos;
    size_t index = static_cast<size_t>(i) % pool.prompts.size();
    request.prompt = tokens.first[index];
    while (request.prompt.size() < wanted) {
      index = (index + 1) % pool.prompts.size();
      const auto& more = tokens.next[index];
      request.prompt.insert(request.prompt.end(), more.begin(), more.end());
    }
    request.prompt.resize(wanted);
    built.requests.push_back(std::move(request));
  }
  return built;
}

}  // namespace triptych
