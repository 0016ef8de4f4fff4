// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// Rows to and from statements, over the column lists of row_fields.h. Private to this room.
#pragma once

#include <concepts>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "db/connection.h"
#include "db/row_fields.h"
#include "db/run_fields.h"

namespace triptych::db {

/// "[1,2,3]"
[[nodiscard]] std::string json_array(const std::vector<int64_t>& values);
/// Errors: kCorrupt with the text.
[[nodiscard]] Result<std::vector<int64_t>> parse_json_array(std::string_view text);

/// "a, b, c": the columns of Row.
template <class Row>
[[nodiscard]] std::string columns_of() {
  std::string columns;
  const Row row;
  for_each_field(row, [&columns](std::string_view column, const auto&) {
    if (!columns.empty()) columns += ", ";
    columns += column;
  });
  return columns;
}

/// INSERT with a parameter for each of `leading` ("trace_id, ordinal, ") and of Row's columns.
template <class Row>
[[nodiscard]] std::string insert_sql(std::string_view leading = "",
                                     std::string_view verb = "INSERT INTO ") {
  const std::string columns = std::string(leading) + columns_of<Row>();
  std::string parameters = "?";
  for (const char c : columns) {
    if (c == ',') parameters += ", ?";
  }
  return std::string(verb) + std::string(kTable<Row>) + " (" + columns + ") VALUES (" + parameters +
         ")";
}

class FieldWriter {
 public:
  FieldWriter(Statement& statement, int first) : statement_(statement), index_(first) {}

  template <std::integral T>
  void operator()(std::string_view, const T& value) {
    statement_.bind(index_++, static_cast<int64_t>(value));
  }
  void operator()(std::string_view, const double& value) { statement_.bind(index_++, value); }
  void operator()(std::string_view, const std::string& value) {
    statement_.bind(index_++, std::string_view(value));
  }
  template <class T>
  void operator()(std::string_view, const std::optional<T>& value) {
    statement_.bind(index_++, value);
  }
  void operator()(std::string_view, const std::vector<int64_t>& value) {
    statement_.bind(index_++, std::string_view(json_array(value)));
  }
  void operator()(std::string_view, AssignedKey<const int64_t>) {
    statement_.bind(index_++, std::nullopt);
  }
  void operator()(std::string_view, Bound<const double> bound) {
    statement_.bind(index_++, bound.value);
  }

 private:
  Statement& statement_;
  int index_;
};

/// Binds the columns of `row` to parameters from `first` on and runs the statement.
template <class Row>
[[nodiscard]] Status write_row(Statement& statement, const Row& row, int first = 1) {
  for_each_field(row, FieldWriter(statement, first));
  return statement.execute();
}

class FieldReader {
 public:
  FieldReader(const Statement& statement, int first) : statement_(statement), column_(first) {}

  template <std::integral T>
  void operator()(std::string_view, T& value) {
    value = static_cast<T>(statement_.int64_at(column_++));
  }
  void operator()(std::string_view, double& value) { value = statement_.double_at(column_++); }
  void operator()(std::string_view, std::string& value) { value = statement_.text_at(column_++); }
  template <class T>
  void operator()(std::string_view column, std::optional<T>& value) {
    if (statement_.is_null(column_)) {
      value.reset();
      ++column_;
    } else {
      (*this)(column, value.emplace());
    }
  }
  void operator()(std::string_view, std::vector<int64_t>& value) {
    Result<std::vector<int64_t>> parsed = parse_json_array(statement_.text_at(column_++));
    if (parsed) {
      value = std::move(*parsed);
    } else {
      status_ = Unexpected{parsed.error()};
    }
  }
  void operator()(std::string_view column, AssignedKey<int64_t> key) { (*this)(column, key.value); }
  void operator()(std::string_view, Bound<double> bound) {
    bound.value = statement_.is_null(column_) ? bound.when_null : statement_.double_at(column_);
    ++column_;
  }
  [[nodiscard]] const Status& status() const { return status_; }

 private:
  const Statement& statement_;
  int column_;
  Status status_;
};

/// The row at the current step of `statement`, from column `first` on.
template <class Row>
[[nodiscard]] Result<Row> read_row(const Statement& statement, int first = 0) {
  Row row;
  FieldReader reader(statement, first);
  for_each_field(row, reader);
  TRIPTYCH_RETURN_IF_ERROR(reader.status());
  return row;
}

/// All rows of a bound statement whose columns are those of Row.
template <class Row>
[[nodiscard]] Result<std::vector<Row>> read_rows(Statement& statement) {
  std::vector<Row> rows;
  while (true) {
    TRIPTYCH_TRY(const bool more, statement.step());
    if (!more) return rows;
    TRIPTYCH_TRY(Row row, read_row<Row>(statement));
    rows.push_back(std::move(row));
  }
}

}  // namespace triptych::db
