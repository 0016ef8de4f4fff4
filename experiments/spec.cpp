// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "experiments/spec.h"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "base/mapped_file.h"
#include "base/strings.h"
#include "experiments/spec_sections.h"
#include "experiments/yaml_reader.h"

namespace triptych {
namespace {

constexpr std::array<std::string_view, 11> kTopKeys = {
    "experiment", "question", "device",  "model",   "model_fallback", "stacks",
    "workload",   "zip",      "exclude", "measure", "decompose"};
constexpr std::array<std::string_view, 2> kDevices = {"cpu", "cuda"};
// Other words for a device. By its letters "gpu" would be nearest to "cpu".
constexpr std::array<std::string_view, 3> kOtherWordsForCuda = {"gpu", "nvidia", "nvidia-gpu"};
// Mappings whose keys are names that the user chose.
constexpr std::array<std::string_view, 2> kNamed = {"stacks", "decompose"};
constexpr std::array<std::string_view, 5> kMeasureKeys = {"blocks", "warmup", "order",
                                                          "trace_steps", "seed"};
constexpr std::array<std::string_view, 2> kOrders = {"interleaved", "sequential"};
constexpr std::array<std::string_view, 3> kDecomposeKeys = {"path", "corner", "confounded"};

// Bounds that no meaningful run reaches: they catch a slipped digit before it costs a night.
constexpr int64_t kMaxBlocks = 100'000;
constexpr int64_t kMaxWarmup = 1'000;
constexpr int64_t kMaxTraceSteps = 100'000;
constexpr size_t kMaxPath = 9;  ///< Eight factors: what Shapley values are computed for.

void read_device(YamlReader& reader, const YamlValue& value, ExperimentSpec& spec) {
  std::string lower = value.text;
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  const auto& words = kOtherWordsForCuda;
  if (value.kind == YamlValue::Kind::kScalar &&
      std::find(words.begin(), words.end(), lower) != words.end()) {
    reader.error(value.place,
                 "device: " + describe_value(value) + " is not known; did you mean \"cuda\"?");
    return;
  }
  const bool cuda = reader.word(value, "device", kDevices) == "cuda";
  spec.device = cuda ? DeviceKind::kCuda : DeviceKind::kCpu;
}

void read_head(YamlReader& reader, const YamlValue& root, ExperimentSpec& spec) {
  for (const std::string_view key : {"experiment", "model", "stacks", "workload"}) {
    reader.require(root, root.place, "the spec", key, kTopKeys);
  }
  if (const YamlValue* value = root.find("experiment")) {
    spec.experiment = reader.string(*value, "experiment");
    const bool known = spec.experiment.find_first_not_of(
                           "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-") ==
                       std::string::npos;
    if (!known || spec.experiment.size() > 64) {
      reader.error(value->place, "experiment: " + describe_value(*value) +
                                     " is not a name; expected 1 to 64 letters, digits, '_', '-' "
                                     "and '.'");
    }
  }
  if (const YamlValue* value = root.find("question")) {
    spec.question = reader.string(*value, "question");
  }
  if (const YamlValue* value = root.find("device")) read_device(reader, *value, spec);
}

void read_measure(YamlReader& reader, const YamlValue& root, MeasureSpec& measure) {
  const YamlValue* section = root.find("measure");
  if (section == nullptr || !reader.mapping(*section, "measure", kMeasureKeys)) return;
  if (const YamlValue* value = section->find("blocks")) {
    measure.blocks = reader.integer(*value, "measure.blocks", 1, kMaxBlocks);
  }
  if (const YamlValue* value = section->find("warmup")) {
    measure.warmup = reader.integer(*value, "measure.warmup", 0, kMaxWarmup);
  }
  if (const YamlValue* value = section->find("order")) {
    measure.interleaved = reader.word(*value, "measure.order", kOrders) != "sequential";
  }
  if (const YamlValue* value = section->find("trace_steps")) {
    measure.trace_steps = reader.integer(*value, "measure.trace_steps", 0, kMaxTraceSteps);
  }
  if (const YamlValue* value = section->find("seed")) {
    measure.seed = static_cast<uint64_t>(
        reader.integer(*value, "measure.seed", 0, std::numeric_limits<int64_t>::max()));
  }
}

/// The name of a stack of the spec; an unknown one is an error with the nearest name.
std::string stack_name(YamlReader& reader, const YamlValue& value, const std::string& what,
                       const ExperimentSpec& spec) {
  const std::string name = reader.string(value, what);
  if (name.empty()) return name;
  std::vector<std::string_view> names;
  for (const StackSpec& stack : spec.stacks) names.push_back(stack.name);
  if (std::find(names.begin(), names.end(), name) != names.end()) return name;
  std::vector<std::string> expanded;
  for (const std::string_view known : names) {
    if (known.starts_with(name + "-")) expanded.emplace_back(known);
  }
  const std::string hint =
      expanded.empty() ? suggestion(name, names) : "; its lists make it " + join(expanded, ", ");
  if (!names.empty()) reader.error(value.place, what + ": no stack \"" + name + "\"" + hint);
  return name;
}

void read_path(YamlReader& reader, const YamlValue& value, const std::string& what,
               const ExperimentSpec& spec, DecomposeSpec& decompose) {
  if (value.kind != YamlValue::Kind::kSequence || value.items.size() < 2 ||
      value.items.size() > kMaxPath) {
    reader.error(value.place,
                 what + str_format(": expected a list of 2 to %zu stacks, found ", kMaxPath) +
                     describe_value(value) +
                     (value.items.empty() ? "" : str_format(" of %zu", value.items.size())));
    return;
  }
  for (const YamlValue& item : value.items) {
    std::string name = stack_name(reader, item, what, spec);
    if (std::find(decompose.path.begin(), decompose.path.end(), name) != decompose.path.end() &&
        !name.empty()) {
      reader.error(item.place, what + ": the stack \"" + name + "\" occurs twice");
    }
    decompose.path.push_back(std::move(name));
  }
}

void read_decomposition(YamlReader& reader, const YamlEntry& entry, ExperimentSpec& spec) {
  const std::string what = "decompose." + entry.key;
  if (!check_name(reader, entry.place, entry.key, "decomposition")) return;
  if (!reader.mapping(entry.value, what, kDecomposeKeys)) return;
  DecomposeSpec decompose;
  decompose.name = entry.key;
  decompose.place = entry.place;
  if (const YamlValue* path = entry.value.find("path")) {
    read_path(reader, *path, what + ".path", spec, decompose);
  } else {
    reader.require(entry.value, entry.place, what, "path", kDecomposeKeys);
  }
  if (const YamlValue* corner = entry.value.find("corner")) {
    decompose.corner = stack_name(reader, *corner, what + ".corner", spec);
    if (decompose.path.size() != 3 && !decompose.path.empty()) {
      reader.error(corner->place,
                   what + str_format(".corner: a fourth cell needs a path of 3 stacks, this one "
                                     "has %zu",
                                     decompose.path.size()));
    }
    if (std::find(decompose.path.begin(), decompose.path.end(), *decompose.corner) !=
        decompose.path.end()) {
      reader.error(corner->place,
                   what + ".corner: \"" + *decompose.corner + "\" is already in the path");
    }
  }
  if (const YamlValue* why = entry.value.find("confounded")) {
    decompose.confounded = reader.string(*why, what + ".confounded");
  }
  spec.decompositions.push_back(std::move(decompose));
}

void read_decompositions(YamlReader& reader, const YamlValue& root, ExperimentSpec& spec) {
  const YamlValue* section = root.find("decompose");
  if (section == nullptr || !reader.mapping_of_names(*section, "decompose")) return;
  for (const YamlEntry& entry : section->entries) read_decomposition(reader, entry, spec);
}

/// Sorts the keys of all mappings below `value`; the order of stacks and decompositions is the
/// user's, because reports follow it.
void sort_keys(YamlValue& value, bool user_order) {
  if (!user_order) {
    std::stable_sort(value.entries.begin(), value.entries.end(),
                     [](const YamlEntry& a, const YamlEntry& b) { return a.key < b.key; });
  }
  for (YamlEntry& entry : value.entries) sort_keys(entry.value, false);
  for (YamlValue& item : value.items) sort_keys(item, false);
}

std::string canonical_spec(YamlValue root) {
  const auto rank = [](const YamlEntry& entry) {
    return std::find(kTopKeys.begin(), kTopKeys.end(), entry.key) - kTopKeys.begin();
  };
  std::stable_sort(root.entries.begin(), root.entries.end(),
                   [&](const YamlEntry& a, const YamlEntry& b) { return rank(a) < rank(b); });
  for (YamlEntry& entry : root.entries) {
    sort_keys(entry.value, entry.key == "stacks" || entry.key == "decompose");
  }
  return canonical_yaml(root, 2);
}

}  // namespace

std::string WorkloadSpec::label() const {
  std::string text =
      str_format("c=%lld,prompt=%lld,output=%lld", static_cast<long long>(concurrency),
                 static_cast<long long>(prompt_tokens), static_cast<long long>(output_tokens));
  if (requests != concurrency) {
    text += str_format(",requests=%lld", static_cast<long long>(requests));
  }
  if (arrivals.kind != ArrivalSpec::Kind::kClosed) text += ",arrivals=" + arrivals.label();
  return text;
}

std::string ExperimentSpec::where(const SourcePlace& place) const {
  return describe_place(path.string(), place);
}

Result<SpecOverride> parse_override(std::string_view text) {
  const size_t equals = text.find('=');
  const std::string_view key = trim(text.substr(0, equals));
  const bool empty_part = key.empty() || key.front() == '.' || key.back() == '.' ||
                          key.find("..") != std::string_view::npos;
  if (equals == std::string_view::npos || empty_part) {
    return fail(ErrorCode::kInvalidArgument,
                "expected key.path=value, found \"" + std::string(text) + "\"", "--set");
  }
  return SpecOverride(std::string(key), std::string(trim(text.substr(equals + 1))));
}

Result<ExperimentSpec> parse_spec(const std::filesystem::path& path,
                                  std::span<const SpecOverride> overrides) {
  TRIPTYCH_TRY(const MappedFile file, MappedFile::open(path));
  return parse_spec_text(file.text(), path, overrides);
}

Result<ExperimentSpec> parse_spec_text(std::string_view yaml, const std::filesystem::path& path,
                                       std::span<const SpecOverride> overrides) {
  const std::string file = path.string();
  TRIPTYCH_TRY(YamlValue root, parse_yaml(yaml, file));
  YamlReader reader(file, yaml);
  ExperimentSpec spec;
  spec.path = path;
  if (!reader.mapping_of_names(root, "the spec")) return Unexpected{reader.take_errors()};
  for (const auto& [key, value] : overrides) {
    const std::string override_text = "--set " + key + "=" + value;
    TRIPTYCH_RETURN_IF_ERROR(set_yaml_value(root, key, value, override_text, kNamed));
  }

  // Duplicates were noted above, once; the overrides may have added unknown keys.
  for (const YamlEntry& entry : root.entries) {
    if (std::find(kTopKeys.begin(), kTopKeys.end(), entry.key) != kTopKeys.end()) continue;
    reader.error(entry.place,
                 "unknown key \"" + entry.key + "\"" + suggestion(entry.key, kTopKeys));
  }
  const std::filesystem::path folder = path.parent_path();
  read_head(reader, root, spec);
  read_models(reader, root, folder, spec);
  read_stacks(reader, root, folder, spec);
  read_workloads(reader, root, folder, spec);
  read_measure(reader, root, spec.measure);
  read_decompositions(reader, root, spec);
  if (reader.has_errors()) return Unexpected{reader.take_errors()};
  spec.text = canonical_spec(std::move(root));
  return spec;
}

}  // namespace triptych
