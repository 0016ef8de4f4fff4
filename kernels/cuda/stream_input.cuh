// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// How x comes in: rows in shared memory, as they are or as their RMS norm.
#pragma once

#include "kernels/common/grid_dependency.cuh"
#include "kernels/cuda/stream_ring.cuh"

namespace triptych::stream {

inline constexpr int kCachedVectors = 2;  // of a row, in a thread's registers between two passes

// Columns of x that this rank multiplies.
struct ColumnRange {
  int first;
  int end;  // k at most

  __device__ ColumnRange(const StreamShape& shape, int rank, int k) {
    const int columns = shape.parts / shape.ranks * shape.units_per_part * kStreamUnitColumns;
    first = min(rank * columns, k);
    end = min(first + columns, k);
  }
};

// The last unit may reach past k, where w arrives as zeros: so must x be.
__device__ inline void clear_past_end(const StreamShape& shape, const ColumnRange& range, int m,
                                      unsigned char* x) {
  const int used = (range.end - range.first) * 2;
  const int vectors = (shape.x_stride - used) / 16;
  for (int i = threadIdx.x; i < m * vectors; i += kThreads) {
    *reinterpret_cast<uint4*>(x + i / vectors * shape.x_stride + used + i % vectors * 16) =
        make_uint4(0, 0, 0, 0);
  }
}

// As VectorOf::get, but for bf16 by bit operations: from a pair of 16-bit numbers the compiler
// makes two registers where one is enough.
template <class T>
__device__ float2 unpack(uint32_t word) {
  return PairType<T>::to_float(reinterpret_cast<const typename PairType<T>::Type&>(word));
}
template <>
__device__ inline float2 unpack<__nv_bfloat16>(uint32_t word) {
  return make_float2(__uint_as_float(word << 16), __uint_as_float(word & 0xFFFF0000u));
}

template <class T>
__device__ float sum_of_squares(const Vector8<T>& v) {
  float sum = 0.0f;
#pragma unroll
  for (int p = 0; p < Vector8<T>::kPairs; ++p) {
    const float2 f = unpack<T>(v.words[p]);
    sum += f.x * f.x + f.y * f.y;
  }
  return sum;
}

// The RMS norm of the rows of x, rounded to T as a kernel of its own would leave it. All threads
// share every row, whatever m is: the order of the sum of squares depends on k alone.
template <class T, int kRows>
class NormedInput {
 public:
  __device__ explicit NormedInput(const StreamOp<T>& op) : op_(op), vectors_(op.k / 8) {
#pragma unroll
    for (int i = 0; i < kCachedVectors; ++i) {
      if (index(i) < vectors_) gain_[i] = load_shared_by_blocks(op.norm, index(i));
    }
  }

  __device__ void load() {
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
#pragma unroll
      for (int i = 0; i < kCachedVectors; ++i) {
        if (r < op_.m && index(i) < vectors_) v_[r][i] = load_once(row(r), index(i));
      }
    }
  }
  // Leaves the sums of each warp in sums: [kRows, kWarps].
  __device__ void add_squares(float* sums) {
    const int warp = static_cast<int>(threadIdx.x) / kWarp;
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      if (r >= op_.m) break;
      float sum = 0.0f;
#pragma unroll
      for (int i = 0; i < kCachedVectors; ++i) sum += sum_of_squares(v_[r][i]);
      for (int i = kCachedVectors; index(i) < vectors_; ++i) {
        sum += sum_of_squares(load_once(row(r), index(i)));
      }
#pragma unroll
      for (int offset = kWarp / 2; offset > 0; offset /= 2) {
        sum += __shfl_xor_sync(kAllLanes, sum, offset);
      }
      if (lane == 0) sums[r * kWarps + warp] = sum;
    }
  }
  __device__ void store_normed(const float* sums, const StreamShape& shape,
                               const ColumnRange& range, unsigned char* x) {
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      if (r >= op_.m) break;
      float sum = 0.0f;
#pragma unroll
      for (int w = 0; w < kWarps; ++w) sum += sums[r * kWarps + w];
      const float scale = rsqrtf(sum / static_cast<float>(op_.k) + op_.eps);
      T* to = reinterpret_cast<T*>(x + r * shape.x_stride);
      stay_packed(v_[r]);
#pragma unroll
      for (int i = 0; i < kCachedVectors; ++i) {
        store_one(to, range, index(i), v_[r][i], gain_[i], scale);
      }
      for (int i = kCachedVectors; index(i) < vectors_; ++i) {
        store_one(to, range, index(i), load_once(row(r), index(i)),
                  load_shared_by_blocks(op_.norm, index(i)), scale);
      }
    }
  }

 private:
  // The compiler would convert all rows to f32 early, which takes twice the registers there are.
  static __device__ void stay_packed(Vector8<T> (&v)[kCachedVectors]) {
#pragma unroll
    for (int i = 0; i < kCachedVectors; ++i) {
#pragma unroll
      for (int p = 0; p < Vector8<T>::kPairs; ++p) asm volatile("" : "+r"(v[i].words[p]));
    }
  }
  __device__ int index(int i) const { return i * kThreads + static_cast<int>(threadIdx.x); }
  __device__ const T* row(int r) const { return op_.x + static_cast<int64_t>(r) * op_.k; }
  __device__ void store_one(T* to, const ColumnRange& range, int vector, const Vector8<T>& v,
                            const Vector8<T>& gain, float scale) const {
    if (vector * 8 < range.first || vector * 8 >= range.end) return;
    Vector8<T> normed;
#pragma unroll
    for (int p = 0; p < Vector8<T>::kPairs; ++p) {
      const float2 f = unpack<T>(v.words[p]);
      const float2 g = unpack<T>(gain.words[p]);
      normed.set(p, f.x * scale * g.x, f.y * scale * g.y);
    }
    store(to, vector - range.first / 8, normed);
  }

  const StreamOp<T>& op_;
  int vectors_;
  Vector8<T> gain_[kCachedVectors];
  Vector8<T> v_[kRows][kCachedVectors];
};

}  // namespace triptych::stream
