// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// How the warps of a cluster add up their parts of decode attention (sm_90 and later).
#pragma once

#include <cstdint>

#include "kernels/common/cluster.cuh"
#include "kernels/cuda/decode_warp.cuh"

namespace triptych::decode {

/// Where the sums of the warps of a cluster, its parts, meet. The numbers of a head are merged in
/// steps of 16, each by one block, its owner, which holds of each part
///   float4 sums[pairs]               maximum and sum of two heads
///   float4 values[slots][8][pairs]   of its steps: WarpState::values
/// They lie where the rings were, by then done with; of a single block, each part in its own ring.
/// All counts are powers of two.
struct Meeting {
  int pairs_log2;  // of query heads of the KV head, rounded up
  int splits_log2;
  int owners_log2;
  int slots_log2;  // steps that a block owns
  int values_at;
  int values_stride;  // between parts
  int bytes;

  __host__ __device__ Meeting(int splits, int group, int steps, int warp_bytes)
      : pairs_log2(log2_up(group) - (group > 1)),
        splits_log2(log2_up(splits)),
        owners_log2(log2_up(splits < steps ? splits : steps)),
        slots_log2(log2_up(steps) - owners_log2) {
    const int sum_bytes = parts() << pairs_log2 << 4;
    values_at = splits == 1 ? 0 : sum_bytes;
    // The 16 bytes spread neighbouring parts over the banks.
    values_stride = splits == 1 ? warp_bytes : (16 << items_log2()) + 16;
    bytes = splits == 1 ? 0 : sum_bytes + parts() * values_stride;
  }
  [[nodiscard]] __host__ __device__ int parts() const { return kWarps << splits_log2; }
  [[nodiscard]] __host__ __device__ int items_log2() const { return slots_log2 + 3 + pairs_log2; }
  // What an owner receives.
  [[nodiscard]] __device__ uint32_t sent_bytes() const {
    return static_cast<uint32_t>(parts() * ((1 << items_log2()) + (1 << pairs_log2)) * 16);
  }

 private:
  static __host__ __device__ int log2_up(int up_to_16) {
    return (up_to_16 > 1) + (up_to_16 > 2) + (up_to_16 > 4) + (up_to_16 > 8);
  }
};

/// Sends what a warp, part number `part`, has summed to the blocks that own it.
template <class T, int kDim, int kHeads, bool kHolds>
__device__ void send_part(const WarpState<T, kDim, kHeads, kHolds>& state, const Meeting& meeting,
                          int part, uint32_t shared, uint32_t received) {
  const int g = static_cast<int>(threadIdx.x) % 32 / 4;
#pragma unroll
  for (int h = 0; h < kHeads / 8; ++h) {
    const float4 softmax = state.softmax(h);
    const int pair = 4 * h + static_cast<int>(threadIdx.x) % 4;
    if (pair >> meeting.pairs_log2 != 0) continue;
    const uint32_t values = shared + meeting.values_at + part * meeting.values_stride;
#pragma unroll
    for (int d = 0; d < kDim / 16; ++d) {
      const int slot = d >> meeting.owners_log2;
      const int owner = d - (slot << meeting.owners_log2);
      const uint32_t place = values + (((slot * 8 + g) << meeting.pairs_log2) + pair) * 16;
      send_to_rank(shared_address_of_rank(place, owner), state.values(h, d),
                   shared_address_of_rank(received, owner));
    }
    const uint32_t sums = shared + ((part << meeting.pairs_log2) + pair) * 16;
    for (int owner = g; owner < 1 << meeting.owners_log2; owner += 8) {
      send_to_rank(shared_address_of_rank(sums, owner), softmax,
                   shared_address_of_rank(received, owner));
    }
  }
}

/// The same in a single block, where the parts stay in the shared memory of their warps.
template <class T, int kDim, int kHeads, bool kHolds>
__device__ void keep_part(const WarpState<T, kDim, kHeads, kHolds>& state, const Meeting& meeting,
                          float4* sums, float4* values) {
  __syncwarp();  // all lanes have read the last tile, over which the values go
  const int g = static_cast<int>(threadIdx.x) % 32 / 4;
#pragma unroll
  for (int h = 0; h < kHeads / 8; ++h) {
    const float4 softmax = state.softmax(h);
    const int pair = 4 * h + static_cast<int>(threadIdx.x) % 4;
    if (pair >> meeting.pairs_log2 != 0) continue;
#pragma unroll
    for (int d = 0; d < kDim / 16; ++d) {
      values[((d * 8 + g) << meeting.pairs_log2) + pair] = state.values(h, d);
    }
    if (g == 0) sums[pair] = softmax;
  }
}

/// Four numbers of two heads, merged of some of the parts: maxima, sums and values.
struct Merged {
  float max[2] = {-INFINITY, -INFINITY};
  float sum[2] = {};
  float value[4] = {};  // of the heads in turn

  /// Relative to maxima that are no smaller.
  __device__ void rescale(float max0, float max1) {
    const float factor[2] = {part_weight(max[0], max0), part_weight(max[1], max1)};
    max[0] = max0;
    max[1] = max1;
#pragma unroll
    for (int i = 0; i < 2; ++i) sum[i] *= factor[i];
#pragma unroll
    for (int i = 0; i < 4; ++i) value[i] *= factor[i % 2];
  }
  /// Takes in kWarps parts, the loads of all of them before the first is used.
  __device__ void add(const float4* sums, int sums_stride, const unsigned char* values,
                      int values_stride) {
    float4 s[kWarps], v[kWarps];
#pragma unroll
    for (int i = 0; i < kWarps; ++i) {
      s[i] = sums[i * sums_stride];
      v[i] = *reinterpret_cast<const float4*>(values + i * values_stride);
    }
    float larger[2] = {max[0], max[1]};
#pragma unroll
    for (int i = 0; i < kWarps; ++i) {
      larger[0] = fmaxf(larger[0], s[i].x);
      larger[1] = fmaxf(larger[1], s[i].z);
    }
    rescale(larger[0], larger[1]);
#pragma unroll
    for (int i = 0; i < kWarps; ++i) {
      const float weight[2] = {part_weight(s[i].x, max[0]), part_weight(s[i].z, max[1])};
      sum[0] += weight[0] * s[i].y;
      sum[1] += weight[1] * s[i].w;
      value[0] += weight[0] * v[i].x;
      value[1] += weight[1] * v[i].y;
      value[2] += weight[0] * v[i].z;
      value[3] += weight[1] * v[i].w;
    }
  }
  /// With the lanes whose number differs in the lowest bits.
  __device__ void add_lanes(int lanes) {
    float larger[2] = {max[0], max[1]};
    for (int n = 1; n < lanes; n *= 2) {
      for (float& m : larger) m = fmaxf(m, __shfl_xor_sync(kAllLanes, m, n));
    }
    rescale(larger[0], larger[1]);
    for (int n = 1; n < lanes; n *= 2) {
      for (float& s : sum) s += __shfl_xor_sync(kAllLanes, s, n);
      for (float& v : value) v += __shfl_xor_sync(kAllLanes, v, n);
    }
  }
};

/// Merges what this block owns. Up to a lane for each split share the parts of an item.
template <int kDim, class T>
__device__ void merge_parts(const Meeting& meeting, int group, const float4* sums,
                            const unsigned char* values, T* out) {
  constexpr int kThreadsLog2 = 7;
  static_assert(kThreads == 1 << kThreadsLog2);
  const int items_log2 = meeting.items_log2();
  const int lanes_log2 = max(0, min(kThreadsLog2 - items_log2, meeting.splits_log2));
  for (int first = 0; first < 1 << (items_log2 + lanes_log2); first += kThreads) {
    const int index = first + static_cast<int>(threadIdx.x);
    const int item = index >> lanes_log2 & ((1 << items_log2) - 1);
    const int lane = index & ((1 << lanes_log2) - 1);
    const int pair = item & ((1 << meeting.pairs_log2) - 1);
    Merged merged;
    for (int part = lane; part < meeting.parts(); part += kWarps << lanes_log2) {
      merged.add(sums + (part << meeting.pairs_log2) + pair, 1 << (lanes_log2 + meeting.pairs_log2),
                 values + part * meeting.values_stride + item * 16,
                 meeting.values_stride << lanes_log2);
    }
    if (lanes_log2 > 0) merged.add_lanes(1 << lanes_log2);
    if (lane != 0 || index >> (items_log2 + lanes_log2) != 0) continue;
    const int row = item >> meeting.pairs_log2;  // 8 slot + g
    const int step = (row / 8 << meeting.owners_log2) + static_cast<int>(blockIdx.x);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int head = 2 * pair + i;
      if (head >= group) break;
      const float scale = merged.sum[i] > 0.0f ? 1.0f / merged.sum[i] : 0.0f;  // 0 without keys
      T* numbers = out + head * kDim + 16 * step + row % 8;
      numbers[0] = static_cast<T>(merged.value[i] * scale);
      numbers[8] = static_cast<T>(merged.value[2 + i] * scale);
    }
  }
}

}  // namespace triptych::decode
