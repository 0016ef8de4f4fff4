// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// Sampling by temperature, top-k and top-p without a sort: the keys of f16 and bf16 are 16-bit
// integers, so the key at which a sum over the larger ones reaches a target is found by narrowing
// an interval of keys, each time to a quarter. Tokens of that very key are kept from the lowest
// index on. With a small top_k the candidates are few: each block keeps what reaches its top_k-th
// largest maximum of a thread, and one block ranks what all have kept. A row is shared by a group
// of 1 to 8 blocks, which keep its keys in shared memory; what does not fit is read again from the
// L2 cache in each pass.
#include <algorithm>

#include "base/check.h"
#include "kernels/common/cuda_check.h"
#include "kernels/common/grid_dependency.cuh"
#include "kernels/cuda/launch_shape.h"
#include "kernels/cuda/row_keys.cuh"

namespace triptych {
namespace {

using namespace sampling;

// A key at which a sum over keys from above reaches a target.
struct Threshold {
  uint32_t key;    // kNanKey: nothing was cut
  uint64_t above;  // sum over larger keys
};

template <class T, int kBlocks>
class RowSampler : private RowKeys<T, kBlocks> {
  using Base = RowKeys<T, kBlocks>;
  using Base::exchange, Base::for_each_in, Base::for_each_key, Base::for_each_key_of_many;
  using Base::for_each_round;
  using Base::inclusive_scan, Base::keys_of, Base::scan_block;
  using Base::parity_, Base::rounds_, Base::shared_;
  using typename Base::Group;

 public:
  __device__ RowSampler(const SampleArgs<T>& args, int64_t row, Shared& shared, uint4* held,
                        int held_rounds)
      : Base(args, row, shared, held, held_rounds), scale_(sample_scale(args.params.temperature)) {}

  __device__ int32_t sample(const SamplingParams& params, uint32_t bits) {
    if (params.top_k > 0 && params.top_k <= kMaxFew && list_candidates(params.top_k)) {
      return Group::rank() == 0 ? choose_listed(params, bits) : 0;
    }
    Values largest;
    for_each_key([&](uint32_t key, int) { largest.v[0] = max(largest.v[0], uint64_t{key}); });
    max_key_ = static_cast<uint32_t>(this->template reduce<Max>(largest).v[0]);
    if (max_key_ == kNanKey) return 0;
    max_ = value_of_key<T>(max_key_);

    uint64_t total = 0;
    Threshold cut = cut_top_k(params.top_k, &total);
    uint64_t kept_at_cut = cut.key == kNanKey ? 0 : params.top_k - cut.above;
    if (params.top_p < 1.0f) {
      cut = cut_top_p(params.top_p, cut.key, &total, &kept_at_cut);
    }
    int last_at_cut = -1;
    if (cut.key != kNanKey) {
      last_at_cut =
          locate(kept_at_cut - 1, [&](uint32_t key, int) { return uint64_t{key == cut.key}; });
    }
    return locate(sample_target(total, bits), [&](uint32_t key, int index) {
      const bool kept = key > cut.key || (key == cut.key && index <= last_at_cut);
      return kept && key != kNanKey ? weight(key) : 0;
    });
  }

 private:
  __device__ uint64_t weight(uint32_t key) const {
    return sample_weight(value_of_key<T>(key), max_, scale_);
  }

  // Larger for the likelier of two tokens, the lower index where the keys are equal.
  static __device__ uint64_t pack(uint32_t key, int index) {
    return uint64_t{key} << 32 | (0xFFFFFFFFu - static_cast<uint32_t>(index));
  }
  static __device__ uint32_t key_of(uint64_t packed) { return static_cast<uint32_t>(packed >> 32); }
  static __device__ int index_of(uint64_t packed) {
    return static_cast<int>(0xFFFFFFFFu - static_cast<uint32_t>(packed));
  }

  // The largest bound that the values of `count` threads of this block reach; 0 if there is none.
  static __device__ uint32_t bound_of_largest(uint32_t value, int count) {
    uint32_t bound = 0;
    for (uint32_t bit = 0x8000; bit > 0; bit /= 2) {
      if (__syncthreads_count(value >= (bound | bit)) >= count) bound |= bit;
    }
    return bound;
  }

  // Lists in the first block what may be among the top_k of the row. At least top_k keys of a block
  // reach the bound of its threads' maxima, so all others are beaten by them. False: too many
  // reach it, as where many are equal.
  __device__ bool list_candidates(int top_k) {
    uint32_t largest = kNanKey;
    for_each_key_of_many([&](uint32_t key, int) { largest = max(largest, key); });
    const uint32_t bound = max(bound_of_largest(largest, top_k), kNanKey + 1);
    Shared* first = Group::in_block(&shared_, 0);
    for_each_key_of_many([&](uint32_t key, int index) {
      if (key < bound) return;
      const int at = atomicAdd(&first->num_listed, 1);
      if (at < kMaxListed) first->few.listed[at] = pack(key, index);
    });
    Group::barrier();
    const int listed = first->num_listed;
    Group::barrier();  // nobody reads the first block's memory any more
    return listed <= kMaxListed;
  }

  // In the first block alone.
  __device__ int choose_listed(const SamplingParams& params, uint32_t bits) {
    const int listed = shared_.num_listed;
    if (listed == 0) return 0;
    const int i = static_cast<int>(threadIdx.x);
    const int top_k = min(params.top_k, listed);
    for (int c = i; c < listed; c += kThreads) {
      const uint64_t mine = shared_.few.listed[c];
      int rank = 0;
      for (int other = 0; other < listed; ++other) rank += shared_.few.listed[other] > mine;
      if (rank < top_k) shared_.few.ranked[rank] = mine;
    }
    __syncthreads();
    max_ = value_of_key<T>(key_of(shared_.few.ranked[0]));
    const uint64_t mine = i < top_k ? shared_.few.ranked[i] : 0;
    const uint64_t my_weight = i < top_k ? weight(key_of(mine)) : 0;
    if (i < top_k) shared_.few.weights[i] = my_weight;
    uint64_t total = 0;
    const uint64_t upto = scan_block(my_weight, &total);
    const uint64_t wanted = top_p_target(params.top_p, total);
    if (upto - my_weight < wanted && wanted <= upto) {  // the last that is kept
      shared_.part = i + 1;
      shared_.rest = upto;
    }
    __syncthreads();
    const int kept = shared_.part;
    const uint64_t target = sample_target(shared_.rest, bits);
    if (i < kept) {
      uint64_t before = 0;
      for (int other = 0; other < kept; ++other) {
        const bool lower = index_of(shared_.few.ranked[other]) < index_of(mine);
        before += lower ? shared_.few.weights[other] : 0;
      }
      if (target >= before && target - before < my_weight) shared_.found = index_of(mine);
    }
    __syncthreads();
    return shared_.found;
  }

  // The largest key, of `low` and above, from which on the values of all keys reach the target.
  // They do from `low` on.
  template <class Value>
  __device__ Threshold find_threshold(uint32_t low, uint64_t target, const Value& value) {
    uint32_t high = max_key_ + 1;
    uint64_t above = 0;  // sum from `high` on, below the target
    while (high - low > 1) {
      const uint32_t step = (high - low + kValues) / (kValues + 1);
      const uint32_t first = low + step;
      const uint32_t second = first + step;
      const uint32_t third = second + step;
      Values sums;  // from each pivot to the next, or to `high`
      for_each_key([&](uint32_t key, int) {
        if (key < first || key >= high) return;
        const uint64_t v = value(key);
        sums.v[0] += key < second ? v : 0;
        sums.v[1] += key >= second && key < third ? v : 0;
        sums.v[2] += key >= third ? v : 0;
      });
      sums = this->template reduce<Sum>(sums);
      uint32_t next_low = low;
#pragma unroll
      for (int j = kValues - 1; j >= 0; --j) {
        const uint32_t pivot = low + static_cast<uint32_t>(j + 1) * step;
        if (pivot >= high || next_low != low) continue;
        if (above + sums.v[j] >= target) {
          next_low = pivot;
        } else {
          above += sums.v[j];
          high = pivot;
        }
      }
      low = next_low;
    }
    return {low, above};
  }

  // *total: the weight of the tokens that are left.
  __device__ Threshold cut_top_k(int32_t top_k, uint64_t* total) {
    Values sums;
    for_each_key([&](uint32_t key, int) {
      if (key == kNanKey) return;
      sums.v[0] += weight(key);
      sums.v[1] += 1;
    });
    sums = this->template reduce<Sum>(sums);
    *total = sums.v[0];
    const auto wanted = static_cast<uint64_t>(top_k);
    if (wanted == 0 || wanted >= sums.v[1]) return {kNanKey, 0};
    const Threshold cut = find_threshold(1, wanted, [](uint32_t) { return uint64_t{1}; });
    sums = {};
    for_each_key([&](uint32_t key, int) { sums.v[0] += key > cut.key ? weight(key) : 0; });
    *total = this->template reduce<Sum>(sums).v[0] + (wanted - cut.above) * weight(cut.key);
    return cut;
  }

  // Among the tokens that top-k left: larger keys than `low`, and of that key enough to weigh
  // *total together. *kept: tokens of the key returned that are kept.
  __device__ Threshold cut_top_p(float top_p, uint32_t low, uint64_t* total, uint64_t* kept) {
    const uint64_t target = top_p_target(top_p, *total);
    const Threshold cut =
        find_threshold(max(low, 1u), target, [&](uint32_t key) { return weight(key); });
    const uint64_t each = weight(cut.key);  // above 0: without this key the target is not reached
    *kept = (target - cut.above + each - 1) / each;
    *total = cut.above + *kept * each;
    return cut;
  }

  // The lowest index at which the values of all tokens up to it exceed the target. All of them
  // together do.
  template <class Value>
  __device__ int locate(uint64_t target, const Value& value) {
    const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
    const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
    for_each_round([&](int r, const Vector8<T>& keys) {
      uint64_t sum = 0;
      for_each_in(r, keys, [&](uint32_t key, int index) { sum += value(key, index); });
      sum = Base::template warp_reduce<Sum>(sum);
      if (lane == 0) shared_.parts[r * kWarps + warp] = sum;
    });
    __syncthreads();
    uint64_t lane_sum = 0;
    Values block;
    if (warp == 0) {
      for (int p = first_part(lane); p < first_part(lane + 1); ++p) lane_sum += shared_.parts[p];
      block.v[0] = Base::template warp_reduce<Sum>(lane_sum);
    }
    exchange(block);
    uint64_t before = 0;
    for (int b = 0; b < Group::rank(); ++b) before += shared_.blocks[parity_][b][0];
    const uint64_t mine = shared_.blocks[parity_][Group::rank()][0];
    const bool here = target >= before && target - before < mine;
    if (here) find_in_block(target - before, lane_sum, value);
    Group::barrier();
    return shared_.found;
  }

  // Of those that lane `lane` of warp 0 looks after.
  __device__ int first_part(int lane) const { return rounds_ * kWarps * lane / kWarpSize; }

  // The block that has the target: first the lane of warp 0 whose parts have it, then the part,
  // then that part's warp the token, which it tells every block.
  template <class Value>
  __device__ void find_in_block(uint64_t rest, uint64_t lane_sum, const Value& value) {
    const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
    const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
    if (warp == 0) {
      uint64_t before = inclusive_scan(lane_sum) - lane_sum;
      if (rest >= before && rest - before < lane_sum) {
        int part = first_part(lane);
        while (rest - before >= shared_.parts[part]) before += shared_.parts[part++];
        shared_.part = part;
        shared_.rest = rest - before;
      }
    }
    __syncthreads();
    if (shared_.part % kWarps != warp) return;
    const int r = shared_.part / kWarps;
    const uint64_t wanted = shared_.rest;
    const Vector8<T> keys = keys_of(r);
    uint64_t sum = 0;
    for_each_in(r, keys, [&](uint32_t key, int index) { sum += value(key, index); });
    uint64_t before = inclusive_scan(sum) - sum;
    if (wanted < before || wanted - before >= sum) return;
    int found = -1;
    for_each_in(r, keys, [&](uint32_t key, int index) {
      before += value(key, index);
      if (found < 0 && before > wanted) found = index;
    });
    for (int b = 0; b < kBlocks; ++b) Group::in_block(&shared_, b)->found = found;
  }

  float scale_;
  uint32_t max_key_ = kNanKey;
  float max_ = 0.0f;
};

template <class T, int kBlocks>
__global__ void __launch_bounds__(kThreads, 2) sample_kernel(SampleArgs<T> args, int held_rounds) {
  __shared__ Shared shared;
  extern __shared__ uint4 held[];
  allow_next_kernel();
  wait_for_previous_kernels();
  const int64_t row = blockIdx.x / kBlocks;
  RowSampler<T, kBlocks> sampler(args, row, shared, held, held_rounds);
  const int32_t token = sampler.sample(args.params, sample_bits(args.params.seed, args.keys[row]));
  if (threadIdx.x == 0 && BlockGroup<kBlocks>::rank() == 0) write_token(args, row, token);
}

struct Device {
  int multiprocessors;
  int shared_bytes;  // that a block may have
  bool has_clusters;
};
Device current_device() {
  int id = 0;
  int major = 0;
  Device device{};
  TRIPTYCH_CUDA_CHECK(cudaGetDevice(&id));
  TRIPTYCH_CUDA_CHECK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, id));
  TRIPTYCH_CUDA_CHECK(
      cudaDeviceGetAttribute(&device.multiprocessors, cudaDevAttrMultiProcessorCount, id));
  TRIPTYCH_CUDA_CHECK(
      cudaDeviceGetAttribute(&device.shared_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, id));
  device.has_clusters = major >= 9;
  return device;
}

template <class T, int kBlocks>
void launch(const SampleArgs<T>& args, cudaStream_t stream) {
  const auto share = static_cast<int>(ceil_div(ceil_div(args.vocab_size, kVectorWidth), kBlocks));
  const int held = std::min(static_cast<int>(ceil_div(share, kThreads)), kMaxHeldRounds);
  TRIPTYCH_CUDA_CHECK(cudaFuncSetAttribute(sample_kernel<T, kBlocks>,
                                           cudaFuncAttributeMaxDynamicSharedMemorySize,
                                           kMaxHeldRounds * kRoundBytes));
  TRIPTYCH_CUDA_CHECK(launch_kernel(
      sample_kernel<T, kBlocks>, dim3(static_cast<unsigned>(args.rows * kBlocks)), dim3(kThreads),
      static_cast<size_t>(held * kRoundBytes), stream, args.order, kBlocks, args, held));
}

}  // namespace

// As many blocks a row as leave no multiprocessor with more than one: all rows run at once.
template <class T>
void launch_sample_random(const SampleArgs<T>& args, cudaStream_t stream) {
  const Device device = current_device();
  const bool few = args.params.top_k > 0 && args.params.top_k <= kMaxFew;
  if (!few && sample_histogram_fits(device.shared_bytes)) {
    return launch_sample_histogram(args, device.has_clusters, stream);
  }
  const int64_t blocks = device.has_clusters ? device.multiprocessors / args.rows : 1;
  if (blocks >= 8) return launch<T, 8>(args, stream);
  if (blocks >= 4) return launch<T, 4>(args, stream);
  if (blocks >= 2) return launch<T, 2>(args, stream);
  launch<T, 1>(args, stream);
}

template <class T>
void launch_sample(const SampleArgs<T>& args, cudaStream_t stream) {
  TRIPTYCH_CHECK(args.vocab_size > 0 && args.vocab_size <= kMaxSampleVocab,
                 "sample: vocab_size is outside [1, 2^19]");
  TRIPTYCH_CHECK(args.rows >= 0 && args.rows <= kMaxGridY, "sample: too many rows");
  TRIPTYCH_CHECK(args.slots == nullptr || args.last_tokens != nullptr,
                 "sample: slots without last_tokens");
  if (args.rows == 0) return;
  if (args.params.greedy()) {
    TRIPTYCH_CHECK(args.workspace != nullptr, "sample: no workspace");
    return launch_argmax(args, stream);
  }
  TRIPTYCH_CHECK(args.keys != nullptr, "sample: no keys");
  launch_sample_random(args, stream);
}

template void launch_sample(const SampleArgs<__half>&, cudaStream_t);
template void launch_sample(const SampleArgs<__nv_bfloat16>&, cudaStream_t);

}  // namespace triptych
