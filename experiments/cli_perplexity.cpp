// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// triptych perplexity: one stack on one text.
#include <algorithm>
#include <array>
#include <ostream>

#include "base/mapped_file.h"
#include "base/strings.h"
#include "base/units.h"
#include "engine/tokenizer.h"
#include "experiments/cli_command.h"
#include "experiments/perplexity.h"
#include "experiments/table.h"

namespace triptych::cli {
namespace {

constexpr std::array<std::string_view, 3> kTableFormats = {"table", "csv", "json"};
constexpr std::string_view kDefaultWeights = "f16";
constexpr std::string_view kDefaultRuntime = "fast";
constexpr int64_t kDefaultWindow = 512;

constexpr std::array kOptions = {
    Option{"weights", ValueKind::kText, "SCHEME", "format of the weights, as in a spec",
           kDefaultWeights},
    Option{"runtime", ValueKind::kText, "FEATURES", "eager, fast, or features joined by '+'",
           kDefaultRuntime},
    Option{"window", ValueKind::kNumber, "TOKENS", "tokens that are read together", "512"},
    Option{"threads", ValueKind::kNumber, "COUNT", "threads of the engine", "all cores"},
    Option{"format", ValueKind::kText, "FORMAT", "form of the row", "table", false, kTableFormats}};

std::string text_or(const Arguments& arguments, std::string_view name, std::string_view preset) {
  return arguments.has(name) ? arguments.text(name) : std::string(preset);
}

/// The one row that the command prints.
TextTable row(const std::string& model, const Arguments& arguments, const Perplexity& measured) {
  const double ns = static_cast<double>(measured.elapsed_ns) / static_cast<double>(measured.tokens);
  return {.columns = {"model", "weights", "runtime", "tokens", "predicted", "perplexity",
                      "ns_per_token"},
          .rows = {{model, text_or(arguments, "weights", kDefaultWeights),
                    text_or(arguments, "runtime", kDefaultRuntime), std::to_string(measured.tokens),
                    std::to_string(measured.predicted), format_significant(measured.value(), 6),
                    str_format("%.0f", ns)}},
          .numeric = {false, false, false, true, true, true, true}};
}

Result<TextTable> measure(const Arguments& arguments) {
  TRIPTYCH_TRY(const WeightScheme scheme,
               parse_weight_scheme(text_or(arguments, "weights", kDefaultWeights)));
  EngineOptions options;
  TRIPTYCH_TRY(
      options.features,
      RuntimeFeatures::parse(text_or(arguments, "runtime", kDefaultRuntime), DeviceKind::kCpu));
  TRIPTYCH_TRY(const auto checkpoint, open_checkpoint({.path = arguments.positional(0)}));
  const auto tokenizer = checkpoint->tokenizer();
  if (tokenizer == nullptr) {
    return fail(ErrorCode::kUnsupported, "the model has no tokenizer", arguments.positional(0));
  }
  TRIPTYCH_TRY(const MappedFile file, MappedFile::open(arguments.positional(1)));
  const std::vector<int32_t> tokens = tokenizer->encode(file.text());

  PerplexityOptions measured;
  measured.window = arguments.number("window").value_or(kDefaultWindow);
  measured.prefix = tokenizer->prefix();
  const auto prefix = std::ssize(measured.prefix);
  // No sequence is longer than the text, however long the window.
  measured.window = std::min(measured.window, std::max<int64_t>(std::ssize(tokens), 2));
  options.max_sequence = measured.window + prefix;
  options.num_threads =
      static_cast<int>(std::min<int64_t>(arguments.number("threads").value_or(0), INT32_MAX));
  TRIPTYCH_TRY(auto weights, load_weights(checkpoint, scheme));
  TRIPTYCH_TRY(const auto engine, make_engine(std::move(weights), options));
  TRIPTYCH_TRY(const Perplexity result, measure_perplexity(*engine, tokens, measured));
  return row(checkpoint->config().name, arguments, result);
}

int run_perplexity(const Arguments& arguments, CliStreams streams) {
  const auto format = parse_table_format(text_or(arguments, "format", kTableFormats[0]));
  if (!format) return report_error(format.error(), ErrorSubject::kInput, streams);
  const auto table = measure(arguments);
  if (!table) return report_error(table.error(), ErrorSubject::kInput, streams);
  streams.out << render_table(*table, *format);
  return kExitOk;
}

}  // namespace

const Command kPerplexity = {
    .name = "perplexity",
    .summary = "how well one stack predicts a text",
    .synopsis = "MODEL FILE [options]",
    .details =
        "Cuts the text into windows, predicts every token from those before it in its window, and\n"
        "prints exp(mean negative log-likelihood). Each window starts with what the model's\n"
        "tokenizer puts before a text (BOS), if anything; without it the first token of a window\n"
        "is not predicted. ns_per_token is the time of the forward passes and likelihoods.\n"
        "\n"
        "Arguments:\n"
        "  MODEL  a .gguf file or a folder in the form of Hugging Face, with a tokenizer\n"
        "  FILE   text; bytes that are not UTF-8 become U+FFFD\n",
    .min_positional = 2,
    .max_positional = 2,
    .positional_kind = ValueKind::kFile,
    .options = kOptions,
    .run = run_perplexity,
};

}  // namespace triptych::cli
