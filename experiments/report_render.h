// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// The formats of a report. A document is what terminal and Markdown share; CSV and JSON are data.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "experiments/report.h"
#include "experiments/table.h"

namespace triptych {

/// One part of a document.
struct DocumentBlock {
  enum class Kind : uint8_t {
    kTitle,      ///< Of the whole document.
    kHeading,    ///< Of a comparison.
    kCaption,    ///< Of what follows, within a comparison.
    kParagraph,  ///< Text that may be wrapped.
    kFields,     ///< `table` without a head: a name and what belongs to it.
    kTable,
    kCommands,  ///< `table` with one column: commands to copy.
  };
  Kind kind = Kind::kParagraph;
  std::string text;
  TextTable table;
};

using Document = std::vector<DocumentBlock>;

[[nodiscard]] Document make_document(const ReportData& data, const ReportContext& context);
[[nodiscard]] std::string render_terminal(const Document& document);
[[nodiscard]] std::string render_markdown(const Document& document);
[[nodiscard]] std::string render_report_csv(const ReportData& data);
[[nodiscard]] std::string render_report_json(const ReportData& data);

/// Breaks `text` at spaces into lines of at most `width` columns; a longer word is cut.
[[nodiscard]] std::vector<std::string> wrap_text(std::string_view text, size_t width);

/// Bars of a waterfall on the log scale: bar i goes from the sum of the values before it to the sum
/// with it, '#' for a gain and '-' for a loss, all drawn to one scale of `width` characters.
[[nodiscard]] std::vector<std::string> waterfall(const std::vector<double>& log_values,
                                                 size_t width);

}  // namespace triptych
