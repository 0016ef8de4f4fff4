// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// The program `triptych`, whose engines lose the device where a stack's KV budget says so: on the
// CPU they only say it, on a CUDA device a kernel writes to an address that is not there.
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "experiments/cli.h"
#include "tests/experiments/lost_device.h"

#ifdef TRIPTYCH_HAS_CUDA
#include "tests/support/lose_device.h"
#endif

namespace triptych {
namespace {

class LosingEngine final : public Engine {
 public:
  explicit LosingEngine(std::unique_ptr<Engine> engine) : engine_(std::move(engine)) {}

  Result<GenerateResult> generate(std::span<const Request> requests, ActivitySink* sink) override {
    const bool now = ++passes_ == test::kPassThatLoses;
    if (now && options().kv_cache_tokens == test::kLosesInAPass)
      return lose<GenerateResult>([&] { return engine_->generate(requests, sink); });
    return engine_->generate(requests, sink);
  }

  Status score(std::span<const int32_t> tokens, int64_t prefill_tokens,
               const LogitsVisitor& visit) override {
    const auto inner = [&] { return engine_->score(tokens, prefill_tokens, visit); };
    if (options().kv_cache_tokens == test::kLosesWhenCompared) return lose<void>(inner);
    return inner();
  }

  EngineMemory memory() const override { return engine_->memory(); }
  KernelCost decode_step_cost(int64_t batch, int64_t context) const override {
    return engine_->decode_step_cost(batch, context);
  }
  std::string kernel_choice(int64_t batch) const override { return engine_->kernel_choice(batch); }
  const EngineOptions& options() const override { return engine_->options(); }

 private:
  /// What `inner` gives once the device is lost.
  template <class T, class Inner>
  Result<T> lose(const Inner& inner) {
#ifdef TRIPTYCH_HAS_CUDA
    if (options().device == DeviceKind::kCuda) {
      lose_device();
      return inner();
    }
#endif
    static_cast<void>(inner);
    return fail(ErrorCode::kDeviceLost, std::string(test::kLossOnTheCpu));
  }

  std::unique_ptr<Engine> engine_;
  int64_t passes_ = 0;
};

Result<std::unique_ptr<Engine>> make(std::shared_ptr<const ModelWeights> weights,
                                     const EngineOptions& options) {
  TRIPTYCH_TRY(auto engine, make_engine(std::move(weights), options));
  return std::unique_ptr<Engine>(std::make_unique<LosingEngine>(std::move(engine)));
}

}  // namespace
}  // namespace triptych

int main(int argc, char** argv) {
  const triptych::EngineFactory engines = triptych::make;
  const std::vector<std::string> args(argv + 1, argv + argc);
  return triptych::run_cli(args, {std::cout, std::cerr, &engines});
}
