// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// Operations on the heads of q, k and v: bias, norm, rotation, append to a paged cache; alone and
// in one pass. A group of lanes holds a head, eight numbers each, so that the norm is a few
// shuffles and a rotation needs no other lane: with half-split pairs a lane holds four numbers of
// each half.
#include <algorithm>
#include <bit>

#include "base/check.h"
#include "base/strings.h"
#include "kernels/common/cuda_check.h"
#include "kernels/common/grid_dependency.cuh"
#include "kernels/common/reduce.cuh"
#include "kernels/common/rope_angle.h"
#include "kernels/common/vector8.cuh"
#include "kernels/cuda/decoder_ops.h"
#include "kernels/cuda/launch_shape.h"

namespace triptych {
namespace {

constexpr unsigned kThreads = 256;
constexpr int64_t kMaxHeadDim = int64_t{kWarpSize} * kVectorWidth;
constexpr int kPairs = kVectorWidth / 2;

// Which numbers of a head a lane holds. Pair p of the lane is (a[p], b[p]).
struct LaneSlice {
  int lane;     // in its group
  bool active;  // lanes beyond head_dim / 8 hold nothing
  int head_dim;
  RopeKind kind;

  __device__ LaneSlice(int lane_in_group, int64_t dim, RopeKind rope_kind)
      : lane(lane_in_group),
        active(lane_in_group * kVectorWidth < dim),
        head_dim(static_cast<int>(dim)),
        kind(rope_kind) {}
  __device__ int first_pair() const { return lane * kPairs; }
};

struct HeadValues {
  float a[kPairs];
  float b[kPairs];
};

// What a lane holds of a head, as stored: two pieces of 8 bytes, neighbours or one of each half.
template <class T>
struct RawHead {
  VectorOf<T, 4> first;
  VectorOf<T, 4> second;
};

// Zeros in lanes that hold nothing and where there is no head.
template <class T>
__device__ RawHead<T> load_raw(const LaneSlice& slice, const T* head, bool exists) {
  if (!slice.active || !exists) return {};
  const auto* from = reinterpret_cast<const uint2*>(head);
  const bool half_split = slice.kind == RopeKind::kHalfSplit;
  const uint2 f = __ldcg(from + (half_split ? slice.lane : 2 * slice.lane));
  const uint2 s =
      __ldcg(from + (half_split ? slice.lane + slice.head_dim / 8 : 2 * slice.lane + 1));
  return {{{f.x, f.y}}, {{s.x, s.y}}};
}

template <class T>
__device__ HeadValues unpack(const LaneSlice& slice, const RawHead<T>& raw) {
  HeadValues values;
#pragma unroll
  for (int p = 0; p < kPairs / 2; ++p) {
    const float2 f = raw.first.get(p);
    const float2 s = raw.second.get(p);
    if (slice.kind == RopeKind::kHalfSplit) {
      values.a[2 * p] = f.x;
      values.a[2 * p + 1] = f.y;
      values.b[2 * p] = s.x;
      values.b[2 * p + 1] = s.y;
    } else {
      values.a[p] = f.x;
      values.b[p] = f.y;
      values.a[p + kPairs / 2] = s.x;
      values.b[p + kPairs / 2] = s.y;
    }
  }
  return values;
}

template <class T>
__device__ HeadValues load_head(const LaneSlice& slice, const T* head, bool exists = true) {
  return unpack(slice, load_raw(slice, head, exists));
}

template <class T>
__device__ void store_head(const LaneSlice& slice, const HeadValues& values, T* head) {
  if (!slice.active) return;
  const bool half_split = slice.kind == RopeKind::kHalfSplit;
  VectorOf<T, 4> first;
  VectorOf<T, 4> second;
#pragma unroll
  for (int p = 0; p < kPairs / 2; ++p) {
    if (half_split) {
      first.set(p, values.a[2 * p], values.a[2 * p + 1]);
      second.set(p, values.b[2 * p], values.b[2 * p + 1]);
    } else {
      first.set(p, values.a[p], values.b[p]);
      second.set(p, values.a[p + kPairs / 2], values.b[p + kPairs / 2]);
    }
  }
  auto* to = reinterpret_cast<uint2*>(head);
  to[half_split ? slice.lane : 2 * slice.lane] = make_uint2(first.words[0], first.words[1]);
  to[half_split ? slice.lane + slice.head_dim / 8 : 2 * slice.lane + 1] =
      make_uint2(second.words[0], second.words[1]);
}

__device__ void add(HeadValues& values, const HeadValues& other) {
#pragma unroll
  for (int p = 0; p < kPairs; ++p) {
    values.a[p] += other.a[p];
    values.b[p] += other.b[p];
  }
}

// All lanes of the warp come here, `group` of them for a head.
__device__ void normalise(HeadValues& values, const HeadValues& weight, float eps, int head_dim,
                          int group) {
  float squares = 0.0f;
#pragma unroll
  for (int p = 0; p < kPairs; ++p) {
    squares = fmaf(values.a[p], values.a[p], fmaf(values.b[p], values.b[p], squares));
  }
  const float scale = rsqrtf(warp_sum(squares, group) / static_cast<float>(head_dim) + eps);
#pragma unroll
  for (int p = 0; p < kPairs; ++p) {
    values.a[p] *= scale * weight.a[p];
    values.b[p] *= scale * weight.b[p];
  }
}

struct Rotation {
  CosSin pairs[kPairs];
};

__device__ Rotation make_rotation(const LaneSlice& slice, int32_t position, const float* inv_freq) {
  Rotation rotation;
  if (!slice.active) return rotation;
#pragma unroll
  for (int p = 0; p < kPairs; ++p) {
    rotation.pairs[p] = rope_angle(position, __ldg(inv_freq + slice.first_pair() + p));
  }
  return rotation;
}

__device__ void rotate(HeadValues& values, const Rotation& rotation) {
#pragma unroll
  for (int p = 0; p < kPairs; ++p) {
    const auto [c, s] = rotation.pairs[p];
    const float a = values.a[p];
    const float b = values.b[p];
    values.a[p] = fmaf(a, c, -(b * s));
    values.b[p] = fmaf(b, c, a * s);
  }
}

// The work of a group of lanes: kHeads neighbouring heads of one row, which share their angles and
// are loaded together, before any is stored. Groups beyond the last, and the last of a row, have
// fewer; they take part in the shuffles of the norm all the same.
template <int kHeads>
struct GroupWork {
  int lane;
  int64_t row;
  int64_t first_head;
  int64_t end_head;

  __device__ GroupWork(int lanes, int64_t rows, int64_t heads)
      : lane(static_cast<int>(threadIdx.x) % lanes) {
    const auto chunks = static_cast<uint32_t>((heads + kHeads - 1) / kHeads);
    const uint32_t item =
        blockIdx.x * (kThreads / static_cast<uint32_t>(lanes)) + threadIdx.x / lanes;
    row = item / chunks;
    first_head = int64_t{item % chunks} * kHeads;
    end_head = row < rows ? min(first_head + kHeads, heads) : first_head;
    if (row >= rows) row = 0;
  }
  __device__ bool exists(int i) const { return first_head + i < end_head; }
};

template <class T, int kHeads>
__device__ void load_heads(const LaneSlice& slice, const GroupWork<kHeads>& work, const T* row,
                           RawHead<T> (&raw)[kHeads]) {
#pragma unroll
  for (int i = 0; i < kHeads; ++i) {
    raw[i] = load_raw(slice, row + (work.first_head + i) * slice.head_dim, work.exists(i));
  }
}

template <class T, int kHeads>
__global__ void __launch_bounds__(kThreads) head_norm_kernel(HeadNormArgs<T> args, int group) {
  allow_next_kernel();
  const GroupWork<kHeads> work(group, args.rows, args.num_heads);
  const LaneSlice slice(work.lane, args.head_dim, RopeKind::kInterleaved);
  const HeadValues weight = load_head(slice, args.weight);
  wait_for_previous_kernels();
  T* row = args.x + work.row * args.stride;
  RawHead<T> raw[kHeads];
  load_heads(slice, work, row, raw);
#pragma unroll
  for (int i = 0; i < kHeads; ++i) {
    HeadValues values = unpack(slice, raw[i]);
    normalise(values, weight, args.eps, slice.head_dim, group);
    if (work.exists(i)) store_head(slice, values, row + (work.first_head + i) * slice.head_dim);
  }
}

template <class T, int kHeads>
__global__ void __launch_bounds__(kThreads) rope_kernel(RopeCudaArgs<T> args, int group) {
  allow_next_kernel();
  const GroupWork<kHeads> work(group, args.rows, args.num_heads);
  const LaneSlice slice(work.lane, args.head_dim, args.kind);
  wait_for_previous_kernels();
  T* row = args.x + work.row * args.stride;
  RawHead<T> raw[kHeads];
  load_heads(slice, work, row, raw);
  const Rotation rotation = make_rotation(slice, args.positions[work.row], args.inv_freq);
#pragma unroll
  for (int i = 0; i < kHeads; ++i) {
    HeadValues values = unpack(slice, raw[i]);
    rotate(values, rotation);
    if (work.exists(i)) store_head(slice, values, row + (work.first_head + i) * slice.head_dim);
  }
}

// Where token `position` of a sequence lies in a paged cache, in elements; head by head of it.
template <class T>
__device__ int64_t cache_offset(const KvView<T>& kv, int32_t sequence, int32_t position,
                                int64_t head) {
  const auto page_size = static_cast<int32_t>(kv.page_size);
  const int32_t page = position / page_size;
  const int32_t slot = position - page * page_size;
  const int64_t page_id = kv.page_table[sequence * kv.page_table_stride + page];
  return ((page_id * kv.num_kv_heads + head) * kv.page_size + slot) * kv.head_dim;
}

// One thread moves one vector of a key and the same of its value. Divisions are of 32 bits.
template <class T>
__global__ void __launch_bounds__(kThreads) kv_append_kernel(NewKv<T> rows, KvView<T> kv) {
  allow_next_kernel();
  wait_for_previous_kernels();
  const auto head_vectors = static_cast<uint32_t>(kv.head_dim / kVectorWidth);
  const uint32_t row_vectors = static_cast<uint32_t>(kv.num_kv_heads) * head_vectors;
  const uint32_t item = blockIdx.x * kThreads + threadIdx.x;
  const uint32_t row = item / row_vectors;
  if (row >= rows.rows) return;
  const uint32_t in_row = item - row * row_vectors;
  const int64_t from = row * (rows.stride / kVectorWidth) + in_row;
  const Vector8<T> k = load_once(rows.k, from);
  const Vector8<T> v = load_once(rows.v, from);
  const int32_t sequence = rows.row_sequences[row];
  if (sequence < 0) return;
  const uint32_t head = in_row / head_vectors;
  const uint32_t column = in_row - head * head_vectors;
  const int64_t to = cache_offset(kv, sequence, rows.positions[row], head) / kVectorWidth + column;
  store(kv.k, to, k);
  store(kv.v, to, v);
}

// Heads of a row in the order q, k, v.
template <class T, int kHeads>
__global__ void __launch_bounds__(kThreads)
    rope_kv_append_kernel(RopeKvAppendArgs<T> args, int group) {
  allow_next_kernel();
  const int64_t head_dim = args.kv.head_dim;
  const int64_t first_v = args.num_q_heads + args.kv.num_kv_heads;
  const int64_t heads = first_v + args.kv.num_kv_heads;
  const GroupWork<kHeads> work(group, args.rows, heads);
  const LaneSlice slice(work.lane, head_dim, args.kind);
  wait_for_previous_kernels();
  RawHead<T> raw[kHeads];
  load_heads(slice, work, args.qkv + work.row * heads * head_dim, raw);
  const int32_t position = args.positions[work.row];
  const int32_t sequence = args.row_sequences[work.row];
  const Rotation rotation = make_rotation(slice, position, args.inv_freq);
#pragma unroll
  for (int i = 0; i < kHeads; ++i) {
    const int64_t head = work.first_head + i;
    const bool exists = work.exists(i);
    HeadValues values = unpack(slice, raw[i]);
    if (args.bias != nullptr) add(values, load_head(slice, args.bias + head * head_dim, exists));
    const bool is_q = head < args.num_q_heads;
    const bool is_v = head >= first_v;
    // Groups of one warp may hold heads of different kinds: all of them normalise, and those that
    // have no weight keep what they had.
    if (args.q_norm != nullptr || args.k_norm != nullptr) {
      const T* weight = is_q ? args.q_norm : is_v ? nullptr : args.k_norm;
      HeadValues normed = values;
      normalise(normed, load_head(slice, weight, weight != nullptr), args.eps, slice.head_dim,
                group);
      if (weight != nullptr) values = normed;
    }
    if (!is_v) rotate(values, rotation);
    if (!exists) continue;
    if (is_q) {
      store_head(slice, values, args.q_out + (work.row * args.num_q_heads + head) * head_dim);
    } else if (sequence >= 0) {
      T* cache = is_v ? args.kv.v : args.kv.k;
      const int64_t kv_head = head - (is_v ? first_v : args.num_q_heads);
      store_head(slice, values, cache + cache_offset(args.kv, sequence, position, kv_head));
    }
  }
}

// Sharing angles saves arithmetic where it is the limit, and more loads are in flight; few heads
// are spread over more threads.
constexpr int kShared = 4;
bool shares_angles(int64_t rows, int64_t heads) {
  constexpr int64_t kManyHeads = 1 << 15;
  return rows * heads >= kManyHeads;
}

// Launches kernel(args, lanes of a group) over `rows` x `heads` heads, `heads_per_group` a group.
template <class Args>
void launch_heads(void (*kernel)(Args, int), const Args& args, int64_t rows, int64_t heads,
                  int64_t head_dim, int heads_per_group, LaunchOrder order, cudaStream_t stream) {
  TRIPTYCH_CHECK(head_dim > 0 && head_dim % kVectorWidth == 0 && head_dim <= kMaxHeadDim,
                 "head_dim is not a multiple of 8 up to 256");
  const auto lanes = std::bit_ceil(static_cast<unsigned>(head_dim / kVectorWidth));
  const int64_t groups = rows * ceil_div(heads, heads_per_group);
  TRIPTYCH_CHECK(groups < (int64_t{1} << 31), "2^31 heads or more");
  const int64_t blocks = ceil_div(groups * lanes, kThreads);
  TRIPTYCH_CUDA_CHECK(launch_kernel(kernel, dim3(static_cast<unsigned>(blocks)), dim3(kThreads), 0,
                                    stream, order, 1, args, static_cast<int>(lanes)));
}

}  // namespace

Status decoder_ops_support(int64_t hidden_size, int64_t head_dim, int64_t intermediate_size) {
  const auto unsupported = [](const char* name, int64_t value, const char* expected) {
    return fail(ErrorCode::kUnsupported, str_format("%s %lld on a CUDA device: expected %s", name,
                                                    static_cast<long long>(value), expected));
  };
  if (hidden_size <= 0 || hidden_size % kVectorWidth != 0) {
    return unsupported("hidden_size", hidden_size, "a multiple of 8");
  }
  if (head_dim <= 0 || head_dim % kVectorWidth != 0 || head_dim > kMaxHeadDim) {
    return unsupported("head_dim", head_dim, "a multiple of 8 up to 256");
  }
  if (intermediate_size <= 0 || intermediate_size % kVectorWidth != 0) {
    return unsupported("intermediate_size", intermediate_size, "a multiple of 8");
  }
  return {};
}

template <class T>
void launch_head_norm(const HeadNormArgs<T>& args, cudaStream_t stream) {
  TRIPTYCH_CHECK(args.stride % kVectorWidth == 0, "head_norm: stride is not a multiple of 8");
  if (args.rows == 0) return;
  const bool share = shares_angles(args.rows, args.num_heads);
  launch_heads(share ? head_norm_kernel<T, kShared> : head_norm_kernel<T, 1>, args, args.rows,
               args.num_heads, args.head_dim, share ? kShared : 1, LaunchOrder::kAfterPrevious,
               stream);
}

template <class T>
void launch_rope(const RopeCudaArgs<T>& args, cudaStream_t stream) {
  TRIPTYCH_CHECK(args.stride % kVectorWidth == 0, "rope: stride is not a multiple of 8");
  if (args.rows == 0) return;
  const bool share = shares_angles(args.rows, args.num_heads);
  launch_heads(share ? rope_kernel<T, kShared> : rope_kernel<T, 1>, args, args.rows, args.num_heads,
               args.head_dim, share ? kShared : 1, LaunchOrder::kAfterPrevious, stream);
}

template <class T>
void launch_kv_append(const NewKv<T>& rows, const KvView<T>& kv, cudaStream_t stream) {
  TRIPTYCH_CHECK(kv.page_table != nullptr, "kv_append: the cache is not paged");
  TRIPTYCH_CHECK(kv.head_dim % kVectorWidth == 0 && rows.stride % kVectorWidth == 0,
                 "kv_append: head_dim and stride are not multiples of 8");
  if (rows.rows == 0) return;
  const int64_t vectors = rows.rows * kv.num_kv_heads * kv.head_dim / kVectorWidth;
  TRIPTYCH_CHECK(vectors < (int64_t{1} << 31), "kv_append: 2^34 elements or more");
  TRIPTYCH_CUDA_CHECK(
      launch_kernel(kv_append_kernel<T>, dim3(static_cast<unsigned>(ceil_div(vectors, kThreads))),
                    dim3(kThreads), 0, stream, LaunchOrder::kAfterPrevious, 1, rows, kv));
}

template <class T>
void launch_rope_kv_append(const RopeKvAppendArgs<T>& args, cudaStream_t stream) {
  TRIPTYCH_CHECK(args.kv.page_table != nullptr, "rope_kv_append: the cache is not paged");
  if (args.rows == 0) return;
  const int64_t heads = args.num_q_heads + 2 * args.kv.num_kv_heads;
  const bool share = shares_angles(args.rows, heads);
  launch_heads(share ? rope_kv_append_kernel<T, kShared> : rope_kv_append_kernel<T, 1>, args,
               args.rows, heads, args.kv.head_dim, share ? kShared : 1, args.order, stream);
}

#define TRIPTYCH_INSTANTIATE(T)                                                    \
  template void launch_head_norm(const HeadNormArgs<T>&, cudaStream_t);            \
  template void launch_rope(const RopeCudaArgs<T>&, cudaStream_t);                 \
  template void launch_kv_append(const NewKv<T>&, const KvView<T>&, cudaStream_t); \
  template void launch_rope_kv_append(const RopeKvAppendArgs<T>&, cudaStream_t);
TRIPTYCH_INSTANTIATE(__half)
TRIPTYCH_INSTANTIATE(__nv_bfloat16)
#undef TRIPTYCH_INSTANTIATE

}  // namespace triptych
