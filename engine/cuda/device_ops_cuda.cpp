// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "engine/cuda/device_ops_cuda.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/units.h"

namespace triptych {

namespace {

constexpr int64_t kPoolAlignment = 4096;  // bytes: more than any kernel asks for

/// Memory that is given back stays with the process, as a caching allocator keeps it.
void keep_freed_memory() {
  int device = 0;
  cudaMemPool_t pool = nullptr;
  TRIPTYCH_CUDA_CHECK(cudaGetDevice(&device));
  TRIPTYCH_CUDA_CHECK(cudaDeviceGetDefaultMemPool(&pool, device));
  uint64_t everything = std::numeric_limits<uint64_t>::max();
  TRIPTYCH_CUDA_CHECK(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &everything));
}

}  // namespace

DeviceOps::DeviceOps(const ModelWeights& weights, const EngineOptions& options,
                     cpu::ThreadPool& pool)
    : options_(options),
      pool_(pool),
      stream_(make_stream()),
      weights_(DeviceWeights::of(weights)),
      step_(options, weights.config.num_layers),
      last_tokens_(static_cast<size_t>(options.max_batch)),
      sampled_(2 * static_cast<size_t>(options.max_batch)),
      shared_(SharedDeviceMemory::instance()) {
  keep_freed_memory();
  TRIPTYCH_CUDA_CHECK(cudaMemset(last_tokens_.data(), 0, last_tokens_.size_bytes()));
  for (Event& ready : tokens_ready_) ready = make_marker();
}

void DeviceOps::set_sink(ActivitySink* sink) {
  sink_ = sink;
  timer_.reset();
  if (sink != nullptr) timer_.emplace(stream());
}

std::byte* DeviceOps::allocate(int64_t bytes) {
  void* memory = nullptr;
  const cudaError_t status = cudaMallocAsync(&memory, static_cast<size_t>(bytes), stream());
  if (status != cudaSuccess) {
    if (status == cudaErrorMemoryAllocation) {
      // The pool has taken what there was in trying. It is not sticky: no later call must see it.
      static_cast<void>(cudaGetLastError());
      trim_memory_pool();
    }
    throw DeviceError(__FILE__, __LINE__, "cudaMallocAsync", static_cast<int>(status),
                      cuda_error_text(status, static_cast<size_t>(bytes)));
  }
  return static_cast<std::byte*>(memory);
}

void DeviceOps::release(std::byte* memory, int64_t) noexcept {
  TRIPTYCH_CUDA_LOG(cudaFreeAsync(memory, stream()));
}

void DeviceOps::copy(const std::byte* from, std::byte* to, int64_t bytes, std::string_view name) {
  run(
      [&] {
        TRIPTYCH_CUDA_CHECK(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes),
                                            cudaMemcpyDeviceToDevice, stream()));
      },
      [&] {
        return Info{ActivityKind::kMemcpy, name, 2 * bytes};
      });
}

std::byte* DeviceOps::allocate_pool(int64_t bytes) {
  const int64_t offset = pool_bytes_;
  pool_bytes_ += (bytes + kPoolAlignment - 1) / kPoolAlignment * kPoolAlignment;
  shared_->reserve(pool_bytes_);
  return shared_->base() + offset;
}

std::unique_ptr<KvCache> DeviceOps::make_cache(const KvShape& shape, int64_t page_size,
                                               int64_t num_pages) {
  if (page_size == 0) {
    auto cache = std::make_unique<CudaConcatCache>(*this, shape);
    step_.set_cache(nullptr, cache.get());
    return cache;
  }
  auto cache = std::make_unique<CudaPagedCache>(*this, shape, page_size, num_pages);
  step_.set_cache(cache.get(), nullptr);
  return cache;
}

WeightView DeviceOps::resident(const WeightView& weights) {
  return {weights_->at(weights.data), weights.dtype, weights.rows, weights.columns};
}

DeviceVector DeviceOps::resident(std::span<const float> weights) {
  return weights_->at(weights.data());
}

void DeviceOps::begin_step(const Step& step) {
  step_.begin(step, static_cast<int64_t>(next_tokens_) * options_.max_batch, stream());
}

void DeviceOps::run_recorded(GraphKey key, const std::function<void()>& body) {
  auto found = graphs_.find(key);
  if (found == graphs_.end()) found = graphs_.emplace(key, record(body)).first;
  const cudaGraphExec_t graph = found->second.graphs[step_.buffers().current()].get();
  run([&] { TRIPTYCH_CUDA_CHECK(cudaGraphLaunch(graph, stream())); },
      [&] { return kernel("decode_graph", 0); });
  if (found->second.samples) mark_tokens();
}

// All copies' graphs at once: the others will be needed in the next steps, which may be timed.
DeviceOps::Recorded DeviceOps::record(const std::function<void()>& body) {
  struct Recording {
    explicit Recording(DeviceOps& of) : ops(of), copy(of.step_.buffers().current()) {
      ops.recording_ = true;
      ops.recorded_choice_ = false;
    }
    ~Recording() {
      ops.recording_ = false;
      ops.step_.buffers().select(copy);
    }
    Recording(const Recording&) = delete;
    Recording& operator=(const Recording&) = delete;
    DeviceOps& ops;
    size_t copy;
  };
  const Recording recording(*this);
  Recorded recorded;
  for (size_t copy = 0; copy < StepBuffers::kCopies; ++copy) {
    step_.buffers().select(copy);
    recorded.graphs[copy] = capture_graph(stream(), [&](cudaStream_t) { body(); });
  }
  recorded.samples = recorded_choice_;
  return recorded;
}

void DeviceOps::tokens_are_chosen() {
  if (recording_) {
    recorded_choice_ = true;
  } else {
    mark_tokens();
  }
}

void DeviceOps::mark_tokens() {
  const int64_t count = step_.real_sampled();
  TRIPTYCH_CHECK(pending_.size() < tokens_ready_.size(), "at most two steps are under way");
  const size_t buffer = next_tokens_;
  next_tokens_ = 1 - next_tokens_;
  TRIPTYCH_CUDA_CHECK(cudaEventRecord(tokens_ready_[buffer].get(), stream()));
  pending_.push_back({buffer, count});
}

void DeviceOps::fetch_tokens(std::span<int32_t> out) {
  TRIPTYCH_CHECK(!pending_.empty(), "nothing was sampled");
  const Pending pending = pending_.front();
  pending_.pop_front();
  TRIPTYCH_CHECK(std::ssize(out) == pending.count, "one token per sampled row");
  TRIPTYCH_CUDA_CHECK(cudaEventSynchronize(tokens_ready_[pending.buffer].get()));
  const int32_t* tokens =
      sampled_.data() + static_cast<int64_t>(pending.buffer) * options_.max_batch;
  std::copy(tokens, tokens + pending.count, out.begin());
  if (sink_ != nullptr) timer_->report(*sink_);
}

void DeviceOps::wait() {
  pending_.clear();
  step_.forget();
  synchronize();
}

void DeviceOps::synchronize() {
  TRIPTYCH_CUDA_CHECK(cudaStreamSynchronize(stream()));
  if (sink_ != nullptr) timer_->report(*sink_);
}

DeviceBuffer<std::byte> DeviceOps::zeroed(int64_t bytes) {
  DeviceBuffer<std::byte> buffer(static_cast<size_t>(bytes));
  if (bytes > 0) TRIPTYCH_CUDA_CHECK(cudaMemset(buffer.data(), 0, buffer.size_bytes()));
  return buffer;
}

DeviceBuffer<float> DeviceOps::uploaded(const std::vector<float>& values) {
  DeviceBuffer<float> buffer(values.size());
  TRIPTYCH_CUDA_CHECK(
      cudaMemcpy(buffer.data(), values.data(), buffer.size_bytes(), cudaMemcpyHostToDevice));
  return buffer;
}

const std::byte* DeviceOps::copy_to_host(const void* from, int64_t bytes) {
  const auto size = static_cast<size_t>(bytes);
  if (host_.size() < size) host_ = PinnedBuffer<std::byte>(size);
  TRIPTYCH_CUDA_CHECK(cudaMemcpyAsync(host_.data(), from, size, cudaMemcpyDeviceToHost, stream()));
  return host_.data();
}

}  // namespace triptych
