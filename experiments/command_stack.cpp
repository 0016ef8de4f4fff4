// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "experiments/command_stack.h"

#include <cstdlib>
#include <utility>
#include <vector>

#include "base/hash.h"
#include "base/strings.h"
#include "engine/synthetic_directory.h"
#include "experiments/plan_estimate.h"

namespace triptych {
namespace {

namespace fs = std::filesystem;

bool is_file(const fs::path& path) {
  std::error_code ignored;  // what cannot be looked at is no file of ours
  return fs::is_regular_file(path, ignored);
}

/// "hf_transformers", "my_engine.py": short enough for a message.
std::string short_name(const CommandSpec& command) {
  const std::string& program = command.adapter.empty() ? command.argv.front() : command.adapter;
  return fs::path(program).filename().string();
}

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

}  // namespace

Result<std::string> command_hash(const CommandSpec& command) {
  if (const auto text = adapter_text(command.adapter)) return content_hash(*text);
  if (!command.adapter.empty()) return file_hash(command.folder / command.adapter);
  std::string hashes;
  for (const std::string& argument : command.argv) {
    // A bare name is a program of the PATH, unless it is also a file of the spec's folder.
    const fs::path path = command.folder / argument;
    if (argument.empty() || !is_file(path)) continue;
    TRIPTYCH_TRY(const std::string hash, file_hash(path));
    hashes += argument + "=" + hash + "\n";
  }
  return content_hash(hashes);
}

Result<CommandEngineOptions> command_engine_options(const StackSpec& stack,
                                                    const WorkloadSpec& workload,
                                                    std::shared_ptr<const ModelWeights> shapes,
                                                    const fs::path& model) {
  const CommandSpec& command = stack.command;
  CommandEngineOptions options;
  options.name = short_name(command);
  options.command.working_directory = command.folder;
  if (adapter_text(command.adapter)) {
    TRIPTYCH_TRY(options.adapter, AdapterFile::write(command.adapter));
    options.command.argv = {adapter_python(), options.adapter->path().string()};
  } else if (!command.adapter.empty()) {
    options.command.argv = {adapter_python(),
                            fs::absolute(command.folder / command.adapter).string()};
  } else {
    options.command.argv = command.argv;
  }
  options.open.model = fs::absolute(model);
  options.open.weights = weight_scheme_name(stack.weights);
  options.open.eos_token_id = shapes->config.eos_token_id;
  options.open.options = Json::parse(command.options);
  options.engine = engine_options(stack, workload);
  options.shapes = std::move(shapes);
  options.timeouts = command.timeouts;
  return options;
}

Result<fs::path> cache_folder(const fs::path& chosen) {
  if (!chosen.empty()) return chosen;
  if (const std::string own = environment("TRIPTYCH_CACHE"); !own.empty()) return fs::path(own);
  if (const std::string xdg = environment("XDG_CACHE_HOME"); !xdg.empty()) {
    return fs::path(xdg) / "triptych";
  }
  if (const std::string home = environment("HOME"); !home.empty()) {
    return fs::path(home) / ".cache" / "triptych";
  }
  return fail(ErrorCode::kNotFound,
              "there is no folder for a model that an external engine can read; give one with "
              "--cache or TRIPTYCH_CACHE");
}

Result<fs::path> external_model_path(const ModelRef& model, const Checkpoint& checkpoint,
                                     const ExternalModelOptions& options) {
  if (model.synthetic.empty()) return model.path;
  TRIPTYCH_TRY(const fs::path folder, cache_folder(options.cache));
  const fs::path path = folder / "models" / (model.synthetic + "-" + checkpoint.hash());
  const SyntheticDirectoryOptions writing{.seed = model.seed, .interrupted = options.interrupted};
  std::error_code error;
  if (fs::exists(fs::symlink_status(path, error))) {
    const Status whole = check_synthetic_directory(checkpoint.config(), path, writing);
    if (whole) return path;
    if (options.note) {
      options.note("a model in the cache is damaged and is written anew: " +
                   whole.error().to_string());
    }
    fs::remove_all(path, error);
    if (error) return fail(ErrorCode::kIo, error.message(), path.string());
  }
  fs::create_directories(path.parent_path(), error);
  if (error) return fail(ErrorCode::kIo, error.message(), path.parent_path().string());
  const Result<SyntheticDirectory> written =
      write_synthetic_directory(checkpoint.config(), path, writing);
  // Another process may have given it its name meanwhile; what it wrote is the same.
  if (written || check_synthetic_directory(checkpoint.config(), path, writing)) return path;
  return Unexpected{written.error()};
}

}  // namespace triptych
