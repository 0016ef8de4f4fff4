// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/row_map.h"

namespace triptych {
namespace {

constexpr cuuint64_t kPieceColumns = 64;  // 128 bytes, the widest swizzle
constexpr cuuint64_t kElementBytes = 2;
constexpr cuuint64_t kRows = (cuuint64_t{1} << 31) - 1;

// A function of the driver, found through the runtime: nothing is linked with the driver.
using EncodeTiled = decltype(&cuTensorMapEncodeTiled);
EncodeTiled find_encode_tiled() {
  constexpr unsigned kSince = 12000;  // CUDA 12.0
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
  const cudaError_t status = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function,
                                                              kSince, cudaEnableDefault, &found);
  const bool there = status == cudaSuccess && found == cudaDriverEntryPointSuccess;
  return there ? reinterpret_cast<EncodeTiled>(function) : nullptr;
}

}  // namespace

cudaError_t make_row_map(const void* data, int64_t columns, unsigned box_rows, CUtensorMap& map) {
  static const EncodeTiled encode = find_encode_tiled();
  if (encode == nullptr) return cudaErrorNotSupported;
  const auto pieces = static_cast<cuuint64_t>(columns) / kPieceColumns;
  const cuuint64_t sizes[3] = {kPieceColumns, kRows, pieces};
  const cuuint64_t strides[2] = {static_cast<cuuint64_t>(columns) * kElementBytes,
                                 kPieceColumns * kElementBytes};
  const cuuint32_t box[3] = {kPieceColumns, box_rows, static_cast<cuuint32_t>(pieces)};
  const cuuint32_t steps[3] = {1, 1, 1};
  // The type does not matter to a copy.
  const CUresult status =
      encode(&map, CU_TENSOR_MAP_DATA_TYPE_UINT16, 3, const_cast<void*>(data), sizes, strides, box,
             steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
             CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  return status == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}

}  // namespace triptych
