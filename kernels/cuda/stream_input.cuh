// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// How x comes in: chunks of columns in shared memory, as they are or times the weight of the norm.
// The finishing warps bring them, and the streaming warps begin when the first one is there.
#pragma once

#include "kernels/common/proxy_fence.cuh"
#include "kernels/cuda/stream_ring.cuh"

namespace triptych::stream {

inline constexpr int kChunkVectors = kStreamChunkColumns / 8;
static_assert(kChunkVectors == kFinishThreads, "a thread has one vector of each row of a chunk");

__device__ inline void sync_finishing_threads() {
  asm volatile("bar.sync 1, %0;" ::"n"(kFinishThreads) : "memory");
}

// The slots of x are filled in turn. Where the next chunk lies.
class XPlace {
 public:
  __device__ XPlace(const StreamShape& shape, uint32_t shared) : shape_(&shape), shared_(shared) {}

  __device__ void next() {
    if (++slot_ == shape_->x_slots) {
      slot_ = 0;
      ++use_;
    }
  }
  __device__ int offset() const { return shape_->x + slot_ * shape_->x_slot_bytes; }
  /// Barriers: the rows as they are have come, before the norm; x can be multiplied; it has been.
  __device__ uint32_t raw() const { return barrier(0); }
  __device__ uint32_t ready() const { return barrier(1); }
  __device__ uint32_t free() const { return barrier(2); }
  __device__ uint32_t parity() const { return use_ & 1; }
  __device__ void wait_until_free() const {
    if (use_ > 0) wait_for_barrier(free(), (use_ - 1) & 1);
  }

  static __device__ void init_barriers(const StreamShape& shape, uint32_t shared) {
    XPlace place(shape, shared);
    for (int i = 0; i < shape.x_slots; ++i, place.next()) {
      init_barrier(place.raw(), 1);
      init_barrier(place.ready(), kFinishWarps * kWarpArrivals);
      init_barrier(place.free(), kStreamWarps * kWarpArrivals);
    }
  }

 private:
  __device__ uint32_t barrier(int kind) const {
    return shared_ + shape_->x_barriers + (slot_ + kind * shape_->x_slots) * 8;
  }

  const StreamShape* shape_;
  uint32_t shared_;
  int slot_ = 0;
  uint32_t use_ = 0;
};

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

/// Brings x, by all finishing threads. The RMS norm takes two steps, because 1 / RMS
/// is known only when all of x has been read: rows x * gain * 2^e, rounded to T once, are
/// multiplied with w, and the sums are multiplied by 1 / (RMS 2^e). e brings the row near 1 by its
/// first 64 columns: f16 neither overflows nor loses bits. All threads share every row, whatever m
/// is: the order of the sum of squares depends on k alone.
template <class T, int kRows>
class Input {
 public:
  /// Reads nothing that an earlier kernel wrote.
  __device__ Input(const StreamLaunch<T>& launch, unsigned char* memory, uint32_t shared,
                   int thread)
      : op_(launch.op),
        shape_(launch.shape),
        memory_(memory),
        shared_(shared),
        warp_(thread / kWarp),
        lane_(thread % kWarp),
        thread_(thread) {
    if (op_.norm != nullptr) gain_ = load_gain(thread_);
  }

  /// One pass over k, into the places from `place` on. `first`: of all passes.
  __device__ void bring(XPlace& place, bool first) {
    if (op_.norm == nullptr) {
      for (int chunk = 0; chunk < shape_.chunks; ++chunk, place.next()) {
        place.wait_until_free();
        clear_past_end(chunk, place);
        arrive_as_warp(place.ready(), warp_ == 0 ? chunk_bytes(chunk) : 0);
        start_rows(chunk, place, place.ready());
      }
    } else {
      bring_normed(place, first);
    }
  }
  /// What the sums of a row are multiplied by.
  __device__ float factor(int row) const {
    if (op_.norm == nullptr) return 1.0f;
    float scale = 1.0f;
#pragma unroll
    for (int r = 0; r < kRows; ++r) scale = r == row ? scale_[r] : scale;
    const float* squares = reinterpret_cast<const float*>(memory_ + shape_.squares);
    float sum = 0.0f;
    for (int i = 0; i < kFinishWarps; ++i) sum += squares[i * op_.m + row];
    return rsqrtf(sum / static_cast<float>(op_.k) + op_.eps) / scale;
  }

 private:
  static constexpr int kRowsTogether = kRows < 4 ? kRows : 4;  // whose loads are in flight at once

  __device__ int columns_of(int chunk) const {
    return min(op_.k - chunk * kStreamChunkColumns, kStreamChunkColumns);
  }
  __device__ Vector8<T> load_gain(int vector) const {
    return vector < op_.k / 8 ? load_shared_by_blocks(op_.norm, vector) : Vector8<T>();
  }
  // The last unit may reach past k, where w arrives as zeros: so must x be.
  __device__ void clear_past_end(int chunk, const XPlace& place) const {
    if (thread_ < columns_of(chunk) / 8) return;
    for (int r = 0; r < op_.m; ++r) {
      *reinterpret_cast<uint4*>(memory_ + place.offset() + r * kStreamChunkStride + thread_ * 16) =
          make_uint4(0, 0, 0, 0);
    }
    order_before_bulk_copies();  // that fill the place again
  }
  __device__ uint32_t chunk_bytes(int chunk) const {
    return static_cast<uint32_t>(columns_of(chunk) * 2 * op_.m);
  }
  // The first warp starts the copies of the rows as they are, a lane a row.
  __device__ void start_rows(int chunk, const XPlace& place, uint32_t barrier) const {
    if (thread_ >= op_.m) return;
    copy_bulk(shared_ + place.offset() + thread_ * kStreamChunkStride,
              op_.x + static_cast<int64_t>(thread_) * op_.k + chunk * kStreamChunkColumns,
              static_cast<uint32_t>(columns_of(chunk) * 2), barrier);
  }
  __device__ void start_raw(int chunk, XPlace& place) const {
    if (warp_ == 0) {
      place.wait_until_free();
      if (lane_ == 0) arrive_and_expect(place.raw(), chunk_bytes(chunk));
      __syncwarp();
      start_rows(chunk, place, place.raw());
    }
    place.next();
  }
  __device__ void bring_normed(XPlace& place, bool first) {
    XPlace ahead = place;
    int started = 0;
    for (; started < min(shape_.chunks, shape_.x_slots); ++started) start_raw(started, ahead);
    choose_scales();
    Vector8<T> gain = gain_;
#pragma unroll 1
    for (int chunk = 0; chunk < shape_.chunks; ++chunk, place.next()) {
      const int vector = chunk * kChunkVectors + thread_;
      const Vector8<T> next_gain = load_gain(vector + kChunkVectors);
      wait_for_barrier(place.raw(), place.parity());
      if (vector < op_.k / 8) {
        multiply(memory_ + place.offset() + thread_ * 16, gain);
      } else {
        clear_past_end(chunk, place);
      }
      order_before_bulk_copies();  // that fill the place again
      arrive_as_warp(place.ready());
      gain = next_gain;
      // Its place was that of the chunk before this one.
      if (chunk > 0 && started < shape_.chunks) start_raw(started++, ahead);
    }
    if (!first) return;
    store_squares();
    sync_finishing_threads();
  }

  // Eight lanes look at a row.
  __device__ void choose_scales() {
#pragma unroll
    for (int i = 0; i < kRows; i += 4) {
      const int row = min(i + lane_ / 8, op_.m - 1);
      float sum = sum_of_squares(load_once(op_.x + static_cast<int64_t>(row) * op_.k, lane_ % 8));
#pragma unroll
      for (int offset = 1; offset < 8; offset *= 2) {
        sum += __shfl_xor_sync(kAllLanes, sum, offset);
      }
      const int exponent = (__float_as_int(sum * (1.0f / 64.0f) + op_.eps) >> 23) - 127;
      const float scale = __int_as_float((127 - (exponent >> 1)) << 23);
#pragma unroll
      for (int j = 0; j < 4 && i + j < kRows; ++j) {
        scale_[i + j] = __shfl_sync(kAllLanes, scale, j * 8);
        sum_[i + j] = 0.0f;
      }
    }
  }
  // This thread's vector of every row, in place.
  __device__ void multiply(unsigned char* x, const Vector8<T>& gain) {
    float2 g[Vector8<T>::kPairs];
#pragma unroll
    for (int p = 0; p < Vector8<T>::kPairs; ++p) g[p] = unpack<T>(gain.words[p]);
#pragma unroll
    for (int first = 0; first < kRows; first += kRowsTogether) {
      if (first >= op_.m) break;
      Vector8<T> v[kRowsTogether];
#pragma unroll
      for (int i = 0; i < kRowsTogether; ++i) {
        v[i] = *reinterpret_cast<const Vector8<T>*>(x +
                                                    min(first + i, op_.m - 1) * kStreamChunkStride);
      }
#pragma unroll
      for (int i = 0; i < kRowsTogether; ++i) {
        const int r = first + i;
        if (r >= op_.m) break;
        sum_[r] += sum_of_squares(v[i]);
        Vector8<T> scaled;
#pragma unroll
        for (int p = 0; p < Vector8<T>::kPairs; ++p) {
          const float2 f = unpack<T>(v[i].words[p]);
          scaled.set(p, f.x * scale_[r] * g[p].x, f.y * scale_[r] * g[p].y);
        }
        *reinterpret_cast<Vector8<T>*>(x + r * kStreamChunkStride) = scaled;
      }
    }
  }
  __device__ void store_squares() {
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      if (r >= op_.m) break;
      float sum = sum_[r];
#pragma unroll
      for (int offset = kWarp / 2; offset > 0; offset /= 2) {
        sum += __shfl_xor_sync(kAllLanes, sum, offset);
      }
      if (lane_ == 0) {
        reinterpret_cast<float*>(memory_ + shape_.squares)[warp_ * op_.m + r] = sum;
      }
    }
  }

  const StreamOp<T>& op_;
  const StreamShape& shape_;
  unsigned char* memory_;
  uint32_t shared_;
  int warp_;
  int lane_;
  int thread_;
  Vector8<T> gain_;
  float scale_[kRows];
  float sum_[kRows];
};

}  // namespace triptych::stream
