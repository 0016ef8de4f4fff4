// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// Fuzz target: what an external engine says, a line a record. A pass that is accepted has the
// tokens that were asked for, at times that a block of the database can hold.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/strings.h"
#include "engine/command_messages.h"
#include "engine/pass_reader.h"
#include "experiments/comparison.h"

namespace triptych {
namespace {

constexpr int64_t kVocabSize = 8;
constexpr int64_t kReceivedNs = 1'000'000'000;

const std::vector<Request>& requests() {
  static const std::vector<Request> all = {
      {.prompt = {1}, .max_new_tokens = 3},
      {.prompt = {1, 2}, .max_new_tokens = 2, .ignore_eos = false},
      {.prompt = {3}, .max_new_tokens = 1, .arrival_ns = 500}};
  return all;
}

void check_result(const GenerateResult& result) {
  for (size_t i = 0; i < requests().size(); ++i) {
    const auto asked = static_cast<size_t>(requests()[i].max_new_tokens);
    const RequestResult& answer = result.requests[i];
    TRIPTYCH_CHECK(!answer.tokens.empty() && answer.tokens.size() <= asked, "a wrong count");
    TRIPTYCH_CHECK(answer.tokens.size() == asked || !requests()[i].ignore_eos, "it stopped");
    TRIPTYCH_CHECK(std::all_of(answer.tokens.begin(), answer.tokens.end(),
                               [](int32_t token) { return token >= 0 && token < kVocabSize; }),
                   "a token outside of the vocabulary");
    TRIPTYCH_CHECK(answer.token_ns.back() <= result.end_ns, "a token after the end");
  }
  if (result.end_ns == result.start_ns) return;  // what a block refuses, with a reason
  const auto row = make_block_row(result, requests());
  TRIPTYCH_CHECK(row.has_value(), row.error().to_string());
}

}  // namespace
}  // namespace triptych

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace triptych;  // NOLINT: the entry point is the fuzzer's
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  PassReader reader({.pass = 1,
                     .requests = requests(),
                     .concurrency = 2,
                     .vocab_size = kVocabSize,
                     .eos_token_id = 7,
                     .sent_ns = 1000});
  bool good = true;
  for (const std::string& line : split(text, '\n')) {
    const Result<Json> record = parse_json_object(line, "");
    if (!record) continue;
    static_cast<void>(parse_ready(*record));
    static_cast<void>(parse_error_record(*record));
    std::vector<float> logits;
    static_cast<void>(parse_logits(*record, 0, kVocabSize, logits));
    if (good && !reader.ended()) good = reader.take(*record, kReceivedNs).has_value();
  }
  static_cast<void>(reader.progress());
  if (good && reader.ended()) check_result(std::move(reader).result());
  return 0;
}
