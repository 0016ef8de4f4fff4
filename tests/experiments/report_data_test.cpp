// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// Numbers in CSV and JSON are exact; their layout is tested by the golden files of report_test.cpp.
#include <gtest/gtest.h>

#include <cstdlib>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/random.h"
#include "base/strings.h"
#include "base/units.h"
#include "experiments/report_render.h"

namespace triptych {
namespace {

ReportData with_median(double median) {
  ReportData data;
  ReportComparison& comparison = data.comparisons.emplace_back();
  comparison.label = "c=1";
  ReportCell& cell = comparison.cells.emplace_back();
  cell.row.comparison = "c=1";
  cell.row.stack = "full";
  cell.summaries["tpot_ns"] = {.cell_id = 1,
                               .metric = "tpot_ns",
                               .median = median,
                               .lo = -std::numeric_limits<double>::infinity(),
                               .hi = median,
                               .blocks = 3};
  return data;
}

TEST(ReportData, NumbersReadBackAsTheSameDouble) {
  for (uint64_t i = 0; i < 100; ++i) {
    const double median = random_normal(5, i) * 1e6;
    const ReportData data = with_median(median);
    const auto json = nlohmann::json::parse(render_report_json(data));
    const auto& summary = json["comparisons"][0]["cells"][0]["summaries"]["tpot_ns"];
    EXPECT_EQ(summary["median"].get<double>(), median);
    EXPECT_TRUE(summary["lo"].is_null());
    const std::string csv = render_report_csv(data);
    const std::string start = "summary,c=1,full,,tpot_ns,";
    const size_t at = csv.find(start);
    ASSERT_NE(at, std::string::npos) << csv;
    const std::vector<std::string> fields =
        split(std::string_view(csv).substr(at + start.size(), 100), ',');
    EXPECT_EQ(std::strtod(fields[0].c_str(), nullptr), median);
    EXPECT_EQ(fields[1], "");  // an infinite bound is no number
    EXPECT_EQ(std::strtod(fields[2].c_str(), nullptr), median);
    EXPECT_EQ(fields[3], "ns");
  }
}

TEST(ReportData, MemoryThatNobodyToldIsNoNumber) {
  ReportData data = with_median(1e6);
  ReportCell& cell = data.comparisons[0].cells[0];
  cell.row.status = "done";
  cell.facts.emplace();
  data.run.memory_bytes = int64_t{7} << 30;
  const auto json = nlohmann::json::parse(render_report_json(data))["comparisons"][0]["cells"][0];
  EXPECT_TRUE(json["peak_bytes"].is_null());
  EXPECT_TRUE(json["weight_bytes"].is_null());
  EXPECT_NE(render_report_csv(data).find("fact,c=1,full,,peak_bytes,,"), std::string::npos);
  const std::string untold = render_report(data, ReportFormat::kMarkdown, {});
  EXPECT_EQ(untold.find("0 B"), std::string::npos) << untold;
  cell.facts->peak_bytes = 3 << 20;
  EXPECT_NE(render_report_csv(data).find("fact,c=1,full,,peak_bytes,3145728,"), std::string::npos);
  EXPECT_NE(render_report(data, ReportFormat::kMarkdown, {}).find(format_bytes(3 << 20)),
            std::string::npos);
}

TEST(ReportData, BytesThatAreNoTextDoNotBreakJson) {
  ReportData data = with_median(1);
  data.run.question = "\xFF";
  EXPECT_TRUE(nlohmann::json::accept(render_report_json(data)));
}

}  // namespace
}  // namespace triptych
