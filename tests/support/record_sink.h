// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// RecordSink: an ActivitySink that keeps everything it is told, for tests to look at.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "profiler/phase.h"

namespace triptych {

class RecordSink final : public ActivitySink {
 public:
  struct Record {
    ActivityKind kind;
    std::string name;
    int32_t stream_id;
    int64_t start_ns;
    int64_t end_ns;
    int64_t bytes;
    int64_t phase;  ///< Index into phases(), -1 outside of all.
  };
  struct Phase {
    PhaseKind kind;
    int64_t index;
    int64_t tokens;
    int64_t start_ns;
    int64_t end_ns;
  };

  void begin_phase(PhaseKind kind, int64_t index, int64_t tokens, int64_t start_ns) override {
    misuse_ = misuse_ || open_;
    open_ = true;
    phases_.push_back({kind, index, tokens, start_ns, start_ns});
  }
  void end_phase(int64_t end_ns) override {
    misuse_ = misuse_ || !open_;
    open_ = false;
    phases_.back().end_ns = end_ns;
  }
  void record(const OperationRecord& operation) override {
    records_.push_back({operation.kind, std::string(operation.name), operation.stream_id,
                        operation.start_ns, operation.end_ns, operation.bytes,
                        open_ ? static_cast<int64_t>(phases_.size()) - 1 : -1});
  }

  RecordSink& device(int32_t device_id) override {
    if (device_id == 0) return *this;
    std::unique_ptr<RecordSink>& sink = devices_[device_id];
    if (sink == nullptr) sink = std::make_unique<RecordSink>();
    return *sink;
  }

  [[nodiscard]] const std::vector<Record>& records() const { return records_; }
  [[nodiscard]] const std::vector<Phase>& phases() const { return phases_; }
  /// Phases that nested, were left open, or were closed twice.
  [[nodiscard]] bool misused() const { return misuse_ || open_; }
  [[nodiscard]] int64_t count(std::string_view name) const {
    return std::count_if(records_.begin(), records_.end(),
                         [&](const Record& record) { return record.name == name; });
  }

 private:
  std::vector<Record> records_;
  std::vector<Phase> phases_;
  bool open_ = false;
  bool misuse_ = false;
  std::map<int32_t, std::unique_ptr<RecordSink>> devices_;
};

}  // namespace triptych
