// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// The sections of a spec that say what runs: models and stacks.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <system_error>

#include "base/strings.h"
#include "experiments/spec_sections.h"

namespace triptych {
namespace {

constexpr std::array<std::string_view, 4> kModelKeys = {"path", "synthetic", "seed", "layers"};
constexpr std::array<std::string_view, 14> kStackKeys = {
    "engine",          "runtime",       "weights", "kv",      "threads", "linear",  "parallel",
    "kv_cache_tokens", "prefill_chunk", "adapter", "command", "options", "timeout", "memory_limit"};
constexpr int64_t kMostTokens = int64_t{1} << 31;
constexpr std::array<std::string_view, 3> kEngines = {"builtin", "command", "openai"};
constexpr std::array<std::string_view, 3> kPlainWeights = {"f16", "bf16", "f32"};
constexpr std::array<std::string_view, 2> kKvFormats = {"f16", "f32"};
constexpr std::array<std::string_view, 5> kParallelKeys = {"tp", "instances", "devices", "link",
                                                           "allreduce"};
constexpr std::array<std::string_view, 5> kAllReduces = {"auto", "oneshot", "twoshot", "stub",
                                                         "nccl"};
constexpr int64_t kMaxThreads = 1024;
constexpr int64_t kMaxTensorParallel = 64;
constexpr int64_t kMaxLayers = 1024;
constexpr size_t kMaxStacks = 64;
constexpr size_t kMaxNameLength = 48;  ///< Names become parts of cell names and table columns.

void read_synthetic(YamlReader& reader, const YamlValue& value, const std::string& what,
                    ModelRef& model) {
  const YamlValue& arch = *value.find("synthetic");
  model.synthetic = reader.string(arch, what + ".synthetic");
  if (!model.synthetic.empty()) {
    if (const auto config = synthetic_config(model.synthetic); !config) {
      reader.error(arch.place, what + ".synthetic: " + config.error().message);
    }
  }
  if (const YamlValue* seed = value.find("seed")) {
    model.seed = static_cast<uint64_t>(
        reader.integer(*seed, what + ".seed", 0, std::numeric_limits<int64_t>::max()));
  }
  if (const YamlValue* layers = value.find("layers")) {
    model.layers = reader.integer(*layers, what + ".layers", 1, kMaxLayers);
  }
}

void read_model(YamlReader& reader, const YamlValue& value, const std::string& what,
                const std::filesystem::path& folder, ModelRef& model) {
  if (value.kind == YamlValue::Kind::kScalar) {
    model.path = resolve_path(folder, reader.string(value, what));
    return;
  }
  if (value.kind != YamlValue::Kind::kMapping) {
    reader.error(value.place,
                 what + ": expected a path or {synthetic: name}, found " + describe_value(value));
    return;
  }
  if (!reader.mapping(value, what, kModelKeys)) return;
  const YamlValue* path = value.find("path");
  const YamlValue* synthetic = value.find("synthetic");
  if ((path != nullptr) == (synthetic != nullptr)) {
    reader.error(value.place, what + ": expected exactly one of \"path\" and \"synthetic\"");
    return;
  }
  if (synthetic != nullptr) return read_synthetic(reader, value, what, model);
  model.path = resolve_path(folder, reader.string(*path, what + ".path"));
  for (const std::string_view key : {"seed", "layers"}) {
    if (const YamlValue* extra = value.find(key)) {
      reader.error(extra->place, what + "." + std::string(key) + " is for synthetic models only");
    }
  }
}

/// A model file or directory that is not there is noted with `hint`, and one that is there but
/// cannot be read without.
void refuse_missing(YamlReader& reader, const YamlValue& value, const std::string& what,
                    const ModelRef& model, std::string_view hint) {
  if (model.path.empty()) return;
  const Status found = check_readable(model.path, FileKind::kFileOrFolder);
  if (found) return;
  const bool missing = found.error().code == ErrorCode::kNotFound;
  const YamlValue* path = value.find("path");
  reader.error(path != nullptr ? path->place : value.place,
               what + ": " + found.error().message + std::string(missing ? hint : ""),
               found.error().code);
}

/// One value of an axis and what it adds to the stack's name.
template <class T>
struct Choice {
  std::string suffix;
  T value;
};

/// The values of an axis that may be a list: `read(value, name)` reads one.
template <class T, class Read>
std::vector<Choice<T>> read_axis(YamlReader& reader, const YamlValue& stack, std::string_view key,
                                 const std::string& what, T fallback, Read read) {
  const YamlValue* value = stack.find(key);
  const std::string name = what + "." + std::string(key);
  if (value == nullptr) return {{"", fallback}};
  if (value->kind != YamlValue::Kind::kSequence) return {{"", read(*value, name)}};
  std::vector<Choice<T>> choices;
  for (const YamlValue& item : value->items) {
    choices.push_back({"-" + item.text, read(item, name)});
  }
  if (choices.empty()) {
    reader.error(value->place, name + ": the list is empty");
    choices.push_back({"", fallback});
  }
  return choices;
}

void read_runtime(YamlReader& reader, const YamlValue& value, const std::string& what,
                  DeviceKind device, RuntimeFeatures& runtime) {
  std::string text;
  if (value.kind == YamlValue::Kind::kSequence) {
    std::vector<std::string> names;
    for (const YamlValue& item : value.items) {
      names.push_back(reader.string(item, what));
      if (names.back().empty()) return;
    }
    text = names.empty() ? "eager" : join(names, "+");
  } else {
    text = reader.string(value, what);
  }
  if (text.empty()) return;
  const auto parsed = RuntimeFeatures::parse(text, device);
  if (parsed) {
    runtime = *parsed;
  } else {
    reader.error(value.place, what + ": " + parsed.error().message, parsed.error().code);
  }
}

/// A share of the device's memory (0.9), or bytes with or without a unit (24GiB). Bytes are as many
/// as some engine can live with and some machine can have: 1.5 is neither a share nor bytes.
double read_memory_limit(YamlReader& reader, const YamlValue& value, const std::string& what) {
  constexpr std::array<std::pair<std::string_view, double>, 9> kUnits = {{{"KiB", 0x1p10},
                                                                          {"MiB", 0x1p20},
                                                                          {"GiB", 0x1p30},
                                                                          {"TiB", 0x1p40},
                                                                          {"kB", 1e3},
                                                                          {"MB", 1e6},
                                                                          {"GB", 1e9},
                                                                          {"TB", 1e12},
                                                                          {"", 1.0}}};
  constexpr double kLeast = 1e5;
  constexpr double kMost = 1e15;
  const std::string text = reader.string(value, what);
  if (text.empty()) return 0;
  for (const auto& [unit, bytes] : kUnits) {
    if (!text.ends_with(unit)) continue;
    const std::string number(trim(std::string_view(text).substr(0, text.size() - unit.size())));
    char* end = nullptr;
    const double amount = std::strtod(number.c_str(), &end);
    if (number.empty() || *end != '\0' || !(amount > 0)) break;
    if (unit.empty() && amount <= 1) return amount;
    if (amount * bytes < kLeast || amount * bytes > kMost) break;
    return amount * bytes;
  }
  reader.error(value.place, what + ": " + describe_value(value) +
                                " is no amount of memory; expected a share of the device's such as "
                                "0.9, or bytes such as 24GiB (kB, MB, GB, TB, KiB, MiB, GiB, "
                                "TiB), from 100kB to 1000TB");
  return 0;
}

WeightScheme read_weights(YamlReader& reader, const YamlValue& value, const std::string& what) {
  const std::string text = reader.string(value, what);
  if (text.empty()) return WeightScheme::kF16;
  const auto parsed = parse_weight_scheme(text);
  if (parsed) return *parsed;
  reader.error(value.place, what + ": " + parsed.error().message, parsed.error().code);
  return WeightScheme::kF16;
}

/// The weights of another engine: a type that every engine knows.
WeightScheme read_plain(YamlReader& reader, const YamlValue& value, const std::string& what) {
  const std::string text = reader.word(value, what, kPlainWeights);
  return text.empty() ? WeightScheme::kF16 : parse_weight_scheme(text).value();
}

void refuse_unsupported(YamlReader& reader, const YamlValue& value, const std::string& what,
                        std::string_view supported) {
  reader.error(value.place,
               what + ": " + describe_value(value) + " is not supported in this build; expected " +
                   std::string(supported),
               ErrorCode::kUnsupported);
}

void read_all_reduce(YamlReader& reader, const YamlValue& value, const std::string& what,
                     StackSpec& spec) {
  const std::string text = reader.word(value, what, kAllReduces);
  if (text.empty()) return;
  if (text == "nccl") return refuse_unsupported(reader, value, what, "one of the CPU's");
  if (spec.tensor_parallel == 1) {
    reader.error(value.place, what + ": there is nothing to reduce with tp: 1");
  }
  spec.all_reduce = parse_all_reduce(text).value();
}

void read_parallel(YamlReader& reader, const YamlValue& parallel, const std::string& what,
                   StackSpec& spec) {
  if (!reader.mapping(parallel, what, kParallelKeys)) return;
  if (const YamlValue* tp = parallel.find("tp")) {
    spec.tensor_parallel =
        static_cast<int>(reader.integer(*tp, what + ".tp", 1, kMaxTensorParallel));
    if (spec.tensor_parallel > 1 && spec.device == DeviceKind::kCuda) {
      refuse_unsupported(reader, *tp, what + ".tp", "1 with \"device: cuda\"");
    }
  }
  if (const YamlValue* all_reduce = parallel.find("allreduce")) {
    read_all_reduce(reader, *all_reduce, what + ".allreduce", spec);
  }
  if (const YamlValue* instances = parallel.find("instances")) {
    if (reader.integer(*instances, what + ".instances", 1, 4096) != 1) {
      refuse_unsupported(reader, *instances, what + ".instances", "1");
    }
  }
  for (const char* key : {"devices", "link"}) {
    const YamlValue* value = parallel.find(key);
    if (value == nullptr) continue;
    refuse_unsupported(reader, *value, what + "." + key, "only tp, instances and allreduce");
  }
}

void read_fixed_axes(YamlReader& reader, const YamlValue& stack, const std::string& what,
                     StackSpec& spec) {
  if (const YamlValue* engine = stack.find("engine")) {
    spec.engine = reader.word(*engine, what + ".engine", kEngines);
    if (spec.engine == "openai") {
      refuse_unsupported(reader, *engine, what + ".engine", "builtin or command");
    }
  }
  if (const YamlValue* linear = stack.find("linear")) {
    const std::string text = reader.string(*linear, what + ".linear");
    if (!text.empty() && text != "auto") {
      refuse_unsupported(reader, *linear, what + ".linear", "auto");
    }
  }
  if (const YamlValue* parallel = stack.find("parallel")) {
    read_parallel(reader, *parallel, what + ".parallel", spec);
  }
}

/// The keys that say what runs: those of the built-in engine, or those of a command.
void read_engine(YamlReader& reader, const YamlEntry& entry, const std::string& what,
                 const std::filesystem::path& folder, StackSpec& stack) {
  read_fixed_axes(reader, entry.value, what, stack);
  if (stack.engine == "command") {
    return read_command(reader, entry.value, what, entry.place, folder, stack.command);
  }
  for (const std::string_view key : {"adapter", "command", "options", "timeout"}) {
    const YamlValue* value = entry.value.find(key);
    if (value == nullptr) continue;
    reader.error(value->place,
                 what + "." + std::string(key) + " is for stacks with \"engine: command\" only");
  }
  reader.require(entry.value, entry.place, what, "runtime", kStackKeys);
  if (const YamlValue* runtime = entry.value.find("runtime")) {
    read_runtime(reader, *runtime, what + ".runtime", stack.device, stack.runtime);
  }
}

void add_stack(YamlReader& reader, StackSpec stack, ExperimentSpec& spec) {
  for (const StackSpec& other : spec.stacks) {
    if (other.name == stack.name) {
      if (reader.has_errors()) return;  // a key that is there twice was noted as such
      reader.error(stack.place, "the stack \"" + stack.name +
                                    "\" exists already; a list makes stacks named <stack>-<value>");
      return;
    }
  }
  spec.stacks.push_back(std::move(stack));
}

void read_stack(YamlReader& reader, const YamlEntry& entry, const std::filesystem::path& folder,
                ExperimentSpec& spec) {
  const std::string what = "stacks." + entry.key;
  StackSpec stack;
  stack.name = entry.key;
  stack.place = entry.place;
  stack.device = spec.device;
  stack.prefill_chunk = default_prefill_chunk(spec.device);
  // A stack with mistakes is still added: a path that names it is not wrong for that.
  if (!check_name(reader, entry.place, entry.key, "stack") ||
      !reader.mapping(entry.value, what, kStackKeys)) {
    return add_stack(reader, std::move(stack), spec);
  }
  reader.require(entry.value, entry.place, what, "weights", kStackKeys);
  read_engine(reader, entry, what, folder, stack);
  if (const YamlValue* tokens = entry.value.find("kv_cache_tokens")) {
    stack.kv_cache_tokens = reader.integer(*tokens, what + ".kv_cache_tokens", 0, kMostTokens);
  }
  if (const YamlValue* limit = entry.value.find("memory_limit")) {
    stack.memory_limit = read_memory_limit(reader, *limit, what + ".memory_limit");
  }
  if (const YamlValue* chunk = entry.value.find("prefill_chunk")) {
    stack.prefill_chunk = reader.integer(*chunk, what + ".prefill_chunk", 1, kMostTokens);
    if (!stack.runtime.has(RuntimeFeature::kChunkedPrefill)) {
      reader.error(chunk->place,
                   what + ".prefill_chunk: the runtime does not have the feature chunked_prefill");
    }
  }

  const auto all_weights =
      read_axis<WeightScheme>(reader, entry.value, "weights", what, WeightScheme::kF16,
                              [&](const YamlValue& value, const std::string& name) {
                                return stack.builtin() ? read_weights(reader, value, name)
                                                       : read_plain(reader, value, name);
                              });
  const auto all_kv = read_axis<KvFormat>(
      reader, entry.value, "kv", what, KvFormat::kF16,
      [&](const YamlValue& value, const std::string& name) {
        return reader.word(value, name, kKvFormats) == "f32" ? KvFormat::kF32 : KvFormat::kF16;
      });
  const auto all_threads =
      read_axis<int>(reader, entry.value, "threads", what, 0,
                     [&](const YamlValue& value, const std::string& name) {
                       return static_cast<int>(reader.integer(value, name, 0, kMaxThreads));
                     });
  for (const auto& weights : all_weights) {
    for (const auto& kv : all_kv) {
      for (const auto& threads : all_threads) {
        stack.name = entry.key + weights.suffix + kv.suffix +
                     (threads.suffix.empty() ? "" : str_format("-t%d", threads.value));
        stack.weights = weights.value;
        stack.kv = kv.value;
        stack.num_threads = threads.value;
        if (spec.stacks.size() <= kMaxStacks) add_stack(reader, stack, spec);
      }
    }
  }
}

}  // namespace

std::string StackSpec::parallel() const {
  std::string text = str_format("tp=%d,instances=1", tensor_parallel);
  if (tensor_parallel > 1) text += ",allreduce=" + std::string(all_reduce_name(all_reduce));
  return text;
}

Status check_readable(const std::filesystem::path& path, FileKind kind) {
  const std::string name = path.string();
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::status(path, error);
  if (status.type() == std::filesystem::file_type::not_found) {
    return fail(ErrorCode::kNotFound, "no such file: " + name);
  }
  const bool folder = std::filesystem::is_directory(status);
  if (!error && folder && kind == FileKind::kFile) {
    return fail(ErrorCode::kInvalidArgument, "this is a folder, expected a file: " + name);
  }
  if (!error && !folder && !std::filesystem::is_regular_file(status)) {
    return fail(ErrorCode::kInvalidArgument, "this is no regular file: " + name);
  }
  const int needed = folder ? R_OK | X_OK : R_OK;
  if (!error && ::access(path.c_str(), needed) == 0) return {};
  const std::string reason = error ? error.message() : std::strerror(errno);
  return fail(ErrorCode::kIo, "cannot be opened (" + reason + "): " + name);
}

void require_file(YamlReader& reader, const YamlValue& value, const std::string& what,
                  const std::filesystem::path& path) {
  if (value.text.empty()) return;  // noted when it was read
  const Status found = check_readable(path, FileKind::kFile);
  if (!found) reader.error(value.place, what + ": " + found.error().message, found.error().code);
}

std::filesystem::path resolve_path(const std::filesystem::path& folder, const std::string& value) {
  return (folder / value).lexically_normal();
}

bool check_name(YamlReader& reader, const SourcePlace& place, const std::string& name,
                std::string_view what) {
  if (!name.empty() && name.size() <= kMaxNameLength &&
      name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_-") == std::string::npos) {
    return true;
  }
  reader.error(place,
               "\"" + name + "\" is not a " + std::string(what) + " name" +
                   str_format("; expected 1 to %zu of a-z, 0-9, '_' and '-'", kMaxNameLength));
  return false;
}

void read_models(YamlReader& reader, const YamlValue& root, const std::filesystem::path& folder,
                 ExperimentSpec& spec) {
  const YamlValue* model = root.find("model");
  const YamlValue* fallback = root.find("model_fallback");
  if (model != nullptr) read_model(reader, *model, "model", folder, spec.model);
  if (fallback != nullptr) {
    read_model(reader, *fallback, "model_fallback", folder, spec.model_fallback.emplace());
  }
  if (spec.model.path.empty()) return;
  // A fallback is for a model that is not there, and not for one that this user may not read.
  const Status found = check_readable(spec.model.path, FileKind::kFileOrFolder);
  if (found) return;
  if (fallback != nullptr && found.error().code == ErrorCode::kNotFound) {
    refuse_missing(reader, *fallback, "model_fallback", *spec.model_fallback,
                   "; model is missing too");
  } else {
    refuse_missing(reader, *model, "model", spec.model, "; there is no model_fallback");
  }
}

void read_stacks(YamlReader& reader, const YamlValue& root, const std::filesystem::path& folder,
                 ExperimentSpec& spec) {
  const YamlValue* section = root.find("stacks");
  if (section == nullptr) return;
  if (!reader.mapping_of_names(*section, "stacks")) return;
  if (section->entries.empty()) {
    reader.error(section->place, "stacks: expected at least one stack");
  }
  for (const YamlEntry& entry : section->entries) read_stack(reader, entry, folder, spec);
  if (spec.stacks.size() > kMaxStacks) {
    reader.error(section->place, str_format("stacks: more than %zu stacks", kMaxStacks));
  }
}

}  // namespace triptych
