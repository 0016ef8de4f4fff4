// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// Random rows, comparison of rows, and rights, for the tests of db/.
#pragma once

#include <unistd.h>

#include <array>
#include <cmath>
#include <concepts>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/random.h"
#include "base/strings.h"
#include "db/row_fields.h"
#include "db/run_fields.h"

namespace triptych::db {

/// Fills every column of a row with values that have broken databases before.
class RandomFill {
 public:
  explicit RandomFill(uint64_t seed) : random_(seed) {}

  void operator()(std::string_view, bool& value) { value = random_() % 2 == 0; }
  template <std::signed_integral T>
  void operator()(std::string_view, T& value) {
    value = static_cast<T>(random_() >> random_.below(64));
    if (random_.below(8) == 0) value = std::numeric_limits<T>::max();
    if (random_.below(8) == 0) value = std::numeric_limits<T>::min();
  }
  void operator()(std::string_view, double& value) {
    const std::array<double, 6> odd = {0, 1.0 / 3, 1e308, 5e-324, -2.5, 9007199254740991.0};
    const uint64_t choice = random_.below(12);
    value = choice < odd.size() ? odd[choice] : std::exp(random_normal(random_(), 0) * 20);
  }
  void operator()(std::string_view, std::string& value) {
    const std::array<std::string, 8> odd = {"",
                                            "plain",
                                            "it's \"quoted\"; --",
                                            "Größe 速度 🚀",
                                            std::string("nul\0inside", 10),
                                            "line\nbreak\ttab",
                                            "%s?1:a",
                                            std::string(5000, 'x')};
    value = odd[random_.below(odd.size())] + std::to_string(random_.below(1000));
  }
  template <class T>
  void operator()(std::string_view column, std::optional<T>& value) {
    if (random_.below(3) == 0) {
      value.reset();
    } else {
      (*this)(column, value.emplace());
    }
  }
  void operator()(std::string_view column, std::vector<int64_t>& value) {
    value.resize(random_.below(6));
    for (int64_t& v : value) (*this)(column, v);
  }
  void operator()(std::string_view, AssignedKey<int64_t>) {}
  void operator()(std::string_view column, Bound<double> bound) {
    if (random_.below(3) == 0) {
      bound.value = bound.when_null;
    } else {
      (*this)(column, bound.value);
    }
  }

 private:
  RandomStream random_;
};

/// A row as text, to the last bit, so that rows can be compared and a difference read.
class Describe {
 public:
  template <std::integral T>
  void operator()(std::string_view column, const T& value) {
    add(column, std::to_string(value));
  }
  void operator()(std::string_view column, const double& value) {
    add(column, str_format("%a", value));
  }
  void operator()(std::string_view column, const std::string& value) { add(column, value); }
  template <class T>
  void operator()(std::string_view column, const std::optional<T>& value) {
    value ? (*this)(column, *value) : add(column, "NULL");
  }
  void operator()(std::string_view column, const std::vector<int64_t>& values) {
    for (const int64_t value : values) (*this)(column, value);
    add(column, "end");
  }
  void operator()(std::string_view column, AssignedKey<const int64_t> key) {
    (*this)(column, key.value);
  }
  void operator()(std::string_view column, Bound<const double> bound) {
    (*this)(column, bound.value);
  }
  [[nodiscard]] const std::string& text() const { return text_; }

 private:
  void add(std::string_view column, const std::string& value) {
    text_.append(column).append("=").append(value).append("\n");
  }
  std::string text_;
};

template <class Row>
[[nodiscard]] Row random_row(uint64_t seed) {
  Row row;
  for_each_field(row, RandomFill(seed));
  return row;
}

template <class Row>
[[nodiscard]] std::string describe(const Row& row) {
  Describe describe;
  for_each_field(row, describe);
  return describe.text();
}

template <class Row>
[[nodiscard]] std::vector<std::string> describe(const std::vector<Row>& rows) {
  std::vector<std::string> texts;
  for (const Row& row : rows) texts.push_back(describe(row));
  return texts;
}

/// A run with plausible values; tests change what they look at.
[[nodiscard]] inline RunRow make_run(std::string experiment) {
  RunRow run;
  run.experiment = std::move(experiment);
  run.started_utc = "2026-01-31T12:34:56Z";
  run.status = "running";
  run.blocks_planned = 3;
  return run;
}

[[nodiscard]] inline CellRow make_cell(std::string stack, int64_t stack_index) {
  CellRow cell;
  cell.stack = std::move(stack);
  cell.stack_index = stack_index;
  cell.comparison = "c=1,prompt=32,output=64";
  cell.name = cell.stack + "@" + cell.comparison;
  cell.device = "cpu";
  cell.concurrency_total = 1;
  cell.status = "planned";
  return cell;
}

/// Rights do not bind root; while this lives the process acts as "nobody" where it was root.
class WithoutRoot {
 public:
  WithoutRoot() : was_root_(geteuid() == 0) {
    TRIPTYCH_CHECK(!was_root_ || seteuid(65534) == 0, "becoming nobody");
  }
  WithoutRoot(const WithoutRoot&) = delete;
  WithoutRoot& operator=(const WithoutRoot&) = delete;
  ~WithoutRoot() { TRIPTYCH_CHECK(!was_root_ || seteuid(0) == 0, "becoming root again"); }

 private:
  bool was_root_;
};

}  // namespace triptych::db
