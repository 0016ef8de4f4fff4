// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// Sampling by temperature, top-k and top-p where a block has room for a count of every key (f16 and
// bf16 have 2^16). Equal keys have equal weights, so the counts give the sums over larger keys that
// top-k and top-p ask for, with one weight a key that occurs and not one a logit. A second pass
// over the logits adds weights in order of index until the random number is reached; where
// nothing is cut, that pass is all and needs no counts. A row is shared by a group of 1 to 16
// blocks; each counts its part, and each looks after its share of the keys.
#include <algorithm>

#include "kernels/common/cuda_check.h"
#include "kernels/common/grid_dependency.cuh"
#include "kernels/common/sample_math.h"
#include "kernels/cuda/launch_shape.h"
#include "kernels/cuda/row_histogram.cuh"
#include "kernels/cuda/shared_limit.h"

namespace triptych {
namespace {

using namespace histogram;

// A key at which a sum over keys from above reaches a target, and the sums over larger keys.
struct Threshold {
  uint32_t key;
  uint64_t count;
  uint64_t weight;
};

// Tokens that are left: larger keys than `key`, and the first `kept` of that key.
struct Cut {
  uint32_t key;
  uint64_t kept;
};

template <class T, int kBlocks>
class HistogramSampler : private RowHistogram<T, kBlocks> {
  using Base = RowHistogram<T, kBlocks>;
  using Base::exchange, Base::for_each_in_word, Base::for_each_vector, Base::from_lane;
  using Base::max_key_, Base::rounds_, Base::shared_, Base::kThreadWords;
  using Base::scan_block, Base::warp_scan;
  using typename Base::Group;

 public:
  // parts: [rounds * kWarps] sums of a warp in a round, in order of index, shared memory.
  __device__ HistogramSampler(const SampleArgs<T>& args, int64_t row, Shared& shared,
                              uint32_t* memory)
      : Base(args, row, shared, memory),
        params_(args.params),
        weights_(reinterpret_cast<uint64_t*>(memory + kWords)),
        equals_(reinterpret_cast<uint32_t*>(weights_ + rounds_ * kWarps)),
        scale_(sample_scale(args.params.temperature)) {
    if (threadIdx.x == 0) shared_.part = -1;
    this->clear(cuts());
  }

  // One thread of the group calls write(token).
  template <class Write>
  __device__ void sample(uint32_t bits, const Write& write) {
    if (cuts()) {
      this->count_keys();
    } else {
      this->find_largest();
    }
    if (max_key_ == kNanKey) {
      Group::barrier();  // the others have read this block's memory
      if (threadIdx.x == 0 && Group::rank() == 0) write(0);
      return;
    }
    max_ = value_of_key<T>(max_key_);
    // From minus infinity on, all of them.
    const Cut all = {0x8000 - Infinity<T>::kBits, static_cast<uint64_t>(kMaxSampleVocab)};
    const Cut cut = cuts() ? cut_row(all) : all;
    each_ = weight(cut.key);
    kept_ = cut.kept;
    locate(value_of_key<T>(cut.key), bits, write);
  }

 private:
  __device__ bool cuts() const { return params_.top_k > 0 || params_.top_p < 1.0f; }
  __device__ uint64_t weight(uint32_t key) const {
    return sample_weight(value_of_key<T>(key), max_, scale_);
  }

  // {count, weight} of `count` logits of this key.
  __device__ Pair sums_of(uint32_t key, uint32_t count) const {
    return {count, count > 0 ? count * weight(key) : 0};
  }

  __device__ Cut cut_row(Cut cut) {
    Pair mine = {};  // of this thread's keys
    for (int j = 0; j < kThreadWords; ++j) {
      for_each_in_word(static_cast<int>(threadIdx.x), j, [&](uint32_t key, uint32_t count) {
        const Pair sums = sums_of(key, count);
        mine = {mine.a + sums.a, mine.b + sums.b};
      });
    }
    Pair block = {};
    const Pair upto = scan_block(mine, &block);
    const Pair* const blocks = exchange(block);
    Pair above = {block.a - upto.a, block.b - upto.b};
    Pair all = {};
    for (int b = 0; b < kBlocks; ++b) {
      all = {all.a + blocks[b].a, all.b + blocks[b].b};
      if (b > Group::rank()) above = {above.a + blocks[b].a, above.b + blocks[b].b};
    }
    uint64_t total = all.b;  // of the tokens that are left
    const auto top_k = static_cast<uint64_t>(params_.top_k);
    if (top_k > 0 && top_k < all.a) {
      const Threshold at = find_threshold(0, mine.a, above.a, above, top_k);
      const uint64_t kept = top_k - at.count;
      cut = {at.key, kept};
      total = at.weight + kept * weight(at.key);
    }
    if (params_.top_p < 1.0f) {
      const uint64_t target = top_p_target(params_.top_p, total);
      const Threshold at = find_threshold(1, mine.b, above.b, above, target);
      const uint64_t each = weight(at.key);  // above 0: without it the target is not reached
      cut = {at.key, (target - at.weight + each - 1) / each};
    }
    return cut;
  }

  // The largest key from which on the counts (which 0) or weights (1) of all keys reach the target;
  // they do in the end. mine: the sum of this thread's keys; over: of larger ones; above: both
  // sums.
  __device__ Threshold find_threshold(int which, uint64_t mine, uint64_t over, const Pair& above,
                                      uint64_t target) {
    const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
    const unsigned owners = __ballot_sync(kWholeWarp, over < target && target - over <= mine);
    if (owners != 0) {
      const int owner = __ffs(static_cast<int>(owners)) - 1;
      const int thread = static_cast<int>(threadIdx.x) - lane + owner;
      Pair sums[2] = {};  // of the two keys of a word: the larger keys in the lower lanes
      uint32_t low_key = 0;
      if (lane < kThreadWords) {
        for_each_in_word(thread, kThreadWords - 1 - lane, [&](uint32_t key, uint32_t count) {
          sums[key % 2] = sums_of(key, count);
          low_key = key & ~1u;
        });
      }
      const Pair both = {sums[0].a + sums[1].a, sums[0].b + sums[1].b};
      const Pair upto = warp_scan(both);
      const Pair start = from_lane(above, owner);
      Pair larger = {start.a + upto.a - both.a, start.b + upto.b - both.b};
#pragma unroll
      for (int k = 1; k >= 0; --k) {
        const uint64_t before = which == 0 ? larger.a : larger.b;
        const uint64_t here = which == 0 ? sums[k].a : sums[k].b;
        if (before < target && target - before <= here) {
          tell(which, {low_key + static_cast<uint32_t>(k), larger.a, larger.b});
        }
        larger = {larger.a + sums[k].a, larger.b + sums[k].b};
      }
    }
    Group::barrier();
    const uint64_t* const told = shared_.told[which];
    return {static_cast<uint32_t>(told[0]), told[1], told[2]};
  }
  __device__ void tell(int which, const Threshold& found) {
    for (int b = 0; b < kBlocks; ++b) {
      uint64_t* const told = Group::in_block(&shared_, b)->told[which];
      told[0] = found.key;
      told[1] = found.count;
      told[2] = found.weight;
    }
  }

  // What tokens weigh together of which `sums` says the weight of those above the cut and how many
  // are at it: of these the first ones only are left.
  __device__ uint64_t left(const Pair& sums) const { return sums.a + each_ * min(sums.b, kept_); }
  static __device__ Pair plus(const Pair& a, const Pair& b) { return {a.a + b.a, a.b + b.b}; }
  __device__ Pair logit_sums(float logit, float cut) const {
    return {logit > cut ? sample_weight(logit, max_, scale_) : 0, logit == cut ? 1u : 0u};
  }
  __device__ Pair vector_sums(const Vector8<T>& vector, float cut) const {
    uint64_t above = 0;
    uint32_t equal = 0;
#pragma unroll
    for (int p = 0; p < Vector8<T>::kPairs; ++p) {
      const float2 logits = vector.get(p);
      if (logits.x > cut) above += sample_weight(logits.x, max_, scale_);
      if (logits.y > cut) above += sample_weight(logits.y, max_, scale_);
      equal += (logits.x == cut) + (logits.y == cut);
    }
    return {above, equal};
  }

  // The first token at which the weights of all up to it exceed the random share of their sum.
  template <class Write>
  __device__ void locate(float cut, uint32_t bits, const Write& write) {
    const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
    const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
    for_each_vector([&](int r, const Vector8<T>& vector) {
      const Pair sums = vector_sums(vector, cut);
      // Below 2^43: two halves whose sums over a warp fit 32 bits.
      const uint32_t low = __reduce_add_sync(kWholeWarp, static_cast<uint32_t>(sums.a & 0xFFFFFF));
      const uint32_t high = __reduce_add_sync(kWholeWarp, static_cast<uint32_t>(sums.a >> 24));
      const uint32_t equal = __reduce_add_sync(kWholeWarp, static_cast<uint32_t>(sums.b));
      if (lane == 0) {
        weights_[r * kWarps + warp] = (uint64_t{high} << 24) + low;
        equals_[r * kWarps + warp] = equal;
      }
    });
    __syncthreads();
    const int parts = rounds_ * kWarps;
    const int each = (parts + kThreads - 1) / kThreads;
    const int first = min(static_cast<int>(threadIdx.x) * each, parts);
    const int last = min(first + each, parts);
    Pair mine = {};
    for (int p = first; p < last; ++p) mine = plus(mine, {weights_[p], equals_[p]});
    Pair block = {};
    const Pair upto = scan_block(mine, &block);
    const Pair* const blocks = exchange(block);
    Pair before = {upto.a - mine.a, upto.b - mine.b};
    Pair all = {};
    for (int b = 0; b < kBlocks; ++b) {
      all = plus(all, blocks[b]);
      if (b < Group::rank()) before = plus(before, blocks[b]);
    }
    const uint64_t target = sample_target(left(all), bits);
    if (left(before) <= target && target < left(plus(before, mine))) {
      int part = first;
      for (; part < last - 1; ++part) {
        const Pair next = plus(before, {weights_[part], equals_[part]});
        if (target < left(next)) break;
        before = next;
      }
      shared_.part = part;
      shared_.before = before;
    }
    __syncthreads();
    if (shared_.part >= 0 && shared_.part % kWarps == warp) find_in_part(cut, target, write);
  }

  template <class Write>
  __device__ void find_in_part(float cut, uint64_t target, const Write& write) {
    const int r = shared_.part / kWarps;
    const Vector8<T> vector = this->load(r);
    const Pair mine = vector_sums(vector, cut);
    const Pair upto = warp_scan(mine);
    Pair before = plus(shared_.before, {upto.a - mine.a, upto.b - mine.b});
    if (left(before) > target || target >= left(plus(before, mine))) return;
    int found = -1;
#pragma unroll
    for (int p = 0; p < Vector8<T>::kPairs; ++p) {
      const float2 logits = vector.get(p);
      before = plus(before, logit_sums(logits.x, cut));
      if (found < 0 && target < left(before)) found = 2 * p;
      before = plus(before, logit_sums(logits.y, cut));
      if (found < 0 && target < left(before)) found = 2 * p + 1;
    }
    write(this->index_of(r) + found);
  }

  const SamplingParams& params_;
  uint64_t* weights_;
  uint32_t* equals_;
  float scale_;
  float max_ = 0.0f;
  uint64_t each_ = 0;  // weight of a token at the cut
  uint64_t kept_ = 0;  // tokens there that are left
};

template <class T, int kBlocks>
__global__ void __launch_bounds__(kThreads, 1) histogram_kernel(SampleArgs<T> args) {
  __shared__ Shared shared;
  extern __shared__ __align__(16) uint32_t memory[];
  allow_next_kernel();
  const int64_t row = blockIdx.x / kBlocks;
  HistogramSampler<T, kBlocks> sampler(args, row, shared, memory);
  wait_for_previous_kernels();
  sampler.sample(sample_bits(args.params.seed, args.keys[row]),
                 [&](int32_t token) { write_token(args, row, token); });
}

constexpr int shared_bytes(int64_t vocab_size, int blocks) {
  const int64_t share = ceil_div(ceil_div(vocab_size, kVectorWidth), blocks);
  const auto parts = static_cast<int>(ceil_div(share, kThreads)) * kWarps;
  return kHistogramBytes + parts * static_cast<int>(sizeof(uint64_t) + sizeof(uint32_t));
}
constexpr int kMostSharedBytes = shared_bytes(kMaxSampleVocab, 1);

/// Rows that run at the same time with so many blocks each.
template <class T, int kBlocks>
int64_t rows_at_once(const SampleArgs<T>& args) {
  static SharedLimit limit;
  auto* const kernel = histogram_kernel<T, kBlocks>;
  TRIPTYCH_CUDA_CHECK(
      limit.raise(reinterpret_cast<const void*>(kernel), kMostSharedBytes, kBlocks > 8));
  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim = {kBlocks, 1, 1};
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(kBlocks);
  config.blockDim = dim3(kThreads);
  config.dynamicSmemBytes = static_cast<size_t>(shared_bytes(args.vocab_size, kBlocks));
  config.attrs = &attribute;
  config.numAttrs = 1;
  int clusters = 0;
  TRIPTYCH_CUDA_CHECK(cudaOccupancyMaxActiveClusters(&clusters, kernel, &config));
  return clusters;
}

template <class T, int kBlocks>
void launch(const SampleArgs<T>& args, cudaStream_t stream) {
  TRIPTYCH_CUDA_CHECK(
      launch_kernel(histogram_kernel<T, kBlocks>, dim3(static_cast<unsigned>(args.rows * kBlocks)),
                    dim3(kThreads), static_cast<size_t>(shared_bytes(args.vocab_size, kBlocks)),
                    stream, args.order, kBlocks, args));
}

template <class T, int kBlocks>
bool launch_if_at_once(const SampleArgs<T>& args, cudaStream_t stream) {
  if (rows_at_once<T, kBlocks>(args) < args.rows) return false;
  launch<T, kBlocks>(args, stream);
  return true;
}

}  // namespace

bool sample_histogram_fits(int shared_bytes_per_block) {
  return shared_bytes_per_block >= kMostSharedBytes + static_cast<int>(sizeof(Shared));
}

// As many blocks a row as let all rows run at once.
template <class T>
void launch_sample_histogram(const SampleArgs<T>& args, bool has_clusters, cudaStream_t stream) {
  if (has_clusters &&
      (launch_if_at_once<T, 16>(args, stream) || launch_if_at_once<T, 8>(args, stream) ||
       launch_if_at_once<T, 4>(args, stream) || launch_if_at_once<T, 2>(args, stream))) {
    return;
  }
  static SharedLimit limit;
  TRIPTYCH_CUDA_CHECK(
      limit.raise(reinterpret_cast<const void*>(histogram_kernel<T, 1>), kMostSharedBytes));
  launch<T, 1>(args, stream);
}

template void launch_sample_histogram(const SampleArgs<__half>&, bool, cudaStream_t);
template void launch_sample_histogram(const SampleArgs<__nv_bfloat16>&, bool, cudaStream_t);

}  // namespace triptych
