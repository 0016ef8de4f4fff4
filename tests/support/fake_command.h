// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// The engine tests/support/fake_engine.py as a stack of the tiny synthetic model.
#pragma once

#include <string>

#include "base/check.h"
#include "engine/command_engine.h"
#include "engine/weight_shapes.h"

namespace triptych::test {

inline const std::string kFakeEngineFile =
    std::string(TRIPTYCH_SOURCE_DIR) + "/tests/support/fake_engine.py";

/// Options of a fake that behaves as `behave` says; time-outs of some seconds.
[[nodiscard]] inline CommandEngineOptions fake_command(const std::string& behave = "ok",
                                                       const Json& more = Json::object()) {
  static const auto shapes = [] {
    auto checkpoint = open_checkpoint({.synthetic = "llama-tiny"});
    TRIPTYCH_CHECK(checkpoint.has_value(), checkpoint.error().to_string());
    auto made = weight_shapes(*checkpoint, WeightScheme::kF16);
    TRIPTYCH_CHECK(made.has_value(), made.error().to_string());
    return *made;
  }();
  CommandEngineOptions options;
  options.name = "fake";
  options.command.argv = {adapter_python(), kFakeEngineFile};
  options.command.close_grace_ns = 2'000'000'000;
  options.command.term_grace_ns = 200'000'000;
  options.open = {.model = "model", .weights = "f16", .eos_token_id = {}, .options = more};
  options.open.options["behave"] = behave;
  options.engine.max_batch = 2;
  options.engine.max_sequence = 64;
  options.engine.num_threads = 1;
  options.shapes = shapes;
  // Long enough for a loaded machine to start an interpreter, short enough to wait for in a test.
  options.timeouts = {
      .start_ns = 30'000'000'000, .record_ns = 20'000'000'000, .pass_ns = 30'000'000'000};
  return options;
}

}  // namespace triptych::test
