// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// The sections of a spec, each read by one function. Private to parse_spec().
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "experiments/spec.h"
#include "experiments/yaml_reader.h"
#include "experiments/yaml_tree.h"

namespace triptych {

/// `model` and `model_fallback`. Only one of the two must exist.
void read_models(YamlReader& reader, const YamlValue& root, const std::filesystem::path& folder,
                 ExperimentSpec& spec);

/// `stacks`. A list in `weights`, `kv` or `threads` makes one stack per combination, named
/// "<stack>-<value>...".
void read_stacks(YamlReader& reader, const YamlValue& root, const std::filesystem::path& folder,
                 ExperimentSpec& spec);

/// What a stack with `engine: command` runs: `adapter` or `command`, `options`, `timeout`. Refuses
/// the keys of built-in engines.
void read_command(YamlReader& reader, const YamlValue& stack, const std::string& what,
                  const SourcePlace& place, const std::filesystem::path& folder,
                  CommandSpec& command);

/// `workload`, `zip` and `exclude`: every combination of the lists in the workload's number fields,
/// lists named together in `zip` walking in step, minus what an `exclude` entry matches.
void read_workloads(YamlReader& reader, const YamlValue& root, const std::filesystem::path& folder,
                    ExperimentSpec& spec);

/// `workload.arrivals`: one process, or a list of them, each a workload point of its own; closed if
/// it is not given.
[[nodiscard]] std::vector<ArrivalSpec> read_arrivals(YamlReader& reader, const YamlValue& workload,
                                                     const std::filesystem::path& folder);
/// `workload.sampling`; greedy if it is not given.
[[nodiscard]] SamplingParams read_sampling(YamlReader& reader, const YamlValue& workload);
/// `workload.slo`.
[[nodiscard]] SloSpec read_slo(YamlReader& reader, const YamlValue& workload);

/// Name of a stack or decomposition: 1 to 48 of a-z, 0-9, '_' and '-'. False notes an error.
[[nodiscard]] bool check_name(YamlReader& reader, const SourcePlace& place, const std::string& name,
                              std::string_view what);

enum class FileKind : uint8_t { kFile, kFileOrFolder };
/// Errors: kNotFound (no such file), kInvalidArgument (a folder where a file is expected, a pipe or
/// device), kIo (it is there but cannot be opened: permissions, say).
[[nodiscard]] Status check_readable(const std::filesystem::path& path, FileKind kind);
/// Notes at `value`, which names it, that `path` is no file that can be read.
void require_file(YamlReader& reader, const YamlValue& value, const std::string& what,
                  const std::filesystem::path& path);

/// The file `value` names, relative to `folder`.
[[nodiscard]] std::filesystem::path resolve_path(const std::filesystem::path& folder,
                                                 const std::string& value);

}  // namespace triptych
