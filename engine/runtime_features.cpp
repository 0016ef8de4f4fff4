// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "engine/runtime_features.h"

#include <algorithm>
#include <vector>

#include "base/strings.h"

namespace triptych {

namespace {

bool device_has(DeviceKind device, RuntimeFeature feature) {
  return device == DeviceKind::kCuda ||
         (feature != RuntimeFeature::kGraph && feature != RuntimeFeature::kOverlap);
}

/// A feature that is nothing without another.
struct Need {
  RuntimeFeature feature;
  RuntimeFeature needs;
  std::string_view why;
};
constexpr std::array<Need, 3> kNeeds = {{
    {RuntimeFeature::kGraph, RuntimeFeature::kPagedKv,
     "a graph reads the cache at fixed addresses"},
    {RuntimeFeature::kGraph, RuntimeFeature::kArena, "a graph writes results at fixed addresses"},
    {RuntimeFeature::kOverlap, RuntimeFeature::kDeviceSampling,
     "the next step reads its tokens on the device"},
}};

std::string_view name_of(RuntimeFeature feature) {
  return kRuntimeFeatureNames[static_cast<size_t>(feature)];
}

std::vector<std::string> known_names() {
  std::vector<std::string> names = {"eager", "fast"};
  names.insert(names.end(), kRuntimeFeatureNames.begin(), kRuntimeFeatureNames.end());
  return names;
}

}  // namespace

RuntimeFeatures RuntimeFeatures::fast(DeviceKind device) {
  RuntimeFeatures features;
  for (size_t i = 0; i < kRuntimeFeatureNames.size(); ++i) {
    const auto feature = static_cast<RuntimeFeature>(i);
    if (device_has(device, feature)) features.set(feature);
  }
  return features;
}

Result<RuntimeFeatures> RuntimeFeatures::parse(std::string_view text, DeviceKind device) {
  if (trim(text) == "eager") return eager();
  if (trim(text) == "fast") return fast(device);
  RuntimeFeatures features;
  for (const std::string& part : split(text, '+')) {
    const std::string name(trim(part));
    const auto known = std::find(kRuntimeFeatureNames.begin(), kRuntimeFeatureNames.end(), name);
    if (known == kRuntimeFeatureNames.end()) {
      const std::vector<std::string> names = known_names();
      const std::string hint = nearest(name, names);
      const bool whole = name == "eager" || name == "fast";
      return fail(ErrorCode::kInvalidArgument,
                  whole ? "'" + name + "' stands alone and cannot be joined by '+' in '" +
                              std::string(text) + "'"
                        : "unknown runtime feature '" + name + "', expected one of " +
                              join(names, ", ") +
                              (hint.empty() ? "" : "; did you mean '" + hint + "'?"));
    }
    const auto feature = static_cast<RuntimeFeature>(known - kRuntimeFeatureNames.begin());
    if (!device_has(device, feature)) {
      return fail(ErrorCode::kUnsupported,
                  "runtime feature '" + name + "' is not available on the CPU");
    }
    features.set(feature);
  }
  for (const Need& need : kNeeds) {
    if (!features.has(need.feature) || features.has(need.needs)) continue;
    return fail(ErrorCode::kInvalidArgument,
                "runtime feature '" + std::string(name_of(need.feature)) + "' needs '" +
                    std::string(name_of(need.needs)) + "': " + std::string(need.why));
  }
  return features;
}

std::string RuntimeFeatures::to_string() const {
  std::vector<std::string> names;
  for (size_t i = 0; i < kRuntimeFeatureNames.size(); ++i) {
    if (has(static_cast<RuntimeFeature>(i))) names.emplace_back(kRuntimeFeatureNames[i]);
  }
  return names.empty() ? "eager" : join(names, "+");
}

}  // namespace triptych
