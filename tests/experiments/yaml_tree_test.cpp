// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "experiments/yaml_tree.h"

#include <gtest/gtest.h>

#include <array>
#include <string_view>

#include <string>

#include "base/random.h"

namespace triptych {
namespace {

/// Equal but for places, and for quotes that carry no meaning.
bool same(const YamlValue& a, const YamlValue& b) {
  if (a.kind != b.kind || a.text != b.text || a.items.size() != b.items.size() ||
      a.entries.size() != b.entries.size()) {
    return false;
  }
  const bool looks_like_number = a.text.find_first_not_of("0123456789+-.eE") == std::string::npos;
  if (a.kind == YamlValue::Kind::kScalar && (looks_like_number || a.text == "true") &&
      a.quoted != b.quoted && !a.text.empty()) {
    return false;
  }
  for (size_t i = 0; i < a.items.size(); ++i) {
    if (!same(a.items[i], b.items[i])) return false;
  }
  for (size_t i = 0; i < a.entries.size(); ++i) {
    if (a.entries[i].key != b.entries[i].key) return false;
    if (!same(a.entries[i].value, b.entries[i].value)) return false;
  }
  return true;
}

std::string random_text(RandomStream& random) {
  static const std::string_view kPieces[] = {
      "a", "1",  "-",  ":", " ", "#", "\"",   "\\", "\n", "'", "{", "é", "true",
      "~", "..", "\t", "&", "*", "%", "\x01", "0x", ",",  "]", "€", "|", "null"};
  std::string text;
  const uint64_t length = random.below(6);
  for (uint64_t i = 0; i < length; ++i) text += kPieces[random.below(std::size(kPieces))];
  return text;
}

YamlValue random_tree(RandomStream& random, int depth) {
  YamlValue value;
  const uint64_t kind = random.below(depth > 0 ? 5 : 3);
  if (kind == 0) return value;
  if (kind <= 2) {
    value.kind = YamlValue::Kind::kScalar;
    value.quoted = kind == 2;
    static const std::string_view kPlain[] = {"12", "-3", "1.5", "true", "false", "word", "1e9"};
    value.text =
        value.quoted ? random_text(random) : std::string(kPlain[random.below(std::size(kPlain))]);
    return value;
  }
  value.kind = kind == 3 ? YamlValue::Kind::kSequence : YamlValue::Kind::kMapping;
  const uint64_t size = random.below(4);
  for (uint64_t i = 0; i < size; ++i) {
    if (kind == 3) {
      value.items.push_back(random_tree(random, depth - 1));
    } else {
      value.entries.push_back(
          {"k" + std::to_string(i) + random_text(random), {}, random_tree(random, depth - 1)});
    }
  }
  return value;
}

TEST(CanonicalYaml, ParsesBackToTheSameTree) {
  RandomStream random(11);
  for (int round = 0; round < 2000; ++round) {
    YamlValue tree = random_tree(random, 4);
    for (const int block_levels : {0, 1, 2}) {
      const std::string text = canonical_yaml(tree, block_levels);
      const auto parsed = parse_yaml(text, "t");
      ASSERT_TRUE(parsed.has_value()) << parsed.error().to_string() << "\n" << text;
      EXPECT_TRUE(same(tree, *parsed)) << text;
      EXPECT_EQ(canonical_yaml(*parsed, block_levels), text);
    }
  }
}

TEST(ParseYaml, PlacesCountFromOne) {
  const auto root = parse_yaml("a: 1\nb:\n  - x\n  - {c: y}\n", "t");
  ASSERT_TRUE(root.has_value()) << root.error().to_string();
  const YamlValue* b = root->find("b");
  ASSERT_NE(b, nullptr);
  EXPECT_EQ(b->items[1].find("c")->place.line, 4);
  EXPECT_EQ(b->items[1].find("c")->place.column, 9);
  EXPECT_EQ(root->entries[1].place.line, 2);
  EXPECT_EQ(root->find("nothing"), nullptr);
}

TEST(ParseYaml, TellsTextFromValues) {
  const auto root = parse_yaml("[1, '1', ~, null, '', \"null\", ]", "t");
  ASSERT_TRUE(root.has_value()) << root.error().to_string();
  ASSERT_EQ(root->items.size(), 6u);
  EXPECT_FALSE(root->items[0].quoted);
  EXPECT_TRUE(root->items[1].quoted);
  EXPECT_EQ(root->items[2].kind, YamlValue::Kind::kNull);
  EXPECT_EQ(root->items[3].kind, YamlValue::Kind::kNull);
  EXPECT_EQ(root->items[4].kind, YamlValue::Kind::kScalar);
  EXPECT_EQ(root->items[5].kind, YamlValue::Kind::kScalar);
}

TEST(ParseYaml, KeepsDuplicatesForTheReader) {
  const auto root = parse_yaml("a: 1\na: 2\n", "t");
  ASSERT_TRUE(root.has_value());
  EXPECT_EQ(root->entries.size(), 2u);
  EXPECT_EQ(root->find("a")->text, "1");
}

TEST(ParseYaml, DepthIsLimitedOnBothSides) {
  const auto nested = [](int depth) {
    return std::string(static_cast<size_t>(depth), '[') + "x" +
           std::string(static_cast<size_t>(depth), ']');
  };
  EXPECT_TRUE(parse_yaml(nested(kMaxYamlDepth), "t").has_value());
  EXPECT_FALSE(parse_yaml(nested(kMaxYamlDepth + 1), "t").has_value());
  EXPECT_FALSE(parse_yaml(nested(200000), "t").has_value()) << "must not overflow the stack";
  EXPECT_FALSE(parse_yaml(std::string(100000, '['), "t").has_value());
  std::string dashes;
  for (int i = 0; i < 100000; ++i) dashes += "- ";
  EXPECT_FALSE(parse_yaml(dashes, "t").has_value());
}

TEST(ParseYaml, SizeIsLimited) {
  EXPECT_FALSE(parse_yaml(std::string(kMaxYamlBytes + 1, ' '), "t").has_value());
  std::string many = "[";
  for (size_t i = 0; i <= kMaxYamlValues; ++i) many += "1,";
  EXPECT_FALSE(parse_yaml(many + "]", "t").has_value());
}

TEST(SetYamlValue, ReplacesAndAdds) {
  auto root = parse_yaml("a: {b: 1}\n", "t");
  ASSERT_TRUE(root.has_value());
  const auto set = [&root](std::string_view path, std::string_view value) {
    static constexpr std::array<std::string_view, 1> kNamed = {"n"};
    const std::string text = "--set " + std::string(path) + "=" + std::string(value);
    return set_yaml_value(*root, path, value, text, kNamed);
  };
  ASSERT_TRUE(set("a.b", "[2, 3]").has_value());
  ASSERT_TRUE(set("a.c", "x").has_value());
  ASSERT_TRUE(set("d.e", "5").has_value());
  EXPECT_EQ(canonical_yaml(*root, 1), "a: {b: [2, 3], c: x}\nd: {e: 5}\n");
  EXPECT_EQ(describe_place("f", root->find("a")->find("c")->place), "--set a.c=x");
  EXPECT_FALSE(set("a.b.y", "1").has_value()) << "a list has no keys";
}

TEST(SetYamlValue, MakesMappingsOnTheWayButNoNames) {
  static constexpr std::array<std::string_view, 1> kNamed = {"stacks"};
  auto root = parse_yaml("stacks: {full: {runtime: fast, parallel: }}\n", "t");
  ASSERT_TRUE(root.has_value());
  const auto set = [&root](std::string_view path) {
    return set_yaml_value(*root, path, "2", "--set " + std::string(path) + "=2", kNamed);
  };
  ASSERT_TRUE(set("stacks.full.options.a.b").has_value());
  ASSERT_TRUE(set("stacks.full.parallel.tp").has_value());
  ASSERT_TRUE(set("workload.slo.ttft_ms").has_value());
  ASSERT_TRUE(set("stacks.new").has_value()) << "a whole stack is no slip of the pen";
  EXPECT_EQ(canonical_yaml(*root, 1),
            "stacks: {full: {runtime: fast, parallel: {tp: 2}, options: {a: {b: 2}}}, new: 2}\n"
            "workload: {slo: {ttft_ms: 2}}\n");
  const YamlValue* made = root->find("workload")->find("slo");
  EXPECT_EQ(describe_place("f", made->place), "--set workload.slo.ttft_ms=2");
  const Status typo = set("stacks.ful.parallel.tp");
  ASSERT_FALSE(typo.has_value());
  EXPECT_EQ(typo.error().message, "no key \"ful\" in stacks; did you mean \"full\"?");
}

}  // namespace
}  // namespace triptych
