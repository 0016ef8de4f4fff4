// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime_api.h>

#include <array>
#include <type_traits>

#include "base/strings.h"
#include "kernels/common/cuda_check.h"
#include "kernels/cuda/stream_maps.h"
#include "kernels/cuda/stream_op.h"

namespace triptych {
namespace {

// A function of the driver, found through the runtime: nothing is linked with the driver. Null
// where the driver has none.
using EncodeTiled = decltype(&cuTensorMapEncodeTiled);
EncodeTiled find_encode_tiled() {
  constexpr unsigned kSince = 12000;  // CUDA 12.0
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
  TRIPTYCH_CUDA_CHECK(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, kSince,
                                                       cudaEnableDefault, &found));
  return found == cudaDriverEntryPointSuccess ? reinterpret_cast<EncodeTiled>(function) : nullptr;
}

// Dimensions are innermost first, strides in elements.
// Promotion of L2 sectors to 256 bytes would lose bandwidth: a box takes whole lines as it is.
template <class T, size_t kRank>
Result<CUtensorMap> make_map(const T* data, const std::array<int64_t, kRank>& sizes,
                             const std::array<int64_t, kRank>& strides,
                             const std::array<int, kRank>& box) {
  static const EncodeTiled encode = find_encode_tiled();
  if (encode == nullptr) {
    return fail(ErrorCode::kUnsupported,
                "stream_linear: the driver has no cuTensorMapEncodeTiled (CUDA 12.0)");
  }
  std::array<cuuint64_t, kRank> extents;
  std::array<cuuint64_t, kRank> bytes;
  std::array<cuuint32_t, kRank> box_extents;
  std::array<cuuint32_t, kRank> steps;
  for (size_t i = 0; i < kRank; ++i) {
    extents[i] = static_cast<cuuint64_t>(sizes[i]);
    bytes[i] = static_cast<cuuint64_t>(strides[i]) * sizeof(T);
    box_extents[i] = static_cast<cuuint32_t>(box[i]);
    steps[i] = 1;
  }
  CUtensorMap map = {};
  const CUresult status = encode(
      &map,
      std::is_same_v<T, __half> ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16
                                : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
      static_cast<cuuint32_t>(kRank), const_cast<T*>(data), extents.data(), bytes.data() + 1,
      box_extents.data(), steps.data(), CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
      CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (status != CUDA_SUCCESS) {
    return fail(
        ErrorCode::kUnsupported,
        str_format("stream_linear: no tensor map of [%lld, %lld] (CUDA error %d)",
                   static_cast<long long>(sizes[1]),
                   static_cast<long long>(sizes.front() * sizes.back()), static_cast<int>(status)));
  }
  return map;
}

}  // namespace

template <class T>
Result<CUtensorMap> make_matrix_map(const T* data, int64_t rows, int64_t k, int box_rows,
                                    int box_groups) {
  return make_map<T, 3>(data, {kStreamSwizzleColumns, rows, k / kStreamSwizzleColumns},
                        {1, k, kStreamSwizzleColumns},
                        {kStreamSwizzleColumns, box_rows, box_groups});
}

template <class T>
Result<CUtensorMap> make_tile_map(const T* data, int64_t rows, int64_t k, int second,
                                  int box_groups) {
  constexpr int kHalf = kStreamTileRows / 2;
  const int64_t groups = k / kStreamSwizzleColumns;
  if (second == kHalf) {  // one half of 16 rows, so that the last tile may end after the first 8
    return make_map<T, 4>(data, {kStreamSwizzleColumns, rows, 1, groups},
                          {1, k, rows * k, kStreamSwizzleColumns},
                          {kStreamSwizzleColumns, kStreamTileRows, 1, box_groups});
  }
  return make_map<T, 4>(data, {kStreamSwizzleColumns, rows - second, 2, groups},
                        {1, k, second * k, kStreamSwizzleColumns},
                        {kStreamSwizzleColumns, kHalf, 2, box_groups});
}

template Result<CUtensorMap> make_matrix_map(const __half*, int64_t, int64_t, int, int);
template Result<CUtensorMap> make_matrix_map(const __nv_bfloat16*, int64_t, int64_t, int, int);
template Result<CUtensorMap> make_tile_map(const __half*, int64_t, int64_t, int, int);
template Result<CUtensorMap> make_tile_map(const __nv_bfloat16*, int64_t, int64_t, int, int);

}  // namespace triptych
