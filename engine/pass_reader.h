// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// PassReader: the records of one pass of an external engine, checked one by one, become a result.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/engine.h"
#include "engine/json.h"

namespace triptych {

/// What a pass was asked for.
struct PassQuestion {
  int64_t pass = 0;
  std::span<const Request> requests;  ///< Must outlive the reader.
  int64_t concurrency = 1;
  int64_t vocab_size = 0;
  std::optional<int32_t> eos_token_id;
  int64_t sent_ns = 0;  ///< now_ns() when it was sent.
};

/// Believes nothing: order, counts, ids, tokens and times of every record are checked against what
/// was asked for and against the clock of this process.
class PassReader {
 public:
  explicit PassReader(const PassQuestion& question);

  /// Takes one record, which came at `received_ns`. Errors: kCorrupt saying what was expected.
  [[nodiscard]] Status take(const Json& record, int64_t received_ns);
  [[nodiscard]] bool ended() const { return ended_; }
  /// Precondition: ended().
  [[nodiscard]] GenerateResult result() &&;
  /// As told with the end; 0 if it was not.
  [[nodiscard]] int64_t peak_bytes() const { return peak_bytes_; }
  /// Why there is no trace, as told with the end; "" where one was written.
  [[nodiscard]] std::string trace_fault() const;
  /// "2 of 8 requests done, 77 tokens", for messages about a pass that was cut off.
  [[nodiscard]] std::string progress() const;

 private:
  enum class State : uint8_t { kWaiting, kRunning, kDone };

  [[nodiscard]] Status take_start(const Json& record);
  [[nodiscard]] Status take_prefill(const Json& record);
  [[nodiscard]] Status take_tokens(const Json& record);
  [[nodiscard]] Status take_token_entry(const Json& entry);
  [[nodiscard]] Status take_done(const Json& record);
  [[nodiscard]] Status take_end(const Json& record);
  [[nodiscard]] Status check_time(int64_t ns, int64_t received_ns) const;
  [[nodiscard]] Status check_pass(const Json& record) const;
  [[nodiscard]] Status check_end_of(size_t request, const std::string& reason) const;
  /// The request begins, if it has not: it had a free client, and it had arrived, at `ns`.
  [[nodiscard]] Status begin(size_t request, int64_t ns);
  [[nodiscard]] Result<std::vector<size_t>> read_ids(const Json& record) const;
  [[nodiscard]] Result<size_t> request_of(const Json& id) const;

  PassQuestion question_;
  GenerateResult result_;
  std::vector<State> states_;
  std::vector<int64_t> turn_;         ///< Position among the requests of the closed loop.
  std::vector<int64_t> releases_ns_;  ///< When requests of the closed loop ended, in order.
  int64_t running_ = 0;
  int64_t last_ns_ = 0;  ///< Time of the record before.
  int64_t prefills_ = 0;
  int64_t peak_bytes_ = 0;
  std::string trace_;        ///< "written", as told with the end.
  std::string trace_error_;  ///< Likewise.
  bool started_ = false;
  bool ended_ = false;
};

}  // namespace triptych
