// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// Attention of Llama-3.1-8B (32 query heads, 8 KV heads of 128, f16): decode over pages of 16 and
// over a contiguous cache, prefill.
#include <cuda_fp16.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "base/random.h"
#include "base/strings.h"
#include "kernels/common/bulk_copy.cuh"
#include "kernels/common/grid_dependency.cuh"
#include "kernels/common/mbarrier.cuh"
#include "kernels/common/mma.cuh"
#include "kernels/cuda/decode_attention.h"
#include "tests/gpu/bench.h"

namespace triptych::bench {
namespace {

constexpr int64_t kQHeads = 32;
constexpr int64_t kKvHeads = 8;
constexpr int64_t kHeadDim = 128;
constexpr int64_t kTokenElements = kKvHeads * kHeadDim;

// `sets` layers of a batch of sequences of one length; keys, values and queries are cut from the
// pool. A set has its own pages in a scattered order.
class Batch {
 public:
  Batch(Bench& bench, int64_t sequences, int64_t length, int64_t new_tokens, int64_t page_size)
      : sequences_(sequences), length_(length), new_tokens_(new_tokens), page_size_(page_size) {
    const int64_t pages = page_size > 0 ? (length + page_size - 1) / page_size : 0;
    tokens_ = sequences * (page_size > 0 ? pages * page_size : length);
    sets_ = bench.rotation(2 * tokens_ * kTokenElements * 2);
    pool_ = reinterpret_cast<__half*>(bench.pool());
    std::vector<int32_t> starts, rows = {0};
    for (int64_t s = 0; s < sequences; ++s) {
      starts.push_back(static_cast<int32_t>(s * length));
      rows.push_back(static_cast<int32_t>((s + 1) * new_tokens));
    }
    starts_ = upload(starts);
    row_starts_ = upload(rows);
    lengths_ = upload(std::vector<int32_t>(sequences, static_cast<int32_t>(length)));
    std::vector<int32_t> order(sequences * pages);
    for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int32_t>(i);
    for (size_t i = order.size(); i > 1; --i) {
      std::swap(order[i - 1], order[random_bits(5, i) % i]);
    }
    table_ = upload(order);
    const size_t rows_elements = sequences * new_tokens * kQHeads * kHeadDim;
    q_ = DeviceBuffer<__half>(rows_elements);
    out_ = DeviceBuffer<__half>(rows_elements);
    TRIPTYCH_CUDA_CHECK(cudaMemcpy(q_.data(), pool_, q_.size_bytes(), cudaMemcpyDeviceToDevice));
    workspace_ =
        DeviceBuffer<std::byte>(attention_workspace_bytes(sequences, kQHeads, kKvHeads, kHeadDim));
    TRIPTYCH_CUDA_CHECK(cudaMemset(workspace_.data(), 0, workspace_.size_bytes()));
  }

  [[nodiscard]] int64_t sets() const { return sets_; }
  [[nodiscard]] AttentionArgs<__half> args(int64_t set, LaunchOrder order) const {
    AttentionArgs<__half> args;
    args.q = q_.data();
    args.q_stride = kQHeads * kHeadDim;
    args.out = out_.data();
    args.kv.k = pool_ + set * 2 * tokens_ * kTokenElements;
    args.kv.v = args.kv.k + tokens_ * kTokenElements;
    if (page_size_ > 0) {
      args.kv.page_table = table_.data();
      args.kv.page_table_stride = (length_ + page_size_ - 1) / page_size_;
      args.kv.page_size = page_size_;
    } else {
      args.kv.starts = starts_.data();
    }
    args.kv.num_kv_heads = kKvHeads;
    args.kv.head_dim = kHeadDim;
    args.num_q_heads = kQHeads;
    args.num_sequences = sequences_;
    args.kv_lengths = lengths_.data();
    args.row_starts = row_starts_.data();
    args.rows = sequences_ * new_tokens_;
    args.max_kv_length = length_;
    args.scale = 1.0f / std::sqrt(static_cast<float>(kHeadDim));
    args.workspace = workspace_.data();
    args.order = order;
    return args;
  }
  [[nodiscard]] KernelCost cost() const {
    const int64_t past = length_ - new_tokens_;
    const int64_t attended = new_tokens_ * past + new_tokens_ * (new_tokens_ + 1) / 2;
    return attention_cost(sequences_ * new_tokens_, sequences_ * length_, sequences_ * attended,
                          kQHeads, kKvHeads, kHeadDim);
  }

 private:
  int64_t sequences_, length_, new_tokens_, page_size_, tokens_ = 0, sets_ = 0;
  __half* pool_ = nullptr;
  DeviceBuffer<int32_t> starts_, row_starts_, lengths_, table_;
  DeviceBuffer<__half> q_, out_;
  DeviceBuffer<std::byte> workspace_;
};

std::string layout(int64_t page_size) {
  return page_size > 0 ? "page " + std::to_string(page_size) : std::string("contiguous");
}

void decode_row(Bench& bench, int64_t sequences, int64_t length, int64_t page_size,
                LaunchOrder order) {
  const Batch batch(bench, sequences, length, 1, page_size);
  const bool overlap = order == LaunchOrder::kOverlapPrevious;
  bench.row(overlap ? "decode_attention overlapped" : "decode_attention",
            str_format("B %lld x %lld, %s", static_cast<long long>(sequences),
                       static_cast<long long>(length), layout(page_size).c_str()),
            batch.cost(), batch.sets(), [&](int64_t i, cudaStream_t stream) {
              launch_decode_attention(batch.args(i, order), stream);
            });
}

// Stand for the kernel before attention in a decode step: a block on each SM that leaves little
// shared memory to others and lets the next kernel start at once. The spacer takes a few
// microseconds and reads nothing, so that memory is free for attention's reading ahead. The reader
// (sm_90 and later) streams weights, which it begins before the kernel before it has ended.
constexpr int kNeighbourBytes = 189 << 10;
constexpr long long kSpacerCycles = 8000;
__global__ void __launch_bounds__(256) spacer() {
  extern __shared__ unsigned char shared[];
  allow_next_kernel();
  wait_for_previous_kernels();
  if (threadIdx.x == 0) shared[0] = 0;
  const long long start = clock64();
  while (clock64() - start < kSpacerCycles) {
  }
}
constexpr int kReaderChunk = 16 << 10;
constexpr int kReaderChunks = 16;  // of a block
__global__ void __launch_bounds__(32) reader(const std::byte* weights) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  constexpr int kStages = 10;
  extern __shared__ __align__(128) unsigned char shared[];
  allow_next_kernel();
  const uint32_t ring = shared_address(shared);
  const auto barrier = [&](int i) { return ring + kStages * kReaderChunk + i % kStages * 8; };
  const auto fetch = [&](int i) {
    arrive_and_expect(barrier(i), kReaderChunk);
    const int64_t chunk = int64_t{blockIdx.x} + int64_t{i} * gridDim.x;
    copy_bulk(ring + i % kStages * kReaderChunk, weights + chunk * kReaderChunk, kReaderChunk,
              barrier(i), evict_first_policy());
  };
  if (threadIdx.x == 0) {
    for (int i = 0; i < kStages; ++i) init_barrier(barrier(i), 1);
    publish_barriers();
    for (int i = 0; i < kStages; ++i) fetch(i);
  }
  wait_for_previous_kernels();
  if (threadIdx.x != 0) return;
  for (int i = 0; i < kReaderChunks; ++i) {
    wait_for_barrier(barrier(i), static_cast<uint32_t>(i / kStages) % 2);
    if (i + kStages < kReaderChunks) fetch(i + kStages);
  }
#endif
}
template <class... Params, class... Args>
void launch_neighbour(const Bench& bench, cudaStream_t stream, void (*kernel)(Params...),
                      int threads, Args... args) {
  TRIPTYCH_CUDA_CHECK(
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kNeighbourBytes));
  TRIPTYCH_CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                                           cudaSharedmemCarveoutMaxShared));
  TRIPTYCH_CUDA_CHECK(launch_kernel(kernel, dim3(bench.device().num_sms), dim3(threads),
                                    kNeighbourBytes, stream, LaunchOrder::kOverlapPrevious, 1,
                                    args...));
}
int64_t reader_bytes(const Bench& bench) {
  return int64_t{bench.device().num_sms} * kReaderChunks * kReaderChunk;
}
// The calls read the pool from its end, the cached tokens lie at its start.
void launch_reader(const Bench& bench, int64_t call, cudaStream_t stream) {
  const int64_t sets = std::max<int64_t>(1, bench.pool_bytes() / 4 / reader_bytes(bench));
  const std::byte* weights =
      bench.pool() + bench.pool_bytes() - (call % sets + 1) * reader_bytes(bench);
  launch_neighbour(bench, stream, reader, 32, weights);
}

constexpr int64_t kDecodeShapes[][2] = {{1, 16},    {1, 512},  {1, 2048},  {1, 4096},
                                        {8, 512},   {32, 512}, {128, 512}, {64, 1024},
                                        {32, 2048}, {8, 8192}, {1, 32768}};

TRIPTYCH_BENCH(decode_attention) {
  for (const auto& [sequences, length] : kDecodeShapes) {
    for (const LaunchOrder order : {LaunchOrder::kAfterPrevious, LaunchOrder::kOverlapPrevious}) {
      decode_row(bench, sequences, length, 16, order);
      decode_row(bench, sequences, length, 0, order);
    }
  }
}

std::vector<DecodePlan> chain_plans(const Bench& bench, int64_t sequences, int64_t length) {
  std::vector<DecodePlan> plans = {plan_decode_attention({.num_sequences = sequences,
                                                          .num_kv_heads = kKvHeads,
                                                          .max_kv_length = length,
                                                          .num_sms = bench.device().num_sms})};
  for (const DecodePlan plan : {DecodePlan{2, 1, true},
                                {2, 6},
                                {4, 1},
                                {4, 1, true},
                                {8, 1},
                                {8, 2},
                                {8, 1, true},
                                {16, 1},
                                {16, 1, true},
                                {16, 3}}) {
    const bool fits = sequences * plan.splits >= 8 && sequences * plan.splits <= 64;
    if (fits && length > kDecodeTile) plans.push_back(plan);
  }
  return plans;
}

// What attention adds to a chain is the difference to the neighbour alone; plans beside that of
// plan_decode_attention, which is the first.
void chain_rows(Bench& bench, const std::string& name, int64_t neighbour_bytes,
                const std::function<void(int64_t, cudaStream_t)>& neighbour) {
  bench.row(name, "alone", {.bytes_read = neighbour_bytes}, 100, neighbour);
  for (const auto& [sequences, length] : kDecodeShapes) {
    if (sequences * length > (int64_t{1} << 14)) continue;
    const Batch batch(bench, sequences, length, 1, 16);
    KernelCost cost = batch.cost();
    cost.bytes_read += neighbour_bytes;
    for (const DecodePlan& plan : chain_plans(bench, sequences, length)) {
      bench.row(name + ", decode_attention",
                str_format("B %lld x %lld, %d splits, %d stages, %d held",
                           static_cast<long long>(sequences), static_cast<long long>(length),
                           plan.splits, plan.stages, plan.holds ? 1 : 0),
                cost, batch.sets(), [&](int64_t i, cudaStream_t stream) {
                  neighbour(i, stream);
                  launch_decode_attention(batch.args(i, LaunchOrder::kOverlapPrevious), plan,
                                          stream);
                });
    }
  }
}

TRIPTYCH_BENCH(decode_chain) {
  chain_rows(bench, "spacer", 1,
             [&](int64_t, cudaStream_t stream) { launch_neighbour(bench, stream, spacer, 256); });
  chain_rows(bench, "reader", reader_bytes(bench),
             [&](int64_t call, cudaStream_t stream) { launch_reader(bench, call, stream); });
}

TRIPTYCH_BENCH(prefill_attention) {
  constexpr int64_t kShapes[][3] = {// sequences, keys, new tokens
                                    {8, 512, 512},    {1, 2048, 2048}, {1, 4096, 4096},
                                    {1, 16384, 2048}, {4, 4096, 4096}, {64, 1024, 1}};
  for (const auto& [sequences, length, new_tokens] : kShapes) {
    for (const int64_t page_size : {16, 0}) {
      const Batch batch(bench, sequences, length, new_tokens, page_size);
      const int64_t calls = std::min<int64_t>(batch.sets(), 8);
      bench.row("prefill_attention",
                str_format("%lld x %lld of %lld, %s", static_cast<long long>(sequences),
                           static_cast<long long>(new_tokens), static_cast<long long>(length),
                           layout(page_size).c_str()),
                batch.cost(), calls, [&](int64_t i, cudaStream_t stream) {
                  launch_prefill_attention(batch.args(i, LaunchOrder::kAfterPrevious), stream);
                });
    }
  }
}

}  // namespace
}  // namespace triptych::bench
