// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// triptych report and query: what the database holds, as text.
#include <array>
#include <ostream>

#include "base/strings.h"
#include "experiments/cli_command.h"
#include "experiments/dead_runs.h"
#include "experiments/report.h"
#include "experiments/table.h"

namespace triptych::cli {
namespace {

constexpr std::array<std::string_view, 4> kReportFormats = {"terminal", "markdown", "csv", "json"};
constexpr std::array<std::string_view, 3> kTableFormats = {"table", "csv", "json"};

constexpr std::array kReportOptions = {
    kDatabaseOption,
    Option{"run", ValueKind::kNumber, "ID", "run to report on", "the newest of the experiment"},
    Option{"format", ValueKind::kText, "FORMAT", "form of the report", "terminal", false,
           kReportFormats}};
constexpr std::array kQueryOptions = {
    kDatabaseOption,
    Option{"format", ValueKind::kText, "FORMAT", "form of the rows", "table", false, kTableFormats},
    Option{"limit", ValueKind::kNumber, "ROWS", "print at most so many rows", "all"}};

int run_report(const Arguments& arguments, CliStreams streams) {
  const std::filesystem::path database = arguments.database();
  mark_dead_runs(database);
  const auto store = db::Store::open(database, db::OpenMode::kReadOnly);
  if (!store) return report_error(store.error(), ErrorSubject::kDatabase, streams);
  auto run_id = arguments.number("run");
  if (!run_id) {
    const auto newest = newest_run(*store, arguments.positional(0));
    if (!newest) return report_error(newest.error(), ErrorSubject::kDatabase, streams);
    run_id = *newest;
  }
  const auto data = load_report(*store, *run_id);
  if (!data) return report_error(data.error(), ErrorSubject::kDatabase, streams);
  if (const std::string experiment = arguments.positional(0);
      !experiment.empty() && data->run.experiment != experiment) {
    return report_error({ErrorCode::kInvalidArgument,
                         str_format("run %lld belongs to the experiment \"%s\", not \"%s\"",
                                    static_cast<long long>(*run_id), data->run.experiment.c_str(),
                                    experiment.c_str()),
                         ""},
                        ErrorSubject::kDatabase, streams);
  }
  const auto format = parse_report_format(arguments.has("format") ? arguments.text("format")
                                                                  : std::string(kReportFormats[0]));
  if (!format) return report_error(format.error(), ErrorSubject::kInput, streams);
  streams.out << render_report(*data, *format, {database.string(), {}});
  return kExitOk;
}

bool is_bare_word(std::string_view text) {
  return !text.empty() && text.find_first_not_of(
                              "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVW"
                              "XYZ0123456789_") == std::string_view::npos;
}

/// The SQL for what the user typed: a view's name stands for all of its rows.
Result<std::string> expand_query(const db::Store& store, const std::string& text) {
  if (!is_bare_word(text)) return text;
  TRIPTYCH_TRY(const auto views, store.view_names());
  for (const std::string& view : views) {
    if (view == text) return "SELECT * FROM " + view;
  }
  const std::string near = nearest(text, views);
  return fail(ErrorCode::kInvalidArgument,
              "no view \"" + text + "\"" +
                  (near.empty() ? "; the views are " + join(views, ", ")
                                : "; did you mean \"" + near + "\"?"));
}

Result<TextTable> list_views(const db::Store& store) {
  TRIPTYCH_TRY(const auto views, store.view_names());
  TextTable table;
  table.columns = {"view", "columns"};
  table.numeric = {false, false};
  for (const std::string& view : views) {
    TRIPTYCH_TRY(const TextTable empty, store.query("SELECT * FROM " + view + " LIMIT 0"));
    table.rows.push_back({view, join(empty.columns, " ")});
  }
  return table;
}

int run_query(const Arguments& arguments, CliStreams streams) {
  mark_dead_runs(arguments.database());
  const auto store = db::Store::open(arguments.database(), db::OpenMode::kReadOnly);
  if (!store) return report_error(store.error(), ErrorSubject::kDatabase, streams);
  const auto format = parse_table_format(arguments.has("format") ? arguments.text("format")
                                                                 : std::string(kTableFormats[0]));
  if (!format) return report_error(format.error(), ErrorSubject::kInput, streams);
  const auto query = [&]() -> Result<TextTable> {
    if (arguments.positional(0).empty()) return list_views(*store);
    TRIPTYCH_TRY(const std::string sql, expand_query(*store, arguments.positional(0)));
    return store->query(sql);
  };
  auto table = query();
  if (!table) return report_error(table.error(), ErrorSubject::kDatabase, streams);
  const auto limit = arguments.number("limit");
  if (limit && table->rows.size() > static_cast<size_t>(*limit)) {
    streams.err << "triptych: " << table->rows.size() - static_cast<size_t>(*limit)
                << " more rows are not shown (--limit)\n";
    table->rows.resize(static_cast<size_t>(*limit));
  }
  streams.out << render_table(*table, *format);
  return kExitOk;
}

}  // namespace

const Command kReport = {
    .name = "report",
    .summary = "print the report of a stored run",
    .synopsis = "[EXPERIMENT] [options]",
    .details =
        "Arguments:\n"
        "  EXPERIMENT  name in the spec; without it the newest run of any experiment\n",
    .max_positional = 1,
    .options = kReportOptions,
    .run = run_report,
};

const Command kQuery = {
    .name = "query",
    .summary = "read the database: a view or SQL",
    .synopsis = "[VIEW_OR_SQL] [options]",
    .details =
        "Without an argument the views and their columns are listed. Nothing can be written.\n"
        "\n"
        "Arguments:\n"
        "  VIEW_OR_SQL  a view, e.g. v_stack_summary, or one SELECT statement\n"
        "\n"
        "Examples:\n"
        "  triptych query v_decomposition --format csv\n"
        "  triptych query \"SELECT stack, tpot_ns_median FROM v_stack_summary\"\n",
    .max_positional = 1,
    .options = kQueryOptions,
    .run = run_query,
};

}  // namespace triptych::cli
