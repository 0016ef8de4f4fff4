// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// Attention on a CUDA device: what is supported, which variant runs, and how decode is split.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <limits>
#include <string>
#include <type_traits>

#include "base/strings.h"
#include "kernels/common/cuda_check.h"
#include "kernels/cuda/decode_attention.h"
#include "kernels/cuda/prefill_attention.h"

namespace triptych {
namespace {

constexpr int64_t kMaxHeadDim = 256;   // wider sums do not fit the registers
constexpr int64_t kMaxGroup = 16;      // rows of a tensor-core tile
constexpr int64_t kMaxGridYZ = 65535;  // of CUDA
constexpr int64_t kAlignment = 16;     // bytes of one copy
constexpr int64_t kChunkElements = 8;  // numbers in them
constexpr int64_t kMaxTokens = (int64_t{1} << 31) / kMaxGroup - 1;  // rows are counted in an int
constexpr int64_t kSumsBytes = kMaxGroup * 8;                       // of one block in the workspace

struct Device {
  int major = 0;
  int num_sms = 0;
  int max_cluster = 1;
};

// Asked once for each device: the answers do not change.
Result<Device> current_device() {
  int id = 0;
  if (const cudaError_t status = cudaGetDevice(&id); status != cudaSuccess) {
    static_cast<void>(cudaGetLastError());
    return fail(ErrorCode::kUnsupported,
                std::string("attention: no CUDA device: ") + cudaGetErrorString(status));
  }
  static thread_local int known_id = -1;
  static thread_local Device known;
  if (id == known_id) return known;
  Device device;
  TRIPTYCH_CUDA_CHECK(cudaDeviceGetAttribute(&device.major, cudaDevAttrComputeCapabilityMajor, id));
  TRIPTYCH_CUDA_CHECK(cudaDeviceGetAttribute(&device.num_sms, cudaDevAttrMultiProcessorCount, id));
  if (device.major < 8) {
    return fail(ErrorCode::kUnsupported,
                str_format("attention: compute capability %d is below 8.0", device.major));
  }
  if (device.major == 9) device.max_cluster = max_decode_cluster();
  known = device;
  known_id = id;
  return device;
}

bool is_aligned(const void* pointer) {
  return pointer != nullptr && reinterpret_cast<uintptr_t>(pointer) % kAlignment == 0;
}

Unexpected unsupported(const char* format, int64_t value) {
  return fail(ErrorCode::kUnsupported,
              "attention: " + str_format(format, static_cast<long long>(value)));
}

template <class T>
Status shape_supports(const AttentionArgs<T>& args) {
  const int64_t dim = args.kv.head_dim;
  if (dim < kChunkElements || dim > kMaxHeadDim || dim % kChunkElements != 0) {
    return unsupported("head_dim %lld is not a multiple of 8 up to 256", dim);
  }
  if (args.kv.num_kv_heads < 1 || args.kv.num_kv_heads > kMaxGridYZ) {
    return unsupported("num_kv_heads %lld is not within 1 to 65535", args.kv.num_kv_heads);
  }
  if (args.num_q_heads < 1 || args.num_q_heads % args.kv.num_kv_heads != 0) {
    return unsupported("num_q_heads %lld is not a multiple of num_kv_heads", args.num_q_heads);
  }
  if (args.num_q_heads / args.kv.num_kv_heads > kMaxGroup) {
    return unsupported("%lld query heads of a KV head are more than 16",
                       args.num_q_heads / args.kv.num_kv_heads);
  }
  if (args.num_sequences < 0 || args.num_sequences > kMaxGridYZ) {
    return unsupported("num_sequences %lld is not within 0 to 65535", args.num_sequences);
  }
  if (args.max_kv_length < 0 || args.max_kv_length > kMaxTokens) {
    return unsupported("max_kv_length %lld is not within 0 to 2^27", args.max_kv_length);
  }
  if (args.window < 0) return unsupported("window %lld is negative", args.window);
  if (args.q_stride % kChunkElements != 0) {
    return unsupported("q_stride %lld is not a multiple of 8", args.q_stride);
  }
  return {};
}

template <class T>
Status memory_supports(const AttentionArgs<T>& args) {
  if (!is_aligned(args.q) || !is_aligned(args.out) || !is_aligned(args.kv.k) ||
      !is_aligned(args.kv.v)) {
    return fail(ErrorCode::kUnsupported,
                "attention: q, out, k and v must be set and aligned to 16 bytes");
  }
  if (args.kv_lengths == nullptr) {
    return fail(ErrorCode::kUnsupported, "attention: kv_lengths must be set");
  }
  if (args.kv.page_table == nullptr) {
    if (args.kv.starts != nullptr) return {};
    return fail(ErrorCode::kUnsupported, "attention: neither page_table nor starts is set");
  }
  if (args.kv.page_size < kChunkElements || args.kv.page_size % kChunkElements != 0) {
    return unsupported("page_size %lld is not a multiple of 8", args.kv.page_size);
  }
  return {};
}

template <class T>
Status common_supports(const AttentionArgs<T>& args) {
  if (const Status shape = shape_supports(args); !shape.has_value()) return shape;
  return memory_supports(args);
}

// The copy engine brings whole tiles of 16 tokens, in swizzled pieces of 64 numbers.
template <class T>
bool runs_in_clusters(const AttentionArgs<T>& args, const Device& device) {
  const int64_t dim = args.kv.head_dim;
  return device.major == 9 && (dim == 64 || dim == 128 || dim == 256) &&
         (args.kv.page_table == nullptr || args.kv.page_size % kDecodeTile == 0);
}

template <class T>
bool runs_in_warpgroups(const AttentionArgs<T>& args, const Device& device) {
  return device.major == 9 && args.kv.head_dim <= kMaxWarpgroupHeadDim;
}

template <class T>
DecodePlan plan_for(const AttentionArgs<T>& args, const Device& device) {
  const bool clusters = runs_in_clusters(args, device);
  return plan_decode_attention(
      {.num_sequences = args.num_sequences,
       .num_kv_heads = args.kv.num_kv_heads,
       .max_kv_length = args.max_kv_length,
       .window = args.window,
       .num_sms = device.num_sms,
       .max_splits = clusters ? device.max_cluster : kMaxDecodeSplits,
       .max_split_blocks = clusters ? std::numeric_limits<int64_t>::max() : kMaxSplitBlocks});
}

template <class T>
Status workspace_supports(const AttentionArgs<T>& args, const Device& device,
                          const DecodePlan& plan) {
  const bool needed = plan.splits > 1 && !runs_in_clusters(args, device);
  if (!needed || is_aligned(args.workspace)) return {};
  return fail(ErrorCode::kUnsupported,
              "attention: these arguments need a workspace, aligned to 16 bytes");
}

}  // namespace

DecodePlan plan_decode_attention(const DecodeShape& shape) {
  constexpr int64_t kTileKeys = kDecodeTile * 4;  // of the warps of a block together
  constexpr int64_t kShortSplitKeys = 128;        // where more blocks are quicker than full ones
  constexpr int64_t kMaxSplitKeys = 4096;         // more, and one long sequence outlasts the others
  // Clusters up to 8 start quickly and find a place on a busy device; larger ones want long work.
  constexpr int kQuickSplits = 8;
  constexpr int64_t kLongSplitKeys = 384;
  const int64_t pairs = std::max<int64_t>(1, shape.num_sequences * shape.num_kv_heads);
  const int64_t keys =
      shape.window > 0 ? std::min(shape.window, shape.max_kv_length) : shape.max_kv_length;
  DecodePlan plan;
  const auto can_double = [&] {
    return plan.splits * 2 <= shape.max_splits &&
           pairs * plan.splits * 2 <= shape.max_split_blocks &&
           (plan.splits < kQuickSplits || keys > plan.splits * kLongSplitKeys);
  };
  const auto blocks = [&] { return pairs * plan.splits; };
  while (can_double() && blocks() * 2 <= shape.num_sms && keys >= plan.splits * 2 * kTileKeys) {
    plan.splits *= 2;
  }
  while (can_double() && blocks() * 2 <= 2 * shape.num_sms && keys >= plan.splits * 2 * kTileKeys &&
         keys <= plan.splits * 2 * kShortSplitKeys) {
    plan.splits *= 2;
  }
  while (can_double() && plan.splits < kQuickSplits && keys > plan.splits * kMaxSplitKeys) {
    plan.splits *= 2;
  }
  // A ring of one tile fits beside a kernel that streams weights: such blocks start while it runs,
  // so few tiles are on chip when it ends. Deep rings start after it, and keep blocks apart: one or
  // two of them fill the shared memory of an SM, so that blocks cannot crowd on the SMs that it
  // leaves first. Larger clusters would then not find places all at once. Very many blocks spread
  // by themselves, and more of them on an SM hide each other's starts and ends.
  const bool is_short = keys <= plan.splits * kShortSplitKeys;
  if (keys <= plan.splits * kTileKeys || blocks() > 3 * shape.num_sms) {
    plan.stages = 1;
  } else if (blocks() <= shape.num_sms && plan.splits >= kQuickSplits &&
             keys <= plan.splits * kLongSplitKeys) {
    plan.stages = 1;
    plan.holds = true;
  } else if (blocks() <= shape.num_sms) {
    plan.stages = plan.splits <= 2 ? 6 : plan.splits <= kQuickSplits ? 2 : 3;
  } else if (plan.splits == 1) {
    plan.stages = 3;
  } else {
    plan.stages = is_short ? 1 : 2;
  }
  return plan;
}

int64_t attention_workspace_bytes(int64_t /*max_sequences*/, int64_t num_q_heads,
                                  int64_t num_kv_heads, int64_t head_dim) {
  TRIPTYCH_CHECK(num_kv_heads > 0 && num_q_heads % num_kv_heads == 0, "heads do not divide");
  const int64_t values = num_q_heads / num_kv_heads * head_dim * int64_t{sizeof(float)};
  return kMaxSplitPairs * int64_t{sizeof(uint32_t)} + kMaxSplitBlocks * (kSumsBytes + values);
}

template <class T>
Status decode_attention_supports(const AttentionArgs<T>& args) {
  if (const Status common = common_supports(args); !common.has_value()) return common;
  const Result<Device> device = current_device();
  if (!device.has_value()) return Unexpected{device.error()};
  return workspace_supports(args, *device, plan_for(args, *device));
}

template <class T>
Status prefill_attention_supports(const AttentionArgs<T>& args) {
  if (const Status common = common_supports(args); !common.has_value()) return common;
  if (args.row_starts == nullptr) {
    return fail(ErrorCode::kUnsupported, "attention: row_starts must be set for prefill");
  }
  const int64_t group = args.num_q_heads / args.kv.num_kv_heads;
  if (args.rows < 0 || args.rows * group / kMinPrefillTileRows + args.num_sequences > kMaxGridYZ) {
    return unsupported("%lld rows are more than one launch takes", args.rows);
  }
  const Result<Device> device = current_device();
  return device.has_value() ? Status{} : Unexpected{device.error()};
}

template <class T>
void launch_decode_attention(const AttentionArgs<T>& args, const DecodePlan& plan,
                             cudaStream_t stream) {
  const Status common = common_supports(args);
  TRIPTYCH_CHECK(common.has_value(), common.error().message);
  const Result<Device> device = current_device();
  TRIPTYCH_CHECK(device.has_value(), device.error().message);
  const Status workspace = workspace_supports(args, *device, plan);
  TRIPTYCH_CHECK(workspace.has_value(), workspace.error().message);
  if (args.num_sequences == 0) return;
  TRIPTYCH_CUDA_CHECK(runs_in_clusters(args, *device)
                          ? launch_decode_attention_sm90a(args, plan, stream)
                          : launch_decode_attention_general(args, plan, stream));
  TRIPTYCH_CUDA_CHECK(cudaGetLastError());
}

template <class T>
void launch_decode_attention(const AttentionArgs<T>& args, cudaStream_t stream) {
  const Result<Device> device = current_device();
  TRIPTYCH_CHECK(device.has_value(), device.error().message);
  launch_decode_attention(args, plan_for(args, *device), stream);
}

template <class T>
void launch_prefill_attention(const AttentionArgs<T>& args, cudaStream_t stream) {
  const Status supported = prefill_attention_supports(args);
  TRIPTYCH_CHECK(supported.has_value(), supported.error().message);
  if (args.rows == 0) return;
  const Result<Device> device = current_device();
  TRIPTYCH_CHECK(device.has_value(), device.error().message);
  TRIPTYCH_CUDA_CHECK(runs_in_warpgroups(args, *device)
                          ? launch_prefill_attention_sm90a(args, stream)
                          : launch_prefill_attention_general(args, stream));
  TRIPTYCH_CUDA_CHECK(cudaGetLastError());
}

template <class T>
std::string_view decode_attention_name(const AttentionArgs<T>& args) {
  const Result<Device> device = current_device();
  const bool sm90 = device.has_value() && runs_in_clusters(args, *device);
  if (std::is_same_v<T, __half>) {
    return sm90 ? "decode_attention_f16_sm90a" : "decode_attention_f16";
  }
  return sm90 ? "decode_attention_bf16_sm90a" : "decode_attention_bf16";
}

template <class T>
std::string_view prefill_attention_name(const AttentionArgs<T>& args) {
  const Result<Device> device = current_device();
  const bool sm90 = device.has_value() && runs_in_warpgroups(args, *device);
  if (std::is_same_v<T, __half>) {
    return sm90 ? "prefill_attention_f16_sm90a" : "prefill_attention_f16";
  }
  return sm90 ? "prefill_attention_bf16_sm90a" : "prefill_attention_bf16";
}

KernelCost attention_cost(int64_t rows, int64_t keys, int64_t attended, int64_t num_q_heads,
                          int64_t num_kv_heads, int64_t head_dim) {
  constexpr int64_t kElementBytes = 2;
  const int64_t row_bytes = rows * num_q_heads * head_dim * kElementBytes;
  return {.bytes_read = 2 * keys * num_kv_heads * head_dim * kElementBytes + row_bytes,
          .bytes_written = row_bytes,
          .flops = 4 * attended * num_q_heads * head_dim};
}

#define TRIPTYCH_INSTANTIATE(T)                                                                    \
  template Status decode_attention_supports(const AttentionArgs<T>&);                              \
  template Status prefill_attention_supports(const AttentionArgs<T>&);                             \
  template void launch_decode_attention(const AttentionArgs<T>&, const DecodePlan&, cudaStream_t); \
  template void launch_decode_attention(const AttentionArgs<T>&, cudaStream_t);                    \
  template void launch_prefill_attention(const AttentionArgs<T>&, cudaStream_t);                   \
  template std::string_view decode_attention_name(const AttentionArgs<T>&);                        \
  template std::string_view prefill_attention_name(const AttentionArgs<T>&)
TRIPTYCH_INSTANTIATE(__half);
TRIPTYCH_INSTANTIATE(__nv_bfloat16);
#undef TRIPTYCH_INSTANTIATE

}  // namespace triptych
