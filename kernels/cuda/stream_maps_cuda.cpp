// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime_api.h>

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

}  // namespace

// Promotion of L2 sectors to 256 bytes would lose bandwidth: a box takes whole lines as it is.
template <class T>
Result<CUtensorMap> make_matrix_map(const T* data, int64_t rows, int64_t k, int box_rows,
                                    int box_groups) {
  static const EncodeTiled encode = find_encode_tiled();
  if (encode == nullptr) {
    return fail(ErrorCode::kUnsupported,
                "stream_linear: the driver has no cuTensorMapEncodeTiled (CUDA 12.0)");
  }
  const cuuint64_t sizes[3] = {kStreamSwizzleColumns, static_cast<cuuint64_t>(rows),
                               static_cast<cuuint64_t>(k / kStreamSwizzleColumns)};
  const cuuint64_t strides[2] = {static_cast<cuuint64_t>(k) * sizeof(T),
                                 kStreamSwizzleColumns * sizeof(T)};
  const cuuint32_t box[3] = {kStreamSwizzleColumns, static_cast<cuuint32_t>(box_rows),
                             static_cast<cuuint32_t>(box_groups)};
  const cuuint32_t steps[3] = {1, 1, 1};
  CUtensorMap map = {};
  const CUresult status =
      encode(&map,
             std::is_same_v<T, __half> ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16
                                       : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
             3, const_cast<T*>(data), sizes, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
             CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
             CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (status != CUDA_SUCCESS) {
    return fail(ErrorCode::kUnsupported,
                str_format("stream_linear: no tensor map of [%lld, %lld] (CUDA error %d)",
                           static_cast<long long>(rows), static_cast<long long>(k),
                           static_cast<int>(status)));
  }
  return map;
}

template Result<CUtensorMap> make_matrix_map(const __half*, int64_t, int64_t, int, int);
template Result<CUtensorMap> make_matrix_map(const __nv_bfloat16*, int64_t, int64_t, int, int);

}  // namespace triptych
