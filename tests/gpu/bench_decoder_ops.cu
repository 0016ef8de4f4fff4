// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// The small operations of a decoder layer in the sizes of Llama-3.1-8B, for a step of decode and
// for a chunk of prefill.
#include <cuda_fp16.h>

#include <map>
#include <numeric>
#include <vector>

#include "base/strings.h"
#include "kernels/cuda/decoder_cost.h"
#include "kernels/cuda/decoder_ops.h"
#include "tests/gpu/bench.h"

namespace triptych::bench {
namespace {

constexpr int64_t kHidden = 4096;
constexpr int64_t kIntermediate = 14336;
constexpr int64_t kQHeads = 32;
constexpr int64_t kKvHeads = 8;
constexpr int64_t kHeadDim = 128;
constexpr int64_t kQkv = (kQHeads + 2 * kKvHeads) * kHeadDim;
constexpr int64_t kPageSize = 16;

std::string shape(int64_t rows, int64_t columns) {
  return str_format("[%lld, %lld]", static_cast<long long>(rows), static_cast<long long>(columns));
}

// What every operation reads beside its rows: row i is token i of one sequence.
struct Metadata {
  explicit Metadata(int64_t rows) {
    std::vector<int32_t> ids(static_cast<size_t>(rows));
    std::iota(ids.begin(), ids.end(), 0);
    indices = upload(ids);
    zeros = upload(std::vector<int32_t>(ids.size()));
    inv_freq = upload(rope_inverse_frequencies(5e5, kHeadDim, {}));
  }
  DeviceBuffer<int32_t> indices;  // 0, 1, 2, ...: tokens, row ids, positions, pages
  DeviceBuffer<int32_t> zeros;
  DeviceBuffer<float> inv_freq;
};

class Cases {
 public:
  Cases(Bench& bench, int64_t rows) : bench_(bench), rows_(rows), meta_(rows) {}

  void run() {
    embed();
    add();
    swiglu();
    rope();
    rope_kv_append();
    kv_append();
    kv_concat();
  }

 private:
  // `elements` of the pool in each of as many sets as it takes.
  template <class Call>
  void row(const char* name, int64_t columns, int64_t elements, const KernelCost& cost,
           const Call& call) {
    const int64_t set = elements * kElementBytes;
    bench_.row(name, shape(rows_, columns), cost, bench_.rotation(set),
               [&](int64_t i, cudaStream_t stream) {
                 call(reinterpret_cast<__half*>(bench_.pool() + i * set), order(i), stream);
               });
  }
  static LaunchOrder order(int64_t i) {
    return i == 0 ? LaunchOrder::kAfterPrevious : LaunchOrder::kOverlapPrevious;
  }
  KvView<__half> cache(__half* k) const {
    return {.k = k,
            .v = k + rows_up() * kKvHeads * kHeadDim,
            .page_table = meta_.indices.data(),
            .page_table_stride = rows_,
            .page_size = kPageSize,
            .num_kv_heads = kKvHeads,
            .head_dim = kHeadDim};
  }
  int64_t rows_up() const { return (rows_ + kPageSize - 1) / kPageSize * kPageSize; }
  int64_t cache_elements() const { return 2 * rows_up() * kKvHeads * kHeadDim; }

  void embed() {
    row("embed", kHidden, 2 * rows_ * kHidden, row_copy_cost(rows_, kHidden),
        [&](__half* x, LaunchOrder order, cudaStream_t stream) {
          launch_embed<__half>({.table = x,
                                .hidden_size = kHidden,
                                .tokens = meta_.indices.data(),
                                .out = x + rows_ * kHidden,
                                .rows = rows_,
                                .order = order},
                               stream);
        });
  }
  void add() {
    const int64_t count = rows_ * kHidden;
    row("add", kHidden, 3 * count, add_cost(count),
        [&](__half* x, LaunchOrder, cudaStream_t stream) {
          launch_add(x, x + count, x + 2 * count, count, stream);
        });
  }
  void swiglu() {
    row("swiglu", kIntermediate, 3 * rows_ * kIntermediate, swiglu_cost(rows_, kIntermediate),
        [&](__half* x, LaunchOrder order, cudaStream_t stream) {
          launch_swiglu<__half>({.gate = x,
                                 .up = x + kIntermediate,
                                 .stride = 2 * kIntermediate,
                                 .y = x + 2 * rows_ * kIntermediate,
                                 .rows = rows_,
                                 .columns = kIntermediate,
                                 .order = order},
                                stream);
        });
  }
  void rope() {
    row("rope of q", kQHeads * kHeadDim, rows_ * kQkv, rope_cost(rows_, kQHeads, kHeadDim),
        [&](__half* x, LaunchOrder, cudaStream_t stream) {
          launch_rope<__half>({.x = x,
                               .stride = kQkv,
                               .rows = rows_,
                               .num_heads = kQHeads,
                               .head_dim = kHeadDim,
                               .positions = meta_.indices.data(),
                               .inv_freq = meta_.inv_freq.data()},
                              stream);
        });
  }
  void rope_kv_append() {
    for (const bool norm : {false, true}) {
      const int64_t q_elements = rows_ * kQHeads * kHeadDim;
      row(norm ? "rope_kv_append, qk norm" : "rope_kv_append", kQkv,
          rows_ * kQkv + q_elements + cache_elements() + kHeadDim,
          rope_kv_append_cost(rows_, kQHeads, kKvHeads, kHeadDim, false, norm),
          [&](__half* x, LaunchOrder order, cudaStream_t stream) {
            __half* q = x + rows_ * kQkv;
            const __half* weight = q + q_elements + cache_elements();
            launch_rope_kv_append<__half>({.qkv = x,
                                           .rows = rows_,
                                           .q_norm = norm ? weight : nullptr,
                                           .k_norm = norm ? weight : nullptr,
                                           .eps = 1e-6f,
                                           .q_out = q,
                                           .num_q_heads = kQHeads,
                                           .kv = cache(q + q_elements),
                                           .positions = meta_.indices.data(),
                                           .row_sequences = meta_.zeros.data(),
                                           .inv_freq = meta_.inv_freq.data(),
                                           .order = order},
                                          stream);
          });
    }
  }
  void kv_append() {
    row("kv_append", 2 * kKvHeads * kHeadDim, rows_ * kQkv + cache_elements(),
        kv_append_cost(rows_, kKvHeads, kHeadDim),
        [&](__half* x, LaunchOrder, cudaStream_t stream) {
          launch_kv_append<__half>({.k = x,
                                    .v = x + kKvHeads * kHeadDim,
                                    .stride = kQkv,
                                    .rows = rows_,
                                    .positions = meta_.indices.data(),
                                    .row_sequences = meta_.zeros.data()},
                                   cache(x + rows_ * kQkv), stream);
        });
  }
  // One row for each sequence of 511.
  void kv_concat() {
    constexpr int32_t kOld = 511;
    const auto n = static_cast<size_t>(std::min<int64_t>(rows_, 128));
    std::vector<int32_t> new_starts, row_starts;
    for (size_t s = 0; s <= n; ++s) {
      row_starts.push_back(static_cast<int32_t>(s));
      new_starts.push_back(static_cast<int32_t>(s) * (kOld + 1));
    }
    const auto device_rows = upload(row_starts);
    const auto device_new_starts = upload(new_starts);
    const auto device_old_lengths = upload(std::vector<int32_t>(n, kOld));
    const auto device_new_lengths = upload(std::vector<int32_t>(n, kOld + 1));
    const auto sequences = static_cast<int64_t>(n);
    const int64_t tokens = sequences * (kOld + 1);
    const int64_t elements = tokens * kKvHeads * kHeadDim;
    // Every call has old sequences of its own, or they would be read from L2.
    std::map<__half*, DeviceBuffer<const __half*>> old_sequences;
    const auto pointers = [&](__half* x) -> const __half* const* {
      DeviceBuffer<const __half*>& known = old_sequences[x];
      if (known.size() == 0) {
        std::vector<const __half*> all(n);
        for (size_t s = 0; s < n; ++s) all[s] = x + s * kOld * kKvHeads * kHeadDim;
        known = upload(all);
      }
      return known.data();
    };
    row("kv_concat of 512 tokens", kKvHeads * kHeadDim, 2 * elements + sequences * kQkv,
        kv_concat_cost(tokens, kKvHeads, kHeadDim),
        [&](__half* x, LaunchOrder, cudaStream_t stream) {
          launch_kv_concat<__half>({.old_sequences = pointers(x),
                                    .old_lengths = device_old_lengths.data(),
                                    .new_cache = x + elements,
                                    .new_starts = device_new_starts.data(),
                                    .new_lengths = device_new_lengths.data(),
                                    .rows = x + 2 * elements,
                                    .stride = kQkv,
                                    .row_starts = device_rows.data(),
                                    .num_sequences = sequences,
                                    .total_tokens = tokens,
                                    .num_kv_heads = kKvHeads,
                                    .head_dim = kHeadDim},
                                   stream);
        });
  }

  Bench& bench_;
  int64_t rows_;
  Metadata meta_;
};

}  // namespace

TRIPTYCH_BENCH(decoder_ops) {
  for (const int64_t rows : {1, 8, 128, 4096}) Cases(bench, rows).run();
}

}  // namespace triptych::bench
