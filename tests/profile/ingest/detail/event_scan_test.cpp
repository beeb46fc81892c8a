// Fields of events after any other events: what the scanner remembers of one event must not leak into another.
#include "profile/ingest/detail/event_scan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "core/error.h"
#include "tests/kernels/forced_isa.h"

namespace ms::profile::detail {
namespace {

// The event's fields as text, "ph=X name=..", in a fixed order, then its arguments.
std::string fields_of(const ScannedEvent& e) {
  std::string out;
  const auto add = [&](const char* key, const Value& value) {
    if (value) out += core::cat(key, "=", value.text(), value.kind == Kind::kString ? "\" " : " ");
  };
  add("ph", e.ph);
  add("name", e.name);
  add("cat", e.cat);
  add("ts", e.ts);
  add("dur", e.dur);
  add("pid", e.pid);
  add("tid", e.tid);
  add("id", e.id);
  add("scope", e.scope);
  add("args", e.args);
  add("stream", e.get(Arg::kStream));
  add("correlation", e.get(Arg::kCorrelation));
  add("argname", e.get(Arg::kName));
  return out;
}

std::string scan(EventScanner& scanner, const std::string& text, Scan expected = Scan::kWhole) {
  const std::string padded = text + std::string(kScanPadding, '\0');
  ScannedEvent event;
  const Scan scan = scanner.scan(padded.data(), padded.data() + text.size(), event);
  EXPECT_EQ(scan, expected) << text;
  if (scan != Scan::kWhole) return {};
  EXPECT_EQ(event.end, padded.data() + text.size()) << text;
  return fields_of(event);
}

std::string fresh(const std::string& text) {
  EventScanner scanner;
  return scan(scanner, text);
}

TEST(EventScan, ReadsAnEventAfterAnyOther) {
  const std::vector<std::string> events = {
      R"({"ph": "X", "name": "a", "ts": 1, "args": {"stream": 7, "name": "b"}})",
      R"({"ph": "X", "name": "a", "ts": 1, "args": {}})",
      R"({"ph": "X", "name": "a", "ts": 1, "args": null})",
      R"({"ph": "X", "name": "a", "ts": 1, "args": [1, 2], "id": 3})",
      R"({"ph": "X", "name": "a", "ts": 1})",
      R"({"ph": "X", "name": "a", "ts": "1"})",
      R"({"ph": "X", "name": 12, "ts":  1, "tid" : 4})",
      R"({"name": "a", "ph": "X", "args": {"name": "a", "stream": "s"}, "ts": 5})",
      R"({"stream": 5, "args": {"ph": "B", "correlation": 9}, "id2": 6})",
      R"({"id": 5, "id2": 6, "scope": "x\"y"})",
      R"({"ph": "X", "args": {"args": {"stream": 1}, "stream": 2}, "cat": "c"})",
      R"({"a key that is longer than what a block of text may hold, and then some more of it": 1, "ph": "M"})",
      R"({})",
      R"({ })",
      R"({"ph": "X",})",
  };
  EventScanner scanner;
  for (const std::string& first : events) {
    for (const std::string& second : events) {
      scan(scanner, first);
      EXPECT_EQ(scan(scanner, second), fresh(second)) << "after " << first;
    }
  }
  EXPECT_EQ(fresh(events[0]), "ph=X\" name=a\" ts=1 args={\"stream\": 7, \"name\": \"b\"} stream=7 argname=b\" ");
  EXPECT_EQ(fresh(events[9]), "id=5 scope=x\\\"y\" ");
}

TEST(EventScan, NoPrefixIsWholeAndNoneIsReadBeyondItsEnd) {
  const std::string event =
      R"({"ph": "X", "name": "a\"b", "ts": 1.5, "args": {"stream": 7, "x": [1, {"y": "}"}]}, "dur": 2})";
  EventScanner scanner;
  scan(scanner, event);
  for (size_t size = 1; size < event.size(); ++size) scan(scanner, event.substr(0, size), Scan::kCut);
}

// Blocks of every size begin and end anywhere in values, and remembered lengths meet all other lengths.
TEST(EventScan, ValuesOfAnyLength) {
  EventScanner scanner;
  for (size_t size = 0; size < 150; ++size) {
    const std::string name(size, 'n'), number(size + 1, '7');
    const std::string marks = R"(\"}]{[,)" + std::string(size, ',');
    const std::string nested =
        "{\"list\": [" + std::string(size, '[') + "\"]\"" + std::string(size, ']') + "], \"o\": {}}";
    for (const std::string& text : {name, marks}) {
      EXPECT_EQ(scan(scanner, core::cat(R"({"ph": "X", "name": ")", text, R"(", "ts": )", number, "}")),
                core::cat("ph=X\" name=", text, "\" ts=", number, " "));
    }
    EXPECT_EQ(scan(scanner, core::cat(R"({"x": )", nested, R"(, "ts": 1.5e+3, "args": )", nested, "}")),
              core::cat("ts=1.5e+3 args=", nested, " "));
    const std::string args = core::cat(R"({"x": ")", marks, R"(", "y": )", nested, R"(, "stream": 3, "z": true})");
    EXPECT_EQ(scan(scanner, core::cat(R"({"args": )", args, R"(, "tid": -)", number, "}")),
              core::cat("tid=-", number, " args=", args, " stream=3 "));
  }
}

TEST(EventScan, DamageIsSeenThoughTheLayoutIsKnown) {
  EventScanner scanner;
  scan(scanner, R"({"ph": "X", "ts": 1, "name": "a"})");
  for (const char* text : {R"({"ph": "X"; "ts": 1, "name": "a"})", R"({"ph": "X", "ts" 1, "name": "a"})",
                           R"({"ph": "X" "ts": 1})", R"({"ph": "X", ts: 1})", R"({"ph": "X", "ts": ?})"}) {
    scan(scanner, text, Scan::kWrong);
  }
}

TEST(EventScan, MoreLayoutsThanAreRemembered) {
  EventScanner scanner;
  std::mt19937 random(1);
  for (int i = 0; i < 5000; ++i) {
    const std::string text = core::cat("{\"ph\":", std::string(random() % 40, ' '), "\"X\", \"key", i, "\": ", i,
                                       ", \"args\": {\"stream\":", std::string(random() % 40, ' '), i, "}}");
    const std::string seen = scan(scanner, text);
    ASSERT_THAT(seen, testing::StartsWith("ph=X\" args={")) << text;
    ASSERT_THAT(seen, testing::EndsWith(core::cat("stream=", i, " "))) << text;
  }
}

}  // namespace
}  // namespace ms::profile::detail
