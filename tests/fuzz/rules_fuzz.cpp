// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// Fuzz target: a rule file of `attribute --rules`, then the names that traces have.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "attribution/classify.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace triptych;
  const auto rules = Classifier::parse({reinterpret_cast<const char*>(data), size}, "input");
  if (!rules) return 0;
  for (const std::string_view name :
       {"linear_q4_1_f32", "ncclDevKernel_AllReduce_Sum_bf16_RING_LL", "", "\xff",
        "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>"}) {
    static_cast<void>(rules->classify(ActivityKind::kKernel, name));
    static_cast<void>(rules->classify(ActivityKind::kRuntime, name));
  }
  return 0;
}
