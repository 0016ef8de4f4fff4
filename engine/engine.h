// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// Engine: one model, one runtime, one or more ranks; generates tokens and says when each was
// delivered.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/engine_options.h"
#include "engine/weights.h"
#include "kernels/cost.h"
#include "profiler/phase.h"

namespace triptych {

struct Request {
  std::vector<int32_t> prompt;  ///< At least one token.
  int64_t max_new_tokens = 0;   ///< At least one.
  bool ignore_eos = true;
  /// When it is submitted, ns after generate() begins (open loop); none: by the next free client
  /// of the closed loop.
  std::optional<int64_t> arrival_ns = std::nullopt;
};

/// Times are now_ns(). token_ns[k] is when token k was in the caller's hands.
struct RequestResult {
  int64_t submit_ns = 0;    ///< With an arrival time: when it was due.
  int64_t admit_ns = 0;     ///< Start of the step that read its first token.
  int64_t preemptions = 0;  ///< How often its KV cache was given up and computed again.
  std::vector<int64_t> token_ns;
  std::vector<int32_t> tokens;
};

struct GenerateResult {
  std::vector<RequestResult> requests;  ///< In the order of the requests.
  int64_t start_ns = 0;
  int64_t end_ns = 0;
  int64_t prefill_steps = 0;  ///< Steps that read prompt tokens, alone or beside decoding ones.
  int64_t decode_steps = 0;   ///< Steps that only decoded.
  /// Time in which the host only waited for its device; none where both are the same (CPU) or the
  /// engine does not say.
  std::optional<int64_t> device_wait_ns = std::nullopt;
  /// The host's own work for steps that only decoded, and for steps that read prompts: planning,
  /// issuing, delivering; what it waits for while it issues (logits to choose from) counts, too.
  /// None as above.
  std::optional<int64_t> decode_host_ns = std::nullopt;
  std::optional<int64_t> prefill_host_ns = std::nullopt;
};

/// One position of a teacher-forced pass: logits after reading tokens[position].
using LogitsVisitor = std::function<void(int64_t position, std::span<const float> logits)>;

/// What the ranks of an engine hold, summed: what each of them has counts once for each.
struct EngineMemory {
  int64_t weight_bytes = 0;
  int64_t peak_kv_bytes = 0;
  int64_t peak_activation_bytes = 0;
  [[nodiscard]] int64_t peak_bytes() const {
    return weight_bytes + peak_kv_bytes + peak_activation_bytes;
  }
};

/// A trace that an engine writes itself: Chrome or Kineto JSON with phases.
struct TraceFile {
  std::filesystem::path path;
  int64_t steps = 0;  ///< Most decode steps that it is to hold.
};

class Engine {
 public:
  virtual ~Engine() = default;

  /// Runs all requests to their end. Those with an arrival time are submitted then (open loop), the
  /// others in order by options.max_batch clients, each of which submits its next request when the
  /// one before has finished (closed loop). `sink` is null in a timed pass. Errors:
  /// kInvalidArgument (empty prompt, token id out of range, no token asked for, negative arrival),
  /// kOutOfMemory (longer than max_sequence).
  [[nodiscard]] virtual Result<GenerateResult> generate(std::span<const Request> requests,
                                                        ActivitySink* sink) = 0;
  /// Reads `tokens` through the runtime's own forward pass and visits the logits of every position,
  /// in order: the first `prefill_tokens` (at least one) at once as a prompt, the others one by one
  /// as decode steps, so that the kernels that generate() uses are the ones that are scored.
  /// `visit` must not call an engine: the threads are taken. Errors: as generate().
  [[nodiscard]] virtual Status score(std::span<const int32_t> tokens, int64_t prefill_tokens,
                                     const LogitsVisitor& visit) = 0;

  /// Can score() be called? An engine of another project may only generate.
  [[nodiscard]] virtual bool can_score() const { return true; }
  /// Does generate() tell a sink what ran? Only the program itself knows what it launches.
  [[nodiscard]] virtual bool can_trace() const { return true; }
  /// Can generate_to_file() be called? An engine of another project may record itself.
  [[nodiscard]] virtual bool writes_traces() const { return false; }
  /// generate() while the engine records what its device does and leaves it at `trace.path`.
  /// Errors: as generate(); kUnsupported where writes_traces() says no; kNotFound with the engine's
  /// reason if the pass ran but left no trace.
  [[nodiscard]] virtual Result<GenerateResult> generate_to_file(std::span<const Request> requests,
                                                                const TraceFile& trace);

  /// Peaks are the highest of all generate() calls so far, counted when memory is taken; a page
  /// pool and an arena count whole from the start.
  [[nodiscard]] virtual EngineMemory memory() const = 0;
  /// Compulsory traffic and arithmetic of one decode step, of all ranks, of `batch` sequences that
  /// have `context` tokens each.
  [[nodiscard]] virtual KernelCost decode_step_cost(int64_t batch, int64_t context) const = 0;
  /// Which kernels the dispatcher chose at this batch: "q=gemv_q4_1 ... lm_head=gemv_q8_0".
  [[nodiscard]] virtual std::string kernel_choice(int64_t batch) const = 0;
  [[nodiscard]] virtual const EngineOptions& options() const = 0;
};

inline Result<GenerateResult> Engine::generate_to_file(std::span<const Request>, const TraceFile&) {
  return fail(ErrorCode::kUnsupported, "the engine writes no traces");
}

/// What make_engine() refuses of the options alone, so that a plan can tell before weights are
/// loaded. Errors: kInvalidArgument (out of range), kUnsupported (features, cache format, more
/// positions than the model has), kOutOfMemory (a KV budget below one sequence).
[[nodiscard]] Status check_engine_options(const ModelConfig& config, const EngineOptions& options);

/// Engines of one process share threads and take turns; each call holds them until it returns.
/// Errors: kInvalidArgument (an option out of range), kUnsupported (device, feature or model size
/// that this build cannot run), kOutOfMemory (with the arithmetic).
[[nodiscard]] Result<std::unique_ptr<Engine>> make_engine(
    std::shared_ptr<const ModelWeights> weights, const EngineOptions& options);

}  // namespace triptych
