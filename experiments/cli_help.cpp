// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// Help and completion, both made from the commands' own tables.
#include <algorithm>

#include "base/strings.h"
#include "experiments/cli.h"
#include "experiments/cli_command.h"

namespace triptych {
namespace {

using cli::Command;
using cli::Option;
using cli::ValueKind;

constexpr size_t kWidth = 100;

constexpr std::string_view kIntroduction =
    "triptych - a serving stack is X times faster than its baseline: how much of that is the\n"
    "runtime, how much the kernel and the quantization?\n"
    "\n"
    "Usage: triptych COMMAND [arguments] [options]\n";

constexpr std::string_view kExitCodes =
    "Exit codes:\n"
    "  0    done\n"
    "  1    the run finished, but some cells failed or were skipped; their rows say why\n"
    "  2    bad input: arguments, spec, model or trace file\n"
    "  3    database: missing, locked, read-only, of a newer version, or not of this program\n"
    "  4    the device or this build cannot do it\n"
    "  5    the system refused a read or a write\n"
    "  6    does not fit in memory; of 'plan': a cell cannot run\n"
    "  130  interrupted; 'triptych resume' continues\n";

/// "left   right", the right side wrapped and aligned.
std::string entry(const std::string& left, std::string_view right, size_t column) {
  std::string out = "  " + left;
  out += out.size() + 2 <= column ? std::string(column - out.size(), ' ')
                                  : "\n" + std::string(column, ' ');
  size_t used = column;
  bool first = true;
  for (const std::string& word : split(right, ' ')) {
    if (!first && used + 1 + word.size() > kWidth) {
      out += "\n" + std::string(column, ' ');
      used = column;
      first = true;
    }
    if (!first) out += ' ';
    used += word.size() + (first ? 0 : 1);
    out += word;
    first = false;
  }
  return out + "\n";
}

std::string option_usage(const Option& option) {
  std::string text = "--" + std::string(option.name);
  if (!option.value_name.empty()) text += " " + std::string(option.value_name);
  return text;
}

std::string option_help(const Option& option) {
  std::string text(option.help);
  if (!option.words.empty()) {
    const std::vector<std::string> words(option.words.begin(), option.words.end());
    text += ": " + join(words, ", ");
  }
  if (!option.preset.empty()) text += " (default: " + std::string(option.preset) + ")";
  return text;
}

std::string main_help() {
  std::string text = std::string(kIntroduction) + "\nCommands:\n";
  for (const Command* command : cli::commands()) {
    text += entry(std::string(command->name), command->summary, 14);
  }
  text += "\nOptions:\n";
  text +=
      entry("-h, --help", "this text; 'triptych COMMAND --help' has the options of a command", 23);
  text += entry("--version", "version, commit and compiler", 23);
  text += entry("--bash-completion",
                "a completion script; in ~/.bashrc: eval \"$(triptych --bash-completion)\"", 23);
  return text + "\n" + std::string(kExitCodes);
}

std::string command_help(const Command& command) {
  std::string text = "triptych " + std::string(command.name) + " - " +
                     std::string(command.summary) + "\n\nUsage: triptych " +
                     std::string(command.name) + " " + std::string(command.synopsis) + "\n\n" +
                     std::string(command.details) + "\nOptions:\n";
  size_t column = std::string_view("  -h, --help").size();
  for (const Option& option : command.options) {
    column = std::max(column, option_usage(option).size() + 2);
  }
  column += 2;
  for (const Option& option : command.options) {
    text += entry(option_usage(option), option_help(option), column);
  }
  return text + entry("-h, --help", "this text", column);
}

}  // namespace

std::string help_text(std::string_view name) {
  if (name.empty()) return main_help();
  for (const Command* command : cli::commands()) {
    if (command->name == name) return command_help(*command);
  }
  return "";
}

std::string bash_completion() {
  std::string names;
  std::string cases;
  std::string values;
  for (const Command* command : cli::commands()) {
    if (!names.empty()) names += ' ';
    names += command->name;
    std::string options;
    for (const Option& option : command->options) {
      options += "--" + std::string(option.name) + " ";
      const std::string pattern =
          std::string(command->name) + ":--" + std::string(option.name) + ") ";
      if (!option.words.empty()) {
        const std::vector<std::string> words(option.words.begin(), option.words.end());
        values += "    " + pattern + "words='" + join(words, " ") + "' ;;\n";
      } else if (option.kind == ValueKind::kFile) {
        values += "    " + pattern + "files=1 ;;\n";
      } else if (option.kind != ValueKind::kSwitch) {
        values += "    " + pattern + "return ;;\n";
      }
    }
    cases += "        " + std::string(command->name) + ") words='" + options + "--help'" +
             (command->positional_kind == ValueKind::kFile ? "; files=1" : "") + " ;;\n";
  }
  return "# Completion of triptych for bash, printed by 'triptych --bash-completion'.\n"
         "_triptych() {\n"
         "  local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD-1]}\n"
         "  local command=${COMP_WORDS[1]} words='' files=''\n"
         "  COMPREPLY=()\n"
         "  if [ \"$COMP_CWORD\" -eq 1 ]; then\n"
         "    words='" +
         names +
         " --help --version --bash-completion'\n"
         "  else\n"
         "    case \"$command:$previous\" in\n" +
         values +
         "    *)\n"
         "      case \"$command\" in\n" +
         cases +
         "      esac ;;\n"
         "    esac\n"
         "  fi\n"
         "  mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$current\")\n"
         "  if [ -n \"$files\" ] && [ \"${current:0:1}\" != - ]; then\n"
         "    mapfile -t COMPREPLY < <(compgen -f -- \"$current\")\n"
         "  fi\n"
         "}\n"
         "complete -o filenames -F _triptych triptych\n";
}

}  // namespace triptych
