// One file read in pieces by several threads gives the same result wherever the cuts lie: in strings, in objects that
// look like events, in damage.
#include "profile/ingest/detail/array_parts.h"

#include <gtest/gtest.h>

#include <random>

#include "core/error.h"
#include "tests/profile/ingest/detail/nasty_events.h"
#include "tests/support/text_stream.h"

namespace ms::profile::detail {
namespace {

using core::cat;

// Of a text.
std::string read(const std::string& text, const ChromeJsonOptions& options, size_t read_bytes = SIZE_MAX,
                 bool lends = false) {
  test::TextStream stream(text, read_bytes, lends);
  return everything_read(stream, options);
}

TEST(ArrayParts, TheSameWhereverTheCutsLie) {
  std::mt19937_64 random(seed());
  for (const bool object : {false, true}) {
    const std::string text =
        object
            ? cat(R"({"schemaVersion": 1, "traceEvents": [)", nasty_events(random, 12),
                  R"(], "distributedInfo": {"rank": 2, "world_size": 4}, "x": [{"ph": "X", "ts": 1}, {"ph": "X", "ts": 2}]})")
            : cat("[", nasty_events(random, 12), "]");
    const std::string whole = read(text, {});
    for (int64_t piece = 1; piece <= static_cast<int64_t>(text.size()); piece += piece < 40 ? 1 : 17) {
      ASSERT_EQ(read(text, {2, piece}), whole) << "pieces of " << piece << " bytes of " << text;
    }
  }
}

TEST(ArrayParts, TheSameForAnyNumberOfThreads) {
  std::mt19937_64 random(seed());
  for (int round = 0; round < 3; ++round) {
    const std::string text = cat("[", nasty_events(random, 2000), "]");
    const std::string whole = read(text, {});
    for (const int threads : {2, 3, 8}) {
      for (const int64_t piece : {5'000, 37'000, 150'000}) ASSERT_EQ(read(text, {threads, piece}), whole);
    }
    EXPECT_EQ(read(text, {3, 20'000}, 1000), whole) << "in reads of 1000 bytes";
    EXPECT_EQ(read(text, {3, 20'000}, 1000, true), whole) << "in loans of 1000 bytes";
    EXPECT_EQ(read(text, {}, 30'000, true), whole) << "in loans of 30,000 bytes";
  }
}

TEST(ArrayParts, TheSameOfDamagedTexts) {
  std::mt19937_64 random(seed());
  const std::string good =
      cat("{\"traceEvents\": [", nasty_events(random, 60), "], \"distributedInfo\": {\"rank\": 1}}");
  for (int round = 0; round < 300; ++round) {
    std::string text = good;
    for (uint64_t i = random() % 3; i < 3; ++i) {
      constexpr std::string_view kBytes = "\"{}[],:\\ \n0\0x";
      const size_t at = random() % text.size();
      switch (random() % 3) {
        case 0:
          text[at] = kBytes[random() % kBytes.size()];
          break;
        case 1:
          text.erase(at, random() % 40);
          break;
        default:
          text.insert(at, 1, kBytes[random() % kBytes.size()]);
      }
    }
    if (random() % 4 == 0) text.resize(random() % text.size());
    const std::string whole = read(text, {});
    for (const int64_t piece : {200, 1'000, 4'000}) ASSERT_EQ(read(text, {3, piece}), whole) << text;
  }
}

// More categories or lanes than ids, and numbers in the range of text and track ids: such parts are read again.
TEST(ArrayParts, TheSameAtTheLimits) {
  std::string categories = "[", lanes = "[", odd = "[";
  for (int i = 0; i < 600; ++i) {
    categories +=
        cat(i == 0 ? "" : ",", R"({"ph": "X", "cat": "c)", i % 300, R"(", "name": "n", "ts": )", i, R"(, "dur": 1})");
  }
  for (int i = 0; i < 70'000; ++i) {
    lanes += cat(i == 0 ? "" : ",", R"({"ph": "X", "tid": )", i, R"(, "ts": )", i, R"(, "dur": 1})");
  }
  for (int i = 0; i < 300; ++i) {
    odd += cat(i == 0 ? "" : ",", R"({"ph": ")", i % 2 == 0 ? "b" : "X", R"(", "cat": "c)", i % 5, R"(", "id": )", i,
               R"(, "tid": )", -(i % 7), R"(, "ts": )", i,
               R"(, "dur": 1}, {"ph": "X", "cat": "kernel", "ts": 1, "name": "t)", i,
               R"(", "args": {"device": 0, "stream": 2305843009213693)", 952 + i % 3, "}}");
  }
  for (const std::string& text : {categories + "]", lanes + "]", odd + "]"}) {
    const std::string whole = read(text, {});
    EXPECT_EQ(read(text, {3, static_cast<int64_t>(text.size() / 5)}), whole);
    EXPECT_EQ(read(text, {2, static_cast<int64_t>(text.size() / 11)}), whole);
  }
}

// A part that began at the right byte is used, not read again.
TEST(ArrayParts, PartsAreTakenOver) {
  std::string text = "[";
  for (int i = 0; i < 5000; ++i) {
    text += cat(i == 0 ? "" : ", ", R"({"ph": "X", "name": "n)", i % 10, R"(", "ts": )", i,
                R"(, "dur": 1, "cat": "kernel", "pid": "p", "tid": -549452224, "args": {"device": 0, "stream": 7}})");
  }
  text += "]";
  const test::TextStream stream(text);
  const int64_t piece = static_cast<int64_t>(text.size()) / 4;
  const std::string path = "a.json";
  ArrayParts parts(stream, path, 0, piece, 2);
  // After the first piece the reader is at the first event after the cut.
  int64_t at = static_cast<int64_t>(text.find("{\"ph\"", static_cast<size_t>(piece)));
  int64_t events = 0, taken = 0;
  RankTrace trace;
  ImportStats stats;
  FileIssues issues(stats, path);
  EventColumns whole(trace, issues);
  EXPECT_EQ(parts.next(), piece);
  for (; parts.next() <= at; ++taken) {
    const std::unique_ptr<ArrayPart> part = parts.take(at);
    if (part == nullptr) break;  // not begun by a thread yet: the caller reads it
    EXPECT_EQ(part->begin, at);
    events += part->columns.events();
    EXPECT_TRUE(whole.absorb(part->columns)) << "nothing odd is in it";
    EXPECT_EQ(whole.events(), events);
    at = part->end;
  }
  if (taken > 0) {
    EXPECT_NEAR(static_cast<double>(events), 1250.0 * static_cast<double>(taken), 100.0);
  }
  EXPECT_EQ(parts.take(INT64_MAX - 1), nullptr);
  EXPECT_EQ(parts.next(), INT64_MAX);
}

TEST(ArrayParts, WhereNoEventBeginsNoneIsTaken) {
  std::mt19937_64 random(seed());
  const std::string text =
      cat(R"([{"ph": "X", "ts": 1, "args": {"x": [)", nasty_events(random, 50), R"(]}}, {"ph": "X", "ts": 2}])");
  const test::TextStream stream(text);
  const std::string path = "a.json";
  ArrayParts parts(stream, path, 0, 500, 2);
  const auto real = static_cast<int64_t>(text.rfind("{\"ph\""));
  EXPECT_EQ(parts.take(real), nullptr) << "those inside the arguments began before it, and were wrong";
}

}  // namespace
}  // namespace ms::profile::detail
