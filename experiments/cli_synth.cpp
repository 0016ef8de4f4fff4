// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// triptych synth: a model with random weights on disk, for engines that want a checkpoint.
#include <algorithm>
#include <array>
#include <ostream>

#include "base/strings.h"
#include "base/units.h"
#include "engine/hf_config.h"
#include "engine/synthetic_directory.h"
#include "experiments/cli_command.h"
#include "experiments/interrupt.h"

namespace triptych::cli {
namespace {

constexpr std::array<std::string_view, 3> kDtypes = {"f32", "f16", "bf16"};

constexpr std::array kOptions = {
    Option{"seed", ValueKind::kNumber, "N", "seed of the weights", "1"},
    Option{"dtype", ValueKind::kText, "TYPE", "type of the weights in the file", "f16", false,
           kDtypes},
    Option{"set", ValueKind::kText, "KEY=VALUE",
           "replace one value of config.json, e.g. num_hidden_layers=4 or "
           "rope_scaling={\"rope_type\":\"linear\",\"factor\":2}; may be repeated",
           "", true}};

DType parse_dtype(const std::string& text) {
  return text == "f32" ? DType::kF32 : text == "bf16" ? DType::kBF16 : DType::kF16;
}

/// The shape of `arch` with every --set applied to its config.json, read as any such file is, so
/// that a setting means what it means in a model that was downloaded.
Result<ModelConfig> read_config(const Arguments& arguments) {
  TRIPTYCH_TRY(const ModelConfig shape, synthetic_config(arguments.positional(0)));
  Json json = hf_config_json(shape, "float32");
  std::vector<std::string> known;
  for (const auto& [key, value] : json.items()) known.push_back(key);
  if (json.contains("use_sliding_window")) known.emplace_back("layer_types");
  for (const std::string& text : arguments.list("set")) {
    const size_t equals = text.find('=');
    const std::string key = text.substr(0, equals);
    if (equals == std::string::npos) {
      return fail(ErrorCode::kInvalidArgument, "--set: expected KEY=VALUE, found \"" + text + "\"");
    }
    if (std::find(known.begin(), known.end(), key) == known.end()) {
      const std::string near = nearest(key, known);
      return fail(ErrorCode::kInvalidArgument,
                  "--set: no key \"" + key + "\" in the config.json of " + shape.architecture +
                      (near.empty() ? "" : ", did you mean \"" + near + "\"?"));
    }
    const std::string value = text.substr(equals + 1);
    Json parsed = Json::parse(value, nullptr, false);
    json[key] = parsed.is_discarded() ? Json(value) : std::move(parsed);
  }
  return parse_hf_config(json.dump(), shape.name, "config.json of " + arguments.positional(0));
}

int run_synth(const Arguments& arguments, CliStreams streams) {
  const auto config = read_config(arguments);
  if (!config) return report_error(config.error(), ErrorSubject::kInput, streams);
  const std::string dtype = arguments.has("dtype") ? arguments.text("dtype") : "f16";
  const SyntheticDirectoryOptions options{
      .seed = static_cast<uint64_t>(arguments.number("seed").value_or(1)),
      .dtype = parse_dtype(dtype),
      .interrupted = &InterruptGuard::interrupted()};
  const InterruptGuard guard("\ntriptych: stopping; once more to stop at once\n",
                             "\ntriptych: stopped; what was written is removed by the next "
                             "'triptych synth' of the same DIR\n");
  const auto written = write_synthetic_directory(*config, arguments.positional(1), options);
  if (!written && *options.interrupted) {
    streams.err << "interrupted: nothing was made at " << arguments.positional(1) << "\n";
    return kExitInterrupted;
  }
  if (!written) return report_error(written.error(), ErrorSubject::kInput, streams);
  streams.out << arguments.positional(1) << ": " << config->architecture << ", "
              << written->parameters << " parameters as " << dtype << ", "
              << format_bytes(static_cast<double>(written->bytes)) << " in " << written->num_files
              << (written->num_files == 1 ? " file, " : " files, ")
              << (written->has_tokenizer ? "byte-level tokenizer"
                                         : "no tokenizer (vocabulary below "
                                           "256)")
              << "\n";
  return kExitOk;
}

}  // namespace

const Command kSynth = {
    .name = "synth",
    .summary = "write a model with random weights as a Hugging Face directory",
    .synopsis = "ARCH DIR [options]",
    .details =
        "Writes config.json, model.safetensors (several files and an index above 5 GB) and a\n"
        "tokenizer of single bytes. In f32 and f16 the weights are those of 'model: {synthetic: "
        "ARCH,\n"
        "seed: N}' in a spec, so that other engines can be measured on the same model. DIR must "
        "not\n"
        "exist; it gets its name when all of it is on disk.\n"
        "\n"
        "Arguments:\n"
        "  ARCH  llama-tiny, mistral-tiny, qwen2-tiny, qwen3-tiny, smollm2-135m, llama-3.1-8b,\n"
        "        mistral-7b, qwen2.5-7b or qwen3-8b\n"
        "  DIR   directory to make\n",
    .min_positional = 2,
    .max_positional = 2,
    .positional_kind = ValueKind::kFile,
    .options = kOptions,
    .run = run_synth,
};

}  // namespace triptych::cli
