// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// triptych run and resume: measure, store, report.
#include <array>
#include <ostream>

#include "experiments/cli_command.h"
#include "experiments/interrupt.h"
#include "experiments/report.h"
#include "experiments/restart.h"
#include "experiments/runner.h"

namespace triptych::cli {
namespace {

/// " --db results/x.sqlite", or nothing for the default one.
std::string db_option(const std::filesystem::path& database) {
  return database == kDefaultDatabase ? "" : " --db " + database.string();
}

/// A pass may wait long for its arrivals, so the first signal is answered at once.
InterruptGuard guard_run(const Arguments& arguments) {
  return {"\ntriptych: stopping at the end of this pass; once more to stop at once\n",
          "\ntriptych: stopped; finished blocks are kept\ncontinue with: triptych resume" +
              db_option(arguments.database()) + "\n"};
}

RunOptions run_options(const Arguments& arguments, CliStreams streams) {
  RunOptions options;
  if (streams.engines != nullptr) options.make_engine = *streams.engines;
  options.database = arguments.database();
  options.cache = arguments.text("cache");
  options.force = arguments.has("force");
  options.quiet = arguments.has("quiet");
  options.interrupted = &InterruptGuard::interrupted();
  return options;
}

std::vector<std::string> next_commands(const std::string& database) {
  const std::string db = db_option(database);
  return {"triptych query v_decomposition" + db, "triptych report --format markdown" + db,
          "sqlite3 " + database + " \"select stack, tpot_ns_median from v_stack_summary\""};
}

int print_report(const RunOutcome& outcome, const std::filesystem::path& database,
                 CliStreams streams) {
  const auto store = db::Store::open(database, db::OpenMode::kReadOnly);
  if (!store) return report_error(store.error(), ErrorSubject::kDatabase, streams);
  const auto data = load_report(*store, outcome.run_id);
  if (!data) return report_error(data.error(), ErrorSubject::kDatabase, streams);
  streams.out << render_report(*data, ReportFormat::kTerminal,
                               {database.string(), next_commands(database.string())});
  return outcome.all_measured ? kExitOk : kExitPartial;
}

/// Resumes the run in a fresh process; returns only if there is none to be had.
int go_on(int64_t run_id, const RunOptions& options, CliStreams streams) {
  std::vector<std::string> args = {"resume", "--run=" + std::to_string(run_id),
                                   "--db=" + options.database.string()};
  if (!options.cache.empty()) args.push_back("--cache=" + options.cache.string());
  if (options.quiet) args.emplace_back("--quiet");
  streams.out.flush();
  streams.err.flush();
  Error error = restart_program(std::move(args));
  error.message += "\ncontinue with: triptych resume --run " + std::to_string(run_id) +
                   db_option(options.database);
  return report_error(error, ErrorSubject::kInput, streams);
}

int finish(const Result<RunOutcome>& outcome, const RunOptions& options, CliStreams streams) {
  if (!outcome) return report_error(outcome.error(), options.database, streams);
  if (!outcome->message.empty()) streams.err << outcome->message << "\n";
  if (outcome->end == RunEnd::kInterrupted) return kExitInterrupted;
  if (outcome->end == RunEnd::kDeviceLost) return go_on(outcome->run_id, options, streams);
  return print_report(*outcome, options.database, streams);
}

int run_run(const Arguments& arguments, CliStreams streams) {
  const auto spec = load_spec(arguments);
  if (!spec) return report_error(spec.error(), ErrorSubject::kInput, streams);
  const InterruptGuard guard = guard_run(arguments);
  const RunOptions options = run_options(arguments, streams);
  return finish(run_experiment(*spec, options), options, streams);
}

int run_resume(const Arguments& arguments, CliStreams streams) {
  const InterruptGuard guard = guard_run(arguments);
  const RunOptions options = run_options(arguments, streams);
  std::error_code ignored;
  if (!std::filesystem::exists(options.database, ignored)) {  // resuming makes no database
    return report_error({ErrorCode::kNotFound, "no such database", options.database.string()},
                        ErrorSubject::kDatabase, streams);
  }
  return finish(resume_run(arguments.number("run"), options), options, streams);
}

constexpr Option kCacheOption = {"cache", ValueKind::kFile, "DIR",
                                 "folder for synthetic models that other engines read",
                                 "TRIPTYCH_CACHE, or triptych in the user's cache folder"};
constexpr std::array kRunOptions = {kDatabaseOption, kSetOption, kCacheOption, kForceOption,
                                    kQuietOption};
constexpr std::array kResumeOptions = {
    kDatabaseOption,
    Option{"run", ValueKind::kNumber, "ID", "run to continue", "the newest unfinished one"},
    kCacheOption, kQuietOption};

}  // namespace

const Command kRun = {
    .name = "run",
    .summary = "measure what a spec asks for, store it and report",
    .synopsis = "SPEC [options]",
    .details =
        "Runs the cells that the database does not hold yet, block by block, and prints the "
        "report.\n"
        "A block is stored as a whole, so that a killed run loses at most the running block; an\n"
        "unfinished run of the same plan is continued. Ctrl-C, SIGTERM or SIGHUP stops at the end "
        "of\n"
        "the running pass, a second one at once.\n"
        "A cell that takes the device with it is stored as failed; the others go on in a fresh\n"
        "process. A cell that the device or its memory cannot hold is stored as skipped.\n"
        "A failed or skipped cell is not tried again; --force measures all into a new run.\n"
        "\n"
        "Arguments:\n"
        "  SPEC  experiment YAML, e.g. experiments/specs/quickstart.yaml\n",
    .min_positional = 1,
    .max_positional = 1,
    .positional_kind = ValueKind::kFile,
    .options = kRunOptions,
    .run = run_run,
};

const Command kResume = {
    .name = "resume",
    .summary = "continue a run that was stopped",
    .synopsis = "[options]",
    .details =
        "Measures exactly the blocks that are missing and prints the report. The spec comes from "
        "the\n"
        "database; model, prompts and program must be those of the run's beginning.\n",
    .options = kResumeOptions,
    .run = run_resume,
};

}  // namespace triptych::cli
