// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include <cublasLt.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <map>
#include <string>
#include <tuple>
#include <type_traits>

#include "base/check.h"
#include "base/handle.h"
#include "base/strings.h"
#include "kernels/common/cuda_handles.h"
#include "kernels/cuda/gemm.h"

namespace triptych {
namespace {

constexpr size_t kWorkspaceBytes = size_t{32} << 20;  // what the library asks for on sm_90

void cublas_check(cublasStatus_t status, const char* file, int line, const char* call) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw DeviceError(file, line, call, static_cast<int>(status), cublasLtGetStatusString(status));
}
void cublas_log_failure(cublasStatus_t status, const char* call) noexcept {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  std::fprintf(stderr, "warning: %s: %s (%d)\n", call, cublasLtGetStatusString(status),
               static_cast<int>(status));
}
#define TRIPTYCH_CUBLAS_CHECK(call) cublas_check((call), __FILE__, __LINE__, #call)

void destroy_handle(cublasLtHandle_t h) noexcept {
  cublas_log_failure(cublasLtDestroy(h), "cublasLtDestroy");
}
void destroy_desc(cublasLtMatmulDesc_t d) noexcept {
  cublas_log_failure(cublasLtMatmulDescDestroy(d), "cublasLtMatmulDescDestroy");
}
void destroy_layout(cublasLtMatrixLayout_t l) noexcept {
  cublas_log_failure(cublasLtMatrixLayoutDestroy(l), "cublasLtMatrixLayoutDestroy");
}
void destroy_preference(cublasLtMatmulPreference_t p) noexcept {
  cublas_log_failure(cublasLtMatmulPreferenceDestroy(p), "cublasLtMatmulPreferenceDestroy");
}
using Handle = UniqueHandle<cublasLtHandle_t, destroy_handle>;
using Desc = UniqueHandle<cublasLtMatmulDesc_t, destroy_desc>;
using Layout = UniqueHandle<cublasLtMatrixLayout_t, destroy_layout>;
using Preference = UniqueHandle<cublasLtMatmulPreference_t, destroy_preference>;

template <class T>
constexpr cudaDataType_t kDataType = std::is_same_v<T, __half> ? CUDA_R_16F : CUDA_R_16BF;

Layout make_layout(cudaDataType_t type, int64_t rows, int64_t columns, int64_t stride) {
  cublasLtMatrixLayout_t layout = nullptr;
  TRIPTYCH_CUBLAS_CHECK(cublasLtMatrixLayoutCreate(&layout, type, static_cast<uint64_t>(rows),
                                                   static_cast<uint64_t>(columns), stride));
  return Layout(layout);
}

/// A product of one shape. The library is column-major: what it computes is y^T = W x^T, with
/// W^T [k, n] transposed and x^T [k, m] as they lie in memory.
struct Plan {
  Desc desc;
  Layout w, x, y;
  cublasLtMatmulAlgo_t algorithm = {};
};

struct Key {
  cudaDataType_t type;
  int64_t m, n, k, x_stride, y_stride;
  bool accumulate;
  auto operator<=>(const Key&) const = default;
};

Plan make_plan(cublasLtHandle_t handle, const Key& key) {
  Plan plan;
  cublasLtMatmulDesc_t desc = nullptr;
  TRIPTYCH_CUBLAS_CHECK(cublasLtMatmulDescCreate(&desc, CUBLAS_COMPUTE_32F, CUDA_R_32F));
  plan.desc.reset(desc);
  const cublasOperation_t transposed = CUBLAS_OP_T;
  TRIPTYCH_CUBLAS_CHECK(cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_TRANSA,
                                                       &transposed, sizeof transposed));
  plan.w = make_layout(key.type, key.k, key.n, key.k);
  plan.x = make_layout(key.type, key.k, key.m, key.x_stride);
  plan.y = make_layout(key.type, key.n, key.m, key.y_stride);
  cublasLtMatmulPreference_t created = nullptr;
  TRIPTYCH_CUBLAS_CHECK(cublasLtMatmulPreferenceCreate(&created));
  const Preference preference(created);
  TRIPTYCH_CUBLAS_CHECK(cublasLtMatmulPreferenceSetAttribute(
      created, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &kWorkspaceBytes, sizeof kWorkspaceBytes));
  cublasLtMatmulHeuristicResult_t found = {};
  int count = 0;
  TRIPTYCH_CUBLAS_CHECK(cublasLtMatmulAlgoGetHeuristic(handle, desc, plan.w.get(), plan.x.get(),
                                                       plan.y.get(), plan.y.get(), created, 1,
                                                       &found, &count));
  if (count == 0) {
    throw DeviceError(__FILE__, __LINE__,
                      str_format("cublasLtMatmulAlgoGetHeuristic m=%lld n=%lld k=%lld",
                                 static_cast<long long>(key.m), static_cast<long long>(key.n),
                                 static_cast<long long>(key.k)),
                      static_cast<int>(CUBLAS_STATUS_NOT_SUPPORTED), "no algorithm");
  }
  plan.algorithm = found.algo;
  return plan;
}

}  // namespace

struct Gemm::State {
  Handle handle;
  DeviceBuffer<std::byte> workspace{kWorkspaceBytes};
  std::map<Key, Plan> plans;
};

Gemm::Gemm() : state_(std::make_unique<State>()) {
  cublasLtHandle_t handle = nullptr;
  TRIPTYCH_CUBLAS_CHECK(cublasLtCreate(&handle));
  state_->handle.reset(handle);
}

Gemm::~Gemm() = default;

template <class T>
void Gemm::run(const GemmArgs<T>& args, cudaStream_t stream) {
  TRIPTYCH_CHECK(args.beta == 0.0f || args.beta == 1.0f, "a product replaces y or is added to it");
  if (args.m == 0 || args.n == 0) return;
  const Key key{kDataType<T>,  args.m,        args.n,           args.k,
                args.x_stride, args.y_stride, args.beta != 0.0f};
  auto found = state_->plans.find(key);
  if (found == state_->plans.end()) {
    found = state_->plans.emplace(key, make_plan(state_->handle.get(), key)).first;
  }
  const Plan& plan = found->second;
  const float alpha = 1.0f;
  TRIPTYCH_CUBLAS_CHECK(cublasLtMatmul(state_->handle.get(), plan.desc.get(), &alpha, args.w,
                                       plan.w.get(), args.x, plan.x.get(), &args.beta, args.y,
                                       plan.y.get(), args.y, plan.y.get(), &plan.algorithm,
                                       state_->workspace.data(), kWorkspaceBytes, stream));
}

template void Gemm::run(const GemmArgs<__half>& args, cudaStream_t stream);
template void Gemm::run(const GemmArgs<__nv_bfloat16>& args, cudaStream_t stream);

KernelCost gemm_cost(int64_t m, int64_t n, int64_t k, int64_t element_bytes) {
  return {.bytes_read = (n * k + m * k) * element_bytes,
          .bytes_written = m * n * element_bytes,
          .flops = 2 * m * n * k};
}

}  // namespace triptych
