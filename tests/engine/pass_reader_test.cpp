// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "engine/pass_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace triptych {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kSent = 1000;
constexpr int64_t kReceived = 1'000'000;

std::vector<Request> three(bool ignore_eos = true) {
  return {{.prompt = {1}, .max_new_tokens = 2, .ignore_eos = ignore_eos},
          {.prompt = {1}, .max_new_tokens = 1, .ignore_eos = ignore_eos},
          {.prompt = {1}, .max_new_tokens = 1, .ignore_eos = ignore_eos}};
}

/// Feeds records, one a line; the first error, or "" if all were taken.
struct Feed {
  explicit Feed(std::vector<Request> asked, int64_t concurrency = 2)
      : requests(std::move(asked)),
        reader({.pass = 5,
                .requests = requests,
                .concurrency = concurrency,
                .vocab_size = 50,
                .eos_token_id = 9,
                .sent_ns = kSent}) {}
  std::string take(const std::vector<std::string>& records) {
    for (const std::string& record : records) {
      const Status taken = reader.take(Json::parse(record), kReceived);
      if (!taken) {
        EXPECT_EQ(taken.error().code, ErrorCode::kCorrupt);
        return taken.error().message;
      }
    }
    return "";
  }
  std::vector<Request> requests;
  PassReader reader;
};

const std::string kStart = R"({"type": "start", "pass": 5, "ns": 1100})";

TEST(PassReader, AWholePass) {
  Feed feed(three());
  EXPECT_EQ(
      feed.take({kStart, R"({"type": "prefill", "ids": [0, 1], "start_ns": 1150, "ns": 1200})",
                 R"({"type": "tokens", "ns": 1210, "of": [[0, 0, 4], [1, 0, 5]]})",
                 R"({"type": "done", "ids": [1], "ns": 1220, "reason": "length"})",
                 R"({"type": "prefill", "ids": [2], "start_ns": 1230, "ns": 1250})",
                 R"({"type": "tokens", "ns": 1300, "of": [[0, 1, 6], [2, 0, 49]]})",
                 R"({"type": "done", "ids": [0, 2], "ns": 1310, "reason": "length"})",
                 R"({"type": "end", "pass": 5, "ns": 1400, "peak_bytes": 12})"}),
      "");
  ASSERT_TRUE(feed.reader.ended());
  EXPECT_EQ(feed.reader.peak_bytes(), 12);
  EXPECT_EQ(feed.reader.progress(), "3 of 3 requests done, 4 tokens");
  const GenerateResult result = std::move(feed.reader).result();
  EXPECT_EQ(result.start_ns, 1100);
  EXPECT_EQ(result.end_ns, 1400);
  EXPECT_EQ(result.prefill_steps, 2);
  EXPECT_EQ(result.decode_steps, 1);
  const RequestResult& first = result.requests[0];
  EXPECT_EQ(first.tokens, (std::vector<int32_t>{4, 6}));
  EXPECT_EQ(first.token_ns, (std::vector<int64_t>{1210, 1300}));
  EXPECT_EQ(first.submit_ns, 1100);
  EXPECT_EQ(first.admit_ns, 1150);
  EXPECT_EQ(result.requests[2].submit_ns, 1220);  // when a client was free
  EXPECT_EQ(result.requests[2].admit_ns, 1230);
}

TEST(PassReader, WithoutPrefillARequestIsAdmittedWhenItIsSubmitted) {
  Feed feed({{.prompt = {1}, .max_new_tokens = 1}});
  EXPECT_EQ(feed.take({kStart, R"({"type": "tokens", "ns": 1300, "of": [[0, 0, 4]]})",
                       R"({"type": "done", "ids": [0], "ns": 1300, "reason": "length"})",
                       R"({"type": "end", "pass": 5, "ns": 1300, "prefill_steps": 3,
                           "decode_steps": 4})"}),
            "");
  const GenerateResult result = std::move(feed.reader).result();
  EXPECT_EQ(result.requests[0].admit_ns, 1100);
  EXPECT_EQ(result.prefill_steps, 3);
  EXPECT_EQ(result.decode_steps, 4);
}

TEST(PassReader, ArrivalsSubmit) {
  std::vector<Request> requests = three();
  for (size_t i = 0; i < requests.size(); ++i) {
    requests[i].arrival_ns = static_cast<int64_t>(100 * i);
  }
  Feed early(requests);
  EXPECT_THAT(early.take({kStart, R"({"type": "tokens", "ns": 1150, "of": [[1, 0, 4]]})"}),
              HasSubstr("request 1 begins 50 ns before it was submitted"));
  Feed late(requests);
  EXPECT_EQ(late.take({kStart, R"({"type": "tokens", "ns": 1210, "of": [[1, 0, 4]]})"}), "");
}

TEST(PassReader, AnEndOfTextEndsARequestThatListens) {
  const auto end = [](const std::string& of, const std::string& reason, bool ignore_eos) {
    Feed feed(three(ignore_eos));
    return feed.take({kStart, R"({"type": "tokens", "ns": 1200, "of": [[0, 0, )" + of + "]]}",
                      R"({"type": "done", "ids": [0], "ns": 1200, "reason": ")" + reason + "\"}"});
  };
  EXPECT_EQ(end("9", "stop", false), "");
  EXPECT_EQ(end("4, 9", "stop", false), "");
  EXPECT_EQ(end("4, 9", "length", false), "");
  EXPECT_THAT(end("4", "stop", false), HasSubstr("of which the last is no end of text"));
  EXPECT_THAT(end("9, 4", "length", false), HasSubstr("it goes on after its end of text"));
  EXPECT_THAT(end("9", "stop", true), HasSubstr("it was to ignore an end of text"));
  EXPECT_EQ(end("9, 4", "length", true), "");
  EXPECT_THAT(end("4", "length", true), HasSubstr("request 0 ends with 1 of 2 tokens"));
  EXPECT_THAT(end("4", "tired", true), HasSubstr("expected \"length\" or \"stop\""));
}

TEST(PassReader, OrderIsChecked) {
  const std::string tokens = R"({"type": "tokens", "ns": 1200, "of": [[0, 0, 4]]})";
  EXPECT_THAT(Feed(three()).take({tokens}), HasSubstr("expected \"start\""));
  EXPECT_THAT(Feed(three()).take({kStart, kStart}), HasSubstr("expected \"prefill\""));
  EXPECT_THAT(Feed(three()).take({R"({"type": 5, "ns": 1})"}), HasSubstr("\"type\""));
  EXPECT_THAT(Feed(three()).take({R"({"ns": 1})"}), HasSubstr("\"type\" is missing"));
  EXPECT_THAT(Feed(three()).take({R"({"type": "start", "pass": 5})"}),
              HasSubstr("\"ns\" is missing"));
  EXPECT_THAT(Feed(three()).take({R"({"type": "start", "ns": 1100})"}),
              HasSubstr("\"pass\" is missing"));
  EXPECT_THAT(Feed(three()).take({kStart, tokens,
                                  R"({"type": "prefill", "ids": [0], "start_ns": 1, "ns": 1200})"}),
              HasSubstr("the prompt of request 0 is read after it has begun"));
  EXPECT_THAT(Feed(three()).take(
                  {kStart, R"({"type": "done", "ids": [1], "ns": 1200, "reason": "length"})"}),
              HasSubstr("the end of request 1, which is not running"));
  EXPECT_THAT(Feed(three()).take({kStart, R"({"type": "end", "pass": 5, "ns": 1200})"}),
              HasSubstr("the pass ends before request 0 (0 of 2 tokens)"));
}

TEST(PassReader, EntriesAreChecked) {
  const auto entry = [](const std::string& of) {
    return Feed(three()).take({kStart, R"({"type": "tokens", "ns": 1200, "of": )" + of + "}"});
  };
  EXPECT_EQ(entry("[[0, 0, 0, 49]]"), "");
  for (const std::string id : {"3", "-1", "\"0\"", "0.5", "1e99", "18446744073709551615"}) {
    EXPECT_THAT(entry("[[" + id + ", 0, 4]]"), HasSubstr("there is no request")) << id;
  }
  for (const std::string token : {"50", "-1", "\"0\"", "0.5", "null", "18446744073709551615"}) {
    EXPECT_THAT(entry("[[0, 0, " + token + "]]"), HasSubstr("outside of the vocabulary")) << token;
  }
  EXPECT_THAT(entry("[[0, 1, 4]]"), HasSubstr("token number 1, expected 0"));
  EXPECT_THAT(entry("[[0, 0, 4, 4, 4]]"), HasSubstr("more than the 2 tokens"));
  EXPECT_THAT(entry("[[0, 0]]"), HasSubstr("expected [id, index, token, ...]"));
  EXPECT_THAT(entry("[7]"), HasSubstr("expected [id, index, token, ...]"));
  EXPECT_THAT(entry("7"), HasSubstr("\"of\""));
}

TEST(PassReader, TimesAreThoseOfThisClock) {
  const auto start = [](const std::string& ns) {
    return Feed(three()).take({R"({"type": "start", "pass": 5, "ns": )" + ns + "}"});
  };
  EXPECT_EQ(start("1000"), "");
  EXPECT_EQ(start("1000000"), "");
  EXPECT_THAT(start("999"), HasSubstr("starts 1 ns before it was sent"));
  EXPECT_THAT(start("1000001"), HasSubstr("1 ns after the record was read"));
  EXPECT_THAT(start("1100.5"), HasSubstr("\"ns\""));
  EXPECT_THAT(start("-9223372036854775808"), HasSubstr("expected a time"));
  EXPECT_THAT(Feed(three()).take({kStart, R"({"type": "prefill", "ids": [0],
                                              "start_ns": -9223372036854775808, "ns": 1200})"}),
              HasSubstr("expected a time"));
  EXPECT_THAT(Feed(three()).take({kStart, R"({"type": "tokens", "ns": 1099, "of": []})"}),
              HasSubstr("times run backwards by 1 ns"));
  EXPECT_THAT(Feed(three()).take(
                  {kStart, R"({"type": "prefill", "ids": [0], "start_ns": 1201, "ns": 1200})"}),
              HasSubstr("it starts 1 ns after it ends"));
  EXPECT_THAT(Feed(three()).take(
                  {kStart, R"({"type": "prefill", "ids": [0], "start_ns": 1099, "ns": 1200})"}),
              HasSubstr("begins 1 ns before it was submitted"));
}

TEST(PassReader, ConcurrencyIsKept) {
  EXPECT_THAT(Feed(three()).take({kStart, R"({"type": "prefill", "ids": [0, 1, 2],
                                              "start_ns": 1150, "ns": 1200})"}),
              HasSubstr("request 2 begins while 2 others run"));
  // Its client was free, but only later.
  EXPECT_THAT(
      Feed(three()).take({kStart, R"({"type": "tokens", "ns": 1200, "of": [[0, 0, 4], [1, 0, 4]]})",
                          R"({"type": "done", "ids": [1], "ns": 1220, "reason": "length"})",
                          R"({"type": "prefill", "ids": [2], "start_ns": 1219, "ns": 1250})"}),
      HasSubstr("request 2 begins 1 ns before it was submitted"));
}

}  // namespace
}  // namespace triptych
