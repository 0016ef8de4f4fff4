// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// Streaming linear layers: requirements, the description of a weight matrix to the copy engine, and
// the choice between the kernels.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <limits>
#include <string>
#include <type_traits>

#include "base/check.h"
#include "base/strings.h"
#include "kernels/common/cuda_check.h"
#include "kernels/cuda/stream_linear.h"
#include "kernels/cuda/stream_maps.h"
#include "kernels/cuda/stream_op.h"
#include "kernels/cuda/stream_wide.h"

namespace triptych {
namespace {

constexpr int64_t kMaxExtent = std::numeric_limits<int32_t>::max() / 2;  // of n and k
constexpr int kGroupRows = 8;                                            // rows of a box

struct Architecture {
  int major = 0;
  int minor = 0;
};
Architecture current_architecture() {
  Architecture arch;
  int device = 0;
  TRIPTYCH_CUDA_CHECK(cudaGetDevice(&device));
  TRIPTYCH_CUDA_CHECK(
      cudaDeviceGetAttribute(&arch.major, cudaDevAttrComputeCapabilityMajor, device));
  TRIPTYCH_CUDA_CHECK(
      cudaDeviceGetAttribute(&arch.minor, cudaDevAttrComputeCapabilityMinor, device));
  return arch;
}

bool is_aligned(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer) % 16 == 0; }

Unexpected unsupported(const char* what, int64_t value) {
  return fail(ErrorCode::kUnsupported,
              str_format("stream_linear: %s, not %lld", what, static_cast<long long>(value)));
}

template <class T>
Status input_supported(const StreamInput<T>& input, const StreamWeight<T>* w) {
  if (w == nullptr || w->data == nullptr) {
    return fail(ErrorCode::kUnsupported, "stream_linear: w is not set");
  }
  if (input.m < 1 || input.m > kMaxWideStreamRows) {
    return unsupported("m must be 1 to 32", input.m);
  }
  if (!w->tma && input.m > kMaxStreamRows) {
    return unsupported("m must be 1 to 16 on devices other than sm_90", input.m);
  }
  if (w->tma && input.norm != nullptr && input.m > kMaxNarrowStreamRows) {
    return unsupported("m must be 1 to 8 with a norm on sm_90", input.m);
  }
  if (input.x == nullptr || !is_aligned(input.x) || !is_aligned(input.norm)) {
    return fail(ErrorCode::kUnsupported,
                "stream_linear: x must be set, x and norm aligned to 16 bytes");
  }
  return {};
}

template <class T>
StreamOp<T> make_op(const StreamInput<T>& input, const StreamWeight<T>& w) {
  StreamOp<T> op;
  op.x = input.x;
  op.norm = input.norm;
  op.eps = input.eps;
  op.m = static_cast<int32_t>(input.m);
  op.n = static_cast<int32_t>(w.n);
  op.k = static_cast<int32_t>(w.k);
  op.w = w.data;
  return op;
}

// Pairs of neighbouring rows.
StreamTiles plain_tiles(int64_t n) {
  const auto count = static_cast<int32_t>((n + kStreamTileRows - 1) / kStreamTileRows);
  return {count, count, 0, kStreamTileRows, kGroupRows, false};
}
// Pairs (i, i + half) of each of the n / (2 half) groups of rows.
StreamTiles split_tiles(int64_t n, int64_t half) {
  const auto per_group = static_cast<int32_t>((half + kGroupRows - 1) / kGroupRows);
  const auto groups = static_cast<int32_t>(n / (2 * half));
  return {groups * per_group,         per_group, static_cast<int32_t>(2 * half), kGroupRows,
          static_cast<int32_t>(half), true};
}

template <class T>
void launch(const StreamOp<T>& op, StreamEpilogue epilogue, const StreamWeight<T>& w,
            LaunchOrder order, cudaStream_t stream) {
  if (!w.tma) {
    launch_stream_general(op, epilogue, order, stream);
  } else if (op.m > kMaxNarrowStreamRows) {
    launch_stream_wide_sm90a(op, epilogue, order, stream);
  } else {
    launch_stream_sm90a(op, epilogue, order, stream);
  }
}

void require(const Status& supported) {
  TRIPTYCH_CHECK(supported.has_value(), supported.error().message);
}

}  // namespace

template <class T>
Result<StreamWeight<T>> make_stream_weight(const T* data, int64_t n, int64_t k) {
  if (k <= 0 || k % kStreamSwizzleColumns != 0 || k > kMaxExtent) {
    return unsupported("k must be a multiple of 64", k);
  }
  if (n <= 0 || n % kGroupRows != 0 || n > kMaxExtent) {
    return unsupported("n must be a multiple of 8", n);
  }
  if (data == nullptr || !is_aligned(data)) {
    return fail(ErrorCode::kUnsupported, "stream_linear: w must be set and aligned to 16 bytes");
  }
  StreamWeight<T> w;
  w.data = data;
  w.n = n;
  w.k = k;
  const Architecture arch = current_architecture();
  if (arch.major < 8) return unsupported("compute capability must be 8 or more", arch.major);
  if (arch.major == 9 && arch.minor == 0) {
    // Launches make the maps of their tiles: here it shows whether the driver can.
    const Result<CUtensorMap> map = make_tile_map(data, n, k, kGroupRows, 1);
    if (!map.has_value()) return Unexpected{map.error()};
    w.tma = true;
  }
  return w;
}

template <class T>
Status stream_linear_supports(const StreamLinearArgs<T>& args) {
  const Status input = input_supported(args.input, args.w);
  if (!input.has_value()) return input;
  if (args.y == nullptr || !is_aligned(args.y)) {
    return fail(ErrorCode::kUnsupported, "stream_linear: y must be set and aligned to 16 bytes");
  }
  return {};
}

template <class T>
Status stream_qkv_supports(const StreamQkvArgs<T>& args) {
  const Status input = input_supported(args.input, args.w);
  if (!input.has_value()) return input;
  const KvView<T>& kv = args.kv;
  if (kv.head_dim <= 0 || kv.head_dim % kStreamTileRows != 0) {
    return unsupported("head_dim must be a multiple of 16", kv.head_dim);
  }
  const int64_t n = (args.num_q_heads + 2 * kv.num_kv_heads) * kv.head_dim;
  if (args.num_q_heads <= 0 || kv.num_kv_heads <= 0 || n != args.w->n) {
    return unsupported("rows of w must be (num_q_heads + 2 num_kv_heads) head_dim", args.w->n);
  }
  if (kv.page_table == nullptr || kv.page_size <= 0) {
    return fail(ErrorCode::kUnsupported, "stream_linear: the cache must be paged");
  }
  if (args.q_out == nullptr || kv.k == nullptr || kv.v == nullptr || args.positions == nullptr ||
      args.row_sequences == nullptr || args.inv_freq == nullptr || !is_aligned(args.q_out) ||
      !is_aligned(kv.k) || !is_aligned(kv.v)) {
    return fail(ErrorCode::kUnsupported,
                "stream_linear: q_out, the cache, positions, row_sequences and inv_freq must be "
                "set, the first two aligned to 16 bytes");
  }
  return {};
}

template <class T>
Status stream_gate_up_supports(const StreamGateUpArgs<T>& args) {
  const Status input = input_supported(args.input, args.w);
  if (!input.has_value()) return input;
  if (args.y == nullptr || !is_aligned(args.y)) {
    return fail(ErrorCode::kUnsupported, "stream_linear: y must be set and aligned to 16 bytes");
  }
  return {};
}

template <class T>
void launch_stream_linear(const StreamLinearArgs<T>& args, cudaStream_t stream) {
  require(stream_linear_supports(args));
  StreamOp<T> op = make_op(args.input, *args.w);
  op.tiles = plain_tiles(args.w->n);
  op.y = args.y;
  op.accumulate = args.accumulate;
  launch(op, StreamEpilogue::kLinear, *args.w, args.order, stream);
}

template <class T>
void launch_stream_qkv(const StreamQkvArgs<T>& args, cudaStream_t stream) {
  require(stream_qkv_supports(args));
  StreamOp<T> op = make_op(args.input, *args.w);
  op.tiles = args.rope_kind == RopeKind::kHalfSplit ? split_tiles(args.w->n, args.kv.head_dim / 2)
                                                    : plain_tiles(args.w->n);
  op.y = args.q_out;
  op.bias = args.bias;
  op.kv = args.kv;
  op.num_q_heads = static_cast<int32_t>(args.num_q_heads);
  op.positions = args.positions;
  op.row_sequences = args.row_sequences;
  op.inv_freq = args.inv_freq;
  launch(op, StreamEpilogue::kQkv, *args.w, args.order, stream);
}

template <class T>
void launch_stream_gate_up(const StreamGateUpArgs<T>& args, cudaStream_t stream) {
  require(stream_gate_up_supports(args));
  StreamOp<T> op = make_op(args.input, *args.w);
  op.tiles = split_tiles(args.w->n, args.w->n / 2);
  op.y = args.y;
  launch(op, StreamEpilogue::kGateUp, *args.w, args.order, stream);
}

template <class T>
std::string_view stream_linear_name(const StreamWeight<T>& w, int64_t m) {
  constexpr bool kF16 = std::is_same_v<T, __half>;
  if (!w.tma) return kF16 ? "stream_linear_f16_general" : "stream_linear_bf16_general";
  if (m <= kMaxNarrowStreamRows) {
    return kF16 ? "stream_linear_f16_sm90a" : "stream_linear_bf16_sm90a";
  }
  return kF16 ? "stream_linear_wide_f16_sm90a" : "stream_linear_wide_bf16_sm90a";
}

KernelCost stream_linear_cost(int64_t m, int64_t n, int64_t k, int64_t y_columns,
                              int64_t element_bytes) {
  return {.bytes_read = (n * k + m * k) * element_bytes,
          .bytes_written = m * y_columns * element_bytes,
          .flops = 2 * m * n * k};
}

#define TRIPTYCH_STREAM_LINEAR(T)                                                  \
  template Result<StreamWeight<T>> make_stream_weight(const T*, int64_t, int64_t); \
  template Status stream_linear_supports(const StreamLinearArgs<T>&);              \
  template Status stream_qkv_supports(const StreamQkvArgs<T>&);                    \
  template Status stream_gate_up_supports(const StreamGateUpArgs<T>&);             \
  template void launch_stream_linear(const StreamLinearArgs<T>&, cudaStream_t);    \
  template void launch_stream_qkv(const StreamQkvArgs<T>&, cudaStream_t);          \
  template void launch_stream_gate_up(const StreamGateUpArgs<T>&, cudaStream_t);   \
  template std::string_view stream_linear_name(const StreamWeight<T>&, int64_t);
TRIPTYCH_STREAM_LINEAR(__half)
TRIPTYCH_STREAM_LINEAR(__nv_bfloat16)
#undef TRIPTYCH_STREAM_LINEAR

}  // namespace triptych
