// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// Fuzz target: config.json of a Hugging Face directory. What is written from an accepted config
// reads as the same config.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "engine/hf_config.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace triptych;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto config = parse_hf_config(text, "model", "input");
  if (!config) return 0;
  TRIPTYCH_CHECK(config->num_parameters() > 0 && config->kv_bytes_per_token(2) > 0,
                 "sizes that are not positive");
  const std::string written = hf_config_json(*config, "float32").dump();
  const auto again = parse_hf_config(written, "model", "written");
  TRIPTYCH_CHECK(again.has_value(), again.error().to_string());
  TRIPTYCH_CHECK(hf_config_json(*again, "float32").dump() == written, "another config came back");
  return 0;
}
