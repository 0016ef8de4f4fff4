// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// Command: a subcommand as data (arguments, options, help) and the function that runs it. Private
// to the CLI.
#pragma once

#include <boost/program_options/variables_map.hpp>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "db/store.h"
#include "experiments/cli.h"
#include "experiments/spec.h"
#include "profiler/trace.h"

namespace triptych::cli {

/// What an option's value is; says how it is checked and what completion offers.
enum class ValueKind : uint8_t { kSwitch, kText, kFile, kNumber };

/// One option. Parsing, help and completion are all made from this.
struct Option {
  std::string_view name;  ///< Without dashes.
  ValueKind kind = ValueKind::kSwitch;
  std::string_view value_name;  ///< "FILE"; "" for a switch.
  std::string_view help;        ///< Meaning and unit.
  std::string_view preset;      ///< Default as text; "" = none. For a switch: what off means.
  bool repeated = false;
  std::span<const std::string_view> words = {};  ///< All values, when they are few.
};

/// The parsed command line of one command.
class Arguments {
 public:
  Arguments(boost::program_options::variables_map map, std::vector<std::string> positional)
      : map_(std::move(map)), positional_(std::move(positional)) {}
  [[nodiscard]] bool has(std::string_view name) const;
  /// The value, or "" when not given.
  [[nodiscard]] std::string text(std::string_view name) const;
  [[nodiscard]] std::vector<std::string> list(std::string_view name) const;
  /// A non-negative number; nullopt when not given. Checked before the command runs.
  [[nodiscard]] std::optional<int64_t> number(std::string_view name) const;
  /// --db, or its default.
  [[nodiscard]] std::filesystem::path database() const;
  /// The i-th positional argument, or "".
  [[nodiscard]] std::string positional(size_t i) const;

 private:
  boost::program_options::variables_map map_;
  std::vector<std::string> positional_;
};

struct Command {
  std::string_view name;
  std::string_view summary;   ///< One line of `triptych --help`.
  std::string_view synopsis;  ///< "SPEC [options]".
  std::string_view details;   ///< Paragraphs of its own --help.
  size_t min_positional = 0;
  size_t max_positional = 0;
  ValueKind positional_kind = ValueKind::kText;
  std::span<const Option> options = {};
  int (*run)(const Arguments&, CliStreams) = nullptr;
};

[[nodiscard]] std::span<const Command* const> commands();
extern const Command kPlan, kRun, kResume, kReport, kQuery, kAttribute, kExport, kSynth,
    kPerplexity, kDoctor;

/// Prints an error and returns its exit code. An error with a place in a file begins with it;
/// every other one with "triptych: error: ".
[[nodiscard]] int report_error(const Error& error, ErrorSubject subject, CliStreams streams);
/// The same for calls that touch input and database: an error about `database` is the database's.
[[nodiscard]] int report_error(const Error& error, const std::filesystem::path& database,
                               CliStreams streams);

// Options that several commands share.
inline constexpr std::string_view kDefaultDatabase = "results.sqlite";
inline constexpr Option kDatabaseOption = {"db", ValueKind::kFile, "FILE",
                                           "results database (SQLite)", kDefaultDatabase};
inline constexpr Option kSetOption = {
    "set",       ValueKind::kText,
    "KEY=VALUE", "replace one value of the spec, e.g. measure.blocks=5; may be repeated",
    "",          true};
inline constexpr Option kRunIdOption = {"run", ValueKind::kNumber, "ID", "run to use",
                                        "the newest one that fits"};
inline constexpr Option kForceOption = {"force", ValueKind::kSwitch, "",
                                        "measure again what the database holds, into a new run",
                                        "off: only what is missing"};
inline constexpr Option kQuietOption = {"quiet", ValueKind::kSwitch, "",
                                        "no progress on standard error", "off"};

/// The spec named by the first positional argument, with --set applied.
[[nodiscard]] Result<ExperimentSpec> load_spec(const Arguments& arguments);

/// A cell and its newest trace.
struct StoredTrace {
  db::CellRow cell;
  Trace trace;
};
/// The trace of cell `name` in run `run_id`, or in the newest run that has one. Errors: kNotFound
/// with the nearest cell name; those of Store.
[[nodiscard]] Result<StoredTrace> load_stored_trace(const db::Store& store, const std::string& name,
                                                    std::optional<int64_t> run_id);

}  // namespace triptych::cli
