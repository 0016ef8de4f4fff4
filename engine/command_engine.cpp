// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "engine/command_engine.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/check.h"
#include "base/strings.h"
#include "base/units.h"
#include "engine/pass_reader.h"
#include "engine/step_cost.h"
#include "kernels/cpu/thread_pool.h"

namespace triptych {
namespace {

constexpr size_t kQuoted = 120;          // bytes of a bad line that are shown
constexpr size_t kErrorLines = 4;        // of its standard error
constexpr int64_t kEndNs = 500'000'000;  // a child that closed its output is about to end

/// The start of a line that made no sense, safe to print.
std::string line_start(std::string_view line) {
  std::string text(line.substr(0, kQuoted));
  for (char& c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte >= 0x7F) c = '?';
  }
  return "\"" + text + (line.size() > kQuoted ? "\"..." : "\"");
}

/// The last lines of a text as one: reasons of cells are shown in tables.
std::string last_lines(const std::string& text) {
  std::vector<std::string> lines;
  for (const std::string& line : split(text, '\n')) {
    if (!trim(line).empty()) lines.emplace_back(trim(line));
  }
  if (lines.size() > kErrorLines) {
    lines.erase(lines.begin(), lines.end() - static_cast<std::ptrdiff_t>(kErrorLines));
  }
  return join(lines, " | ");
}

class CommandEngine final : public Engine {
 public:
  CommandEngine(const CommandEngineOptions& options, ChildProcess child)
      : options_(options), child_(std::move(child)) {}

  /// Waits until the model is loaded.
  Status open() {
    deadline_ns_ = now_ns() + options_.timeouts.start_ns;
    const Status done = try_open();
    return done ? done : broken(done.error());
  }

  Result<GenerateResult> generate(std::span<const Request> requests, ActivitySink* sink) override {
    if (sink != nullptr) return unsupported("cannot tell what it launches while it runs");
    return run(requests, nullptr);
  }

  Result<GenerateResult> generate_to_file(std::span<const Request> requests,
                                          const TraceFile& trace) override {
    if (!ready_.can_trace) return unsupported("writes no traces");
    return run(requests, &trace);
  }

  Status score(std::span<const int32_t> tokens, int64_t prefill_tokens,
               const LogitsVisitor& visit) override {
    if (!ready_.can_score) return unsupported("gives no logits");
    if (failure_) return Unexpected{*failure_};
    const auto rows = static_cast<int64_t>(tokens.size());
    if (rows < 1 || prefill_tokens < 1 || prefill_tokens > rows) {
      return fail(ErrorCode::kInvalidArgument,
                  str_format("prefill_tokens is %lld, expected 1 to %lld",
                             static_cast<long long>(prefill_tokens), static_cast<long long>(rows)));
    }
    deadline_ns_ = now_ns() + options_.timeouts.pass_ns;
    const Status done = try_score(tokens, prefill_tokens, visit);
    return done ? done : broken(done.error());
  }

  bool can_score() const override { return ready_.can_score; }
  bool can_trace() const override { return false; }
  bool writes_traces() const override { return ready_.can_trace; }

  EngineMemory memory() const override {
    // Only the whole is told, or nothing: the rest is such that the parts add up to what was told,
    // negative where that is less than the weights (mapped files, say).
    return {.weight_bytes = ready_.weight_bytes,
            .peak_kv_bytes = 0,
            .peak_activation_bytes = peak_bytes_ - ready_.weight_bytes};
  }
  KernelCost decode_step_cost(int64_t batch, int64_t context) const override {
    return step_cost(*options_.shapes, options_.engine, batch, context);
  }
  std::string kernel_choice(int64_t) const override { return ready_.text(); }
  const EngineOptions& options() const override { return options_.engine; }

 private:
  /// One pass, recorded where `trace` says; not recorded where it is null.
  Result<GenerateResult> run(std::span<const Request> requests, const TraceFile* trace) {
    const bool open_loop = std::any_of(requests.begin(), requests.end(),
                                       [](const Request& r) { return r.arrival_ns.has_value(); });
    if (open_loop && !ready_.can_arrivals) {
      return unsupported("takes no requests at times of their own");
    }
    if (failure_) return Unexpected{*failure_};
    for (size_t i = 0; i < requests.size(); ++i) {
      TRIPTYCH_RETURN_IF_ERROR(check_request(requests[i], i));
    }
    deadline_ns_ = now_ns() + options_.timeouts.pass_ns;
    std::string trace_fault;
    Result<GenerateResult> result = try_generate(requests, trace, trace_fault);
    if (!result) return broken(result.error());
    if (trace != nullptr && !trace_fault.empty()) {
      return fail(ErrorCode::kNotFound, trace_fault, options_.name);
    }
    return result;
  }

  Status try_open() {
    TRIPTYCH_RETURN_IF_ERROR(send(open_message(options_.open, options_.engine)));
    TRIPTYCH_TRY(const Json record, receive(options_.timeouts.start_ns, "\"ready\""));
    TRIPTYCH_RETURN_IF_ERROR(expect_type(record, "ready"));
    const Result<EngineReady> ready = parse_ready(record);
    if (!ready) return at_line(ready.error());
    ready_ = *ready;
    const bool asked_cpu = options_.engine.device == DeviceKind::kCpu;
    if (asked_cpu != (ready_.device == "cpu")) {
      return at_line({ErrorCode::kCorrupt,
                      "it runs on " + ready_.device + ", asked for " + (asked_cpu ? "cpu" : "cuda"),
                      ""});
    }
    const int64_t vocab_size = options_.shapes->config.vocab_size;
    if (ready_.vocab_size == vocab_size) return {};
    return at_line(
        {ErrorCode::kCorrupt,
         str_format("its vocabulary has %lld tokens, the model's %lld",
                    static_cast<long long>(ready_.vocab_size), static_cast<long long>(vocab_size)),
         ""});
  }

  Result<GenerateResult> try_generate(std::span<const Request> requests, const TraceFile* trace,
                                      std::string& trace_fault) {
    PassReader reader({.pass = ++pass_,
                       .requests = requests,
                       .concurrency = options_.engine.max_batch,
                       .vocab_size = ready_.vocab_size,
                       .eos_token_id = options_.open.eos_token_id,
                       .sent_ns = now_ns()});
    TRIPTYCH_RETURN_IF_ERROR(
        send(generate_message(pass_, options_.engine.max_batch, requests, trace)));
    while (!reader.ended()) {
      Result<Json> record = receive(options_.timeouts.record_ns, "\"end\" of a pass");
      if (!record) {
        Error error = record.error();
        error.message += " (" + reader.progress() + ")";
        return Unexpected{std::move(error)};
      }
      const Status taken = reader.take(*record, now_ns());
      if (!taken) return at_line(taken.error());
    }
    trace_fault = reader.trace_fault();
    // What recording takes is not the engine's.
    if (trace == nullptr) peak_bytes_ = std::max(peak_bytes_, reader.peak_bytes());
    return std::move(reader).result();
  }

  Status try_score(std::span<const int32_t> tokens, int64_t prefill_tokens,
                   const LogitsVisitor& visit) {
    TRIPTYCH_RETURN_IF_ERROR(send(score_message(tokens, prefill_tokens)));
    std::vector<float> logits;
    for (int64_t position = 0; position < static_cast<int64_t>(tokens.size()); ++position) {
      TRIPTYCH_TRY(const Json record, receive(options_.timeouts.record_ns, "\"logits\""));
      TRIPTYCH_RETURN_IF_ERROR(expect_type(record, "logits"));
      const Status parsed = parse_logits(record, position, ready_.vocab_size, logits);
      if (!parsed) return at_line(parsed.error());
      visit(position, logits);
    }
    TRIPTYCH_TRY(const Json record, receive(options_.timeouts.record_ns, "\"scored\""));
    return expect_type(record, "scored");
  }

  Status send(const std::string& message) {
    return child_.write_line(message, deadline_ns_, options_.interrupted);
  }

  /// The next record. One of type "error" is an error.
  Result<Json> receive(int64_t silence_ns, const char* awaited) {
    const int64_t until_ns = std::min(deadline_ns_, now_ns() + silence_ns);
    Result<std::optional<std::string>> line = child_.read_line(until_ns, options_.interrupted);
    if (!line) {
      Error error = line.error();
      if (now_ns() >= until_ns) {
        const double waited =
            static_cast<double>(until_ns == deadline_ns_ ? whole_wait_ns(awaited) : silence_ns);
        error.message += ", waiting " + format_duration_ns(waited) + " for " + awaited;
      }
      return Unexpected{std::move(error)};
    }
    if (!*line) return fail(ErrorCode::kIo, std::string("it ended before ") + awaited);
    Result<Json> record = parse_record(**line);
    if (!record) {
      return at_line({ErrorCode::kCorrupt, "not a JSON object: " + line_start(**line), ""});
    }
    if (const auto type = record->find("type"); type != record->end() && *type == "error") {
      return Unexpected{parse_error_record(*record)};
    }
    return record;
  }

  /// What the deadline of the whole call was set from.
  [[nodiscard]] int64_t whole_wait_ns(std::string_view awaited) const {
    return awaited == "\"ready\"" ? options_.timeouts.start_ns : options_.timeouts.pass_ns;
  }

  Status expect_type(const Json& record, std::string_view expected) {
    const auto type = required_string(record, "type");
    if (!type) return at_line(type.error());
    if (*type == expected) return {};
    return at_line({ErrorCode::kCorrupt,
                    "a record \"" + type->substr(0, kQuoted) + "\", expected \"" +
                        std::string(expected) + "\"",
                    ""});
  }

  [[nodiscard]] Unexpected at_line(const Error& error) const {
    return fail(error.code, str_format("line %lld of its output: ",
                                       static_cast<long long>(child_.lines_read())) +
                                error.message);
  }

  /// Ends the child and keeps why, with all that is known of its end.
  Unexpected broken(const Error& error) {
    const std::string end = child_.end_text(kEndNs);
    child_.kill();
    failure_ = Error{error.code, error.message, options_.name};
    if (!end.empty()) failure_->message += "; it ended with " + end;
    const std::string said = last_lines(child_.error_tail());
    if (!said.empty()) failure_->message += "; its standard error: " + said;
    return Unexpected{*failure_};
  }

  [[nodiscard]] Unexpected unsupported(const std::string& what) const {
    return fail(ErrorCode::kUnsupported, "the engine " + what, options_.name);
  }

  Status check_request(const Request& request, size_t index) const {
    const bool fits = !request.prompt.empty() && request.max_new_tokens >= 1 &&
                      static_cast<int64_t>(request.prompt.size()) + request.max_new_tokens <=
                          options_.engine.max_sequence;
    if (fits) return {};
    return fail(
        ErrorCode::kInvalidArgument,
        str_format("request %zu: %zu prompt and %lld output tokens, expected at least one "
                   "of each and at most %lld together",
                   index, request.prompt.size(), static_cast<long long>(request.max_new_tokens),
                   static_cast<long long>(options_.engine.max_sequence)),
        options_.name);
  }

  CommandEngineOptions options_;
  ChildProcess child_;
  EngineReady ready_;
  int64_t pass_ = 0;
  int64_t peak_bytes_ = 0;
  int64_t deadline_ns_ = 0;  ///< Of the call that is running.
  std::optional<Error> failure_;
};

}  // namespace

Status check_command_sampling(const SamplingParams& sampling) {
  if (sampling.greedy()) return {};
  return fail(
      ErrorCode::kUnsupported,
      "external engines are greedy only, the workload's sampling is " + to_string(sampling));
}

Result<std::unique_ptr<Engine>> make_command_engine(const CommandEngineOptions& options) {
  TRIPTYCH_CHECK(options.shapes != nullptr, "an engine's cost needs the model's shapes");
  TRIPTYCH_RETURN_IF_ERROR(check_command_sampling(options.engine.sampling));
  CommandEngineOptions resolved = options;
  if (resolved.engine.num_threads == 0) resolved.engine.num_threads = cpu::available_cores();
  TRIPTYCH_TRY(ChildProcess child, ChildProcess::start(options.command));
  auto engine = std::make_unique<CommandEngine>(resolved, std::move(child));
  TRIPTYCH_RETURN_IF_ERROR(engine->open());
  return std::unique_ptr<Engine>(std::move(engine));
}

}  // namespace triptych
