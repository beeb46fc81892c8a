#include "train/data/detail/normalizer.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "core/error.h"
#include "tests/support/thrown.h"

namespace ms::train::detail {
namespace {

using nlohmann::json;

std::string normalized(const char* described, std::string_view text) {
  std::string out = "untouched";
  const Normalizer normalizer(json::parse(described));
  if (normalizer.normalize(text, out)) return out;
  EXPECT_EQ(out, "untouched");
  return std::string(text);
}

TEST(ReplaceAll, GoesLeftToRightAndSkipsItsOutput) {
  EXPECT_EQ(replace_all("aaa", "aa", "a"), "aa");
  EXPECT_EQ(replace_all("abab", "ab", "abab"), "abababab");
  EXPECT_EQ(replace_all("abc", "x", "y"), "abc");
  EXPECT_EQ(replace_all("", "x", "y"), "");
  EXPECT_EQ(replace_all("xx", "x", ""), "");
}

TEST(Normalizer, AppliesEachKindOfStep) {
  EXPECT_EQ(normalized("null", " as it is "), " as it is ");
  EXPECT_EQ(normalized(R"({"type": "NFC"})", "e\xCC\x81"), "\xC3\xA9");
  EXPECT_EQ(normalized(R"({"type": "NFC"})", "\xC3\xA9"), "\xC3\xA9");
  EXPECT_EQ(normalized(R"({"type": "Prepend", "prepend": "_"})", "word"), "_word");
  EXPECT_EQ(normalized(R"({"type": "Prepend", "prepend": "_"})", ""), "");
  EXPECT_EQ(normalized(R"({"type": "Replace", "pattern": {"String": " "}, "content": "_"})", "a b c"), "a_b_c");
}

TEST(Normalizer, SequenceAppliesInOrder) {
  const char* described = R"({"type": "Sequence", "normalizers": [
      {"type": "Prepend", "prepend": " "},
      {"type": "Sequence", "normalizers": [{"type": "Replace", "pattern": {"String": " "}, "content": "__"}]},
      {"type": "Replace", "pattern": {"String": "__b"}, "content": "B"}]})";
  EXPECT_EQ(normalized(described, "a b"), "__aB");
  EXPECT_EQ(normalized(described, ""), "");
}

TEST(Normalizer, RefusesUnsupportedTypesByName) {
  for (const auto& [described, named] : {
           std::pair{R"({"type": "NFKC"})", "NFKC"},
           std::pair{R"({"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": ""})", "Regex"},
           std::pair{R"({"type": "Replace", "pattern": {"String": ""}, "content": "x"})", "empty pattern"},
           std::pair{R"({"type": "Sequence", "normalizers": [{"type": "Lowercase"}]})", "Lowercase"},
       }) {
    const test::Thrown thrown = test::thrown_by([&, text = described] { Normalizer{json::parse(text)}; });
    EXPECT_EQ(thrown.code, core::ErrorCode::kUnsupported) << described;
    EXPECT_NE(thrown.text.find(named), std::string::npos) << thrown.text;
  }
}

}  // namespace
}  // namespace ms::train::detail
