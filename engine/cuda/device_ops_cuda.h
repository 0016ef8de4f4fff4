// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// DeviceOps: the half of the CUDA table of operations that does not depend on the element type:
// memory, graphs, tracing, and the way of tokens and logits to the host.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "engine/cuda/device_weights_cuda.h"
#include "engine/cuda/op_timer_cuda.h"
#include "engine/cuda/shared_memory_cuda.h"
#include "engine/cuda/step_state_cuda.h"
#include "engine/ops.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/cuda/graph.h"
#include "kernels/cuda/launch.h"

namespace triptych {

class DeviceOps : public Ops {
 public:
  DeviceOps(const ModelWeights& weights, const EngineOptions& options, cpu::ThreadPool& pool);

  void set_sink(ActivitySink* sink) override;
  DeviceKind device() const override { return DeviceKind::kCuda; }
  std::byte* allocate(int64_t bytes) override;
  void release(std::byte* memory, int64_t bytes) noexcept override;
  void copy(const std::byte* from, std::byte* to, int64_t bytes, std::string_view name) override;
  std::byte* allocate_pool(int64_t bytes) override;
  /// The memory stays with the process; the engine's next pool would begin behind it.
  void release_pool(std::byte*, int64_t) noexcept override {}
  std::unique_ptr<KvCache> make_cache(const KvShape& shape, int64_t page_size,
                                      int64_t num_pages) override;
  WeightView resident(const WeightView& weights) override;
  DeviceVector resident(std::span<const float> weights) override;
  void begin_step(const Step& step) override;
  void run_recorded(GraphKey key, const std::function<void()>& body) override;
  void fetch_tokens(std::span<int32_t> out) override;
  void wait() override;

 protected:
  /// Runs body(); when traced, what it issues is one record, and describe() says what it was.
  template <class Body, class Describe>
  void run(Body&& body, Describe&& describe) {
    if (!timer_ || recording_) [[likely]] {
      body();
      return;
    }
    timer_->begin();
    body();
    const Info info = describe();
    timer_->end(info.kind, info.name, info.bytes);
  }
  struct Info {
    ActivityKind kind;
    std::string_view name;
    int64_t bytes;
  };
  static Info kernel(std::string_view name, int64_t bytes) {
    return {ActivityKind::kKernel, name, bytes};
  }
  /// Within a graph launches overlap; outside each starts when the one before has ended.
  [[nodiscard]] LaunchOrder order() const {
    return recording_ ? LaunchOrder::kOverlapPrevious : LaunchOrder::kAfterPrevious;
  }
  /// Waits for the stream; when traced, the wait is a record and what has ended is reported.
  void synchronize();
  /// Begins to copy `bytes` from the device into page-locked memory of this object, which holds
  /// them once synchronize() has returned.
  const std::byte* copy_to_host(const void* from, int64_t bytes);
  /// The step's tokens are in sampled_ once the stream comes here: marks the place, or, while
  /// recording, remembers that the graph chooses tokens.
  void tokens_are_chosen();

  static DeviceBuffer<std::byte> zeroed(int64_t bytes);
  static DeviceBuffer<float> uploaded(const std::vector<float>& values);

  cudaStream_t stream() const { return stream_.get(); }
  const StepBuffers::View& meta() const { return step_.device(); }

  const EngineOptions options_;
  cpu::ThreadPool& pool_;
  Stream stream_;
  std::shared_ptr<const DeviceWeights> weights_;
  StepState step_;
  DeviceBuffer<int32_t> last_tokens_;  // [max_batch], by slot
  // [2, max_batch]: of the steps under way, in turn. The device writes into host memory: a few
  // words, which arrive before the kernel ends, where a copy would be an operation of its own.
  PinnedBuffer<int32_t> sampled_;

 private:
  void mark_tokens();
  struct Recorded {
    std::array<GraphExec, StepBuffers::kCopies> graphs;  // one for each copy of the metadata
    bool samples = false;
  };
  [[nodiscard]] Recorded record(const std::function<void()>& body);
  struct Pending {
    size_t buffer;
    int64_t count;
  };
  bool recording_ = false;
  bool recorded_choice_ = false;
  ActivitySink* sink_ = nullptr;
  std::optional<OpTimer> timer_;
  std::shared_ptr<SharedDeviceMemory> shared_;
  int64_t pool_bytes_ = 0;
  std::map<GraphKey, Recorded> graphs_;
  std::array<Event, 2> tokens_ready_;  // of the steps under way, in turn
  size_t next_tokens_ = 0;
  std::deque<Pending> pending_;
  PinnedBuffer<std::byte> host_;
};

}  // namespace triptych
