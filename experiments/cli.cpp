// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "experiments/cli.h"

#include <algorithm>
#include <array>
#include <boost/program_options/cmdline.hpp>
#include <boost/program_options/options_description.hpp>
#include <boost/program_options/parsers.hpp>
#include <boost/program_options/positional_options.hpp>
#include <charconv>
#include <exception>
#include <ostream>

#include "base/regex.h"
#include "base/strings.h"
#include "experiments/cli_command.h"
#include "experiments/environment.h"
#include "experiments/yaml_reader.h"

namespace triptych {
namespace cli {
namespace {

namespace po = boost::program_options;

constexpr std::array<const Command*, 10> kCommands = {&kPlan,       &kRun,       &kResume, &kReport,
                                                      &kQuery,      &kAttribute, &kExport, &kSynth,
                                                      &kPerplexity, &kDoctor};

const Command* find_command(std::string_view name) {
  for (const Command* command : kCommands) {
    if (command->name == name) return command;
  }
  return nullptr;
}

int usage_error(const std::string& message, std::string_view command, CliStreams streams) {
  streams.err << "triptych: error: " << message << "\nTry 'triptych "
              << (command.empty() ? "" : std::string(command) + " ") << "--help'.\n";
  return kExitBadInput;
}

po::options_description describe(const Command& command) {
  po::options_description described;
  described.add_options()("help,h", "");
  described.add_options()("positional", po::value<std::vector<std::string>>());
  for (const Option& option : command.options) {
    const std::string name(option.name);
    if (option.kind == ValueKind::kSwitch) {
      described.add_options()(name.c_str(), "");
    } else if (option.repeated) {
      described.add_options()(name.c_str(), po::value<std::vector<std::string>>());
    } else {
      described.add_options()(name.c_str(), po::value<std::string>());
    }
  }
  return described;
}

std::optional<int64_t> parse_number(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 1) return std::nullopt;
  return value;
}

/// What the library does not check: numbers, words, and how many positional arguments there are.
std::string check_arguments(const Command& command, const po::variables_map& map,
                            const std::vector<std::string>& positional) {
  for (const Option& option : command.options) {
    const auto found = map.find(std::string(option.name));
    if (found == map.end() || option.kind == ValueKind::kSwitch || option.repeated) continue;
    const std::string& value = found->second.as<std::string>();
    const std::string name = "--" + std::string(option.name);
    if (option.kind == ValueKind::kNumber && !parse_number(value)) {
      return name + ": expected a positive integer, found \"" + value + "\"";
    }
    if (!option.words.empty() &&
        std::find(option.words.begin(), option.words.end(), value) == option.words.end()) {
      return name + ": \"" + value + "\" is not known" + suggestion(value, option.words);
    }
  }
  if (positional.size() < command.min_positional) {
    return "expected " + split(command.synopsis, ' ').at(positional.size()) + " after '" +
           std::string(command.name) + "'";
  }
  if (positional.size() > command.max_positional) {
    return "unexpected argument \"" + positional[command.max_positional] + "\"";
  }
  return "";
}

std::string unknown_option(const Command& command, std::string name) {
  std::string bare = name.substr(std::min(name.find_first_not_of('-'), name.size()));
  std::vector<std::string> known = {"help"};
  for (const Option& option : command.options) known.emplace_back(option.name);
  const std::string near = nearest(bare, known);
  return "unknown option \"" + name + "\" of '" + std::string(command.name) + "'" +
         (near.empty() ? "" : "; did you mean \"--" + near + "\"?");
}

int run_command(const Command& command, std::span<const std::string> args, CliStreams streams) {
  po::variables_map map;
  std::vector<std::string> positional;
  try {
    po::positional_options_description order;
    order.add("positional", -1);
    // Abbreviations would turn a new option into a different meaning of an old command line.
    const int style = po::command_line_style::unix_style & ~po::command_line_style::allow_guessing;
    const po::options_description described = describe(command);
    po::store(po::command_line_parser(std::vector<std::string>(args.begin(), args.end()))
                  .options(described)
                  .positional(order)
                  .style(style)
                  .run(),
              map);
    po::notify(map);
  } catch (const po::unknown_option& error) {
    return usage_error(unknown_option(command, error.get_option_name()), command.name, streams);
  } catch (const po::error& error) {
    return usage_error(error.what(), command.name, streams);
  }
  if (map.count("help") > 0) {
    streams.out << help_text(command.name);
    return kExitOk;
  }
  if (map.count("positional") > 0) {
    positional = map["positional"].as<std::vector<std::string>>();
  }
  const std::string wrong = check_arguments(command, map, positional);
  if (!wrong.empty()) return usage_error(wrong, command.name, streams);
  return command.run(Arguments(std::move(map), std::move(positional)), streams);
}

int dispatch(std::span<const std::string> args, CliStreams streams) {
  if (args.empty()) {
    streams.err << help_text("");
    return kExitBadInput;
  }
  const std::string& first = args.front();
  if (first == "--help" || first == "-h" || first == "help") {
    const std::string name = args.size() > 1 && first == "help" ? args[1] : "";
    const std::string text = help_text(name);
    if (text.empty()) return dispatch(std::vector<std::string>{name}, streams);
    streams.out << text;
    return kExitOk;
  }
  if (first == "--version") {
    const BuildInfo build = build_info();
    streams.out << "triptych " << build.program_version << " (" << build.git_sha
                << (build.git_dirty ? ", modified" : "") << "; " << build.compiler << ")\n";
    return kExitOk;
  }
  if (first == "--bash-completion") {
    streams.out << bash_completion();
    return kExitOk;
  }
  if (const Command* command = find_command(first)) {
    return run_command(*command, args.subspan(1), streams);
  }
  const bool option = first.starts_with('-');
  std::vector<std::string> known = {"--help", "--version", "--bash-completion"};
  if (!option) known.clear();
  if (!option) {
    for (const Command* command : kCommands) known.emplace_back(command->name);
  }
  const std::string near = nearest(first, known);
  return usage_error((option ? "unknown option \"" : "unknown command \"") + first + "\"" +
                         (near.empty() ? "" : "; did you mean \"" + near + "\"?"),
                     "", streams);
}

}  // namespace

std::span<const Command* const> commands() { return kCommands; }

bool Arguments::has(std::string_view name) const { return map_.count(std::string(name)) > 0; }

std::string Arguments::text(std::string_view name) const {
  const auto found = map_.find(std::string(name));
  return found == map_.end() ? "" : found->second.as<std::string>();
}

std::vector<std::string> Arguments::list(std::string_view name) const {
  const auto found = map_.find(std::string(name));
  if (found == map_.end()) return {};
  return found->second.as<std::vector<std::string>>();
}

std::optional<int64_t> Arguments::number(std::string_view name) const {
  const auto found = map_.find(std::string(name));
  if (found == map_.end()) return std::nullopt;
  return parse_number(found->second.as<std::string>());
}

std::string Arguments::positional(size_t i) const {
  return i < positional_.size() ? positional_[i] : "";
}

std::filesystem::path Arguments::database() const {
  return has("db") ? text("db") : std::string(kDefaultDatabase);
}

int report_error(const Error& error, ErrorSubject subject, CliStreams streams) {
  // Editors and terminals turn a leading file:line:column into a link.
  static const Result<Regex> place = Regex::compile("^.+:[0-9]+(:[0-9]+)?$");
  const bool has_place = place.has_value() && place->search(error.where);
  streams.err << (has_place ? "" : "triptych: error: ") << error.to_string() << "\n";
  return exit_code(error.code, subject);
}

int report_error(const Error& error, const std::filesystem::path& database, CliStreams streams) {
  std::error_code ignored;
  const bool about_database = error.where == database.string() ||
                              error.where == std::filesystem::absolute(database, ignored).string();
  return report_error(error, about_database ? ErrorSubject::kDatabase : ErrorSubject::kInput,
                      streams);
}

Result<ExperimentSpec> load_spec(const Arguments& arguments) {
  std::vector<SpecOverride> overrides;
  for (const std::string& text : arguments.list("set")) {
    TRIPTYCH_TRY(SpecOverride parsed, parse_override(text));
    overrides.push_back(std::move(parsed));
  }
  return parse_spec(arguments.positional(0), overrides);
}

}  // namespace cli

ExitCode exit_code(ErrorCode code, ErrorSubject subject) {
  switch (code) {
    case ErrorCode::kInvalidArgument:
      return kExitBadInput;
    case ErrorCode::kNotFound:
    case ErrorCode::kCorrupt:
      return subject == ErrorSubject::kDatabase ? kExitDatabase : kExitBadInput;
    case ErrorCode::kBusy:
    case ErrorCode::kReadOnly:
    case ErrorCode::kSchemaTooNew:
      return kExitDatabase;
    case ErrorCode::kUnsupported:
    case ErrorCode::kDeviceLost:
      return kExitUnsupported;
    case ErrorCode::kIo:
      return kExitIo;
    case ErrorCode::kOutOfMemory:
      return kExitOutOfMemory;
  }
  TRIPTYCH_CHECK(false, "unknown ErrorCode");
}

int run_cli(std::span<const std::string> args, CliStreams streams) {
  int code = kExitOk;
  try {
    code = cli::dispatch(args, streams);
  } catch (const std::bad_alloc&) {
    streams.err << "triptych: error: out of memory\n";
    return kExitOutOfMemory;
  }
  streams.out.flush();
  if ((code == kExitOk || code == kExitPartial) && !streams.out) {
    streams.err << "triptych: error: the output cannot be written\n";
    return kExitIo;
  }
  return code;
}

}  // namespace triptych
