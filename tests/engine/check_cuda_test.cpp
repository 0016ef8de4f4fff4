// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// What a CUDA device is asked to run and cannot: the reason names the number and what would do.
#include <gmock/gmock.h>

#include "engine/cuda/ops_cuda.h"
#include "tests/support/cuda_engine.h"
#include "tests/support/gpu_test.h"

namespace triptych {
namespace {

using ::testing::HasSubstr;

class CheckCuda : public GpuTest {
 protected:
  static void expect_refused(const ModelWeights& weights, const EngineOptions& o,
                             const char* reason) {
    const Status status = check_cuda_device(weights, o);
    ASSERT_FALSE(status) << reason;
    EXPECT_EQ(status.error().code, ErrorCode::kUnsupported);
    EXPECT_THAT(status.error().message, HasSubstr(reason));
  }
};

TEST_F(CheckCuda, BothElementTypesRun) {
  for (const DType type : {DType::kF16, DType::kBF16}) {
    EXPECT_TRUE(
        check_cuda_device(*model_of(base_config(), type, 1), options("fast", DeviceKind::kCuda)));
  }
  EXPECT_GT(cuda_memory_bytes(), 1e9);
}

TEST_F(CheckCuda, MatricesAreAllOfOneType) {
  const EngineOptions o = options("fast", DeviceKind::kCuda);
  expect_refused(*random_model(base_config(), DType::kF32, 1), o, "a matrix of f32");
  expect_refused(*random_model(base_config(), DType::kQ4_1, 1), o, "f16 or bf16");
  const auto mixed = model_of(base_config(), DType::kF16, 1);
  mixed->layers[2].down = model_of(base_config(), DType::kBF16, 1)->layers[2].down;
  expect_refused(*mixed, o, "a matrix of bf16");
}

TEST_F(CheckCuda, PagesHoldWholeTilesOfKeys) {
  const auto weights = model_of(base_config(), DType::kF16, 1);
  EngineOptions o = options("fast", DeviceKind::kCuda);
  o.page_size = 12;
  expect_refused(*weights, o, "page_size is 12");
  o.features = RuntimeFeatures::eager();
  EXPECT_TRUE(check_cuda_device(*weights, o)) << "a contiguous cache has no pages";
}

TEST_F(CheckCuda, SizesThatTheKernelsDoNotTake) {
  const EngineOptions o = options("fast", DeviceKind::kCuda);
  ModelConfig config = base_config();
  config.head_dim = 20;
  expect_refused(*model_of(config, DType::kF16, 1), o, "head_dim");
  config = base_config();
  config.intermediate_size = 190;
  expect_refused(*model_of(config, DType::kF16, 1), o, "190");
}

TEST_F(CheckCuda, OneRank) {
  EngineOptions o = options("fast", DeviceKind::kCuda);
  o.tensor_parallel = 2;
  expect_refused(*model_of(base_config(), DType::kF16, 1), o, "tensor parallelism");
}

}  // namespace
}  // namespace triptych
