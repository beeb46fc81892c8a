#include "core/expression.h"

#include <gtest/gtest.h>

#include "tests/support/thrown.h"

namespace ms::core {
namespace {

std::regex expression(const std::string& text, bool ignore_case = false) {
  return user_expression(text, ignore_case, ErrorCode::kInvalidArgument, "--flag");
}

TEST(Expression, FindsAsEcmaScript) {
  EXPECT_TRUE(std::regex_search("void gemm_128x64(float*)", expression("gemm_\\d+x\\d+")));
  EXPECT_FALSE(std::regex_search("void GEMM_128", expression("gemm")));
  EXPECT_TRUE(std::regex_search("void GEMM_128", expression("gemm", true)));
  std::smatch found;
  const std::string name = "rank-17.json";
  ASSERT_TRUE(std::regex_search(name, found, expression("rank-(\\d+)")));
  EXPECT_EQ(found[1], "17");
}

// libstdc++'s other matcher would try 2^200 paths.
TEST(Expression, TakesTimeByTheTextWhateverItIs) {
  EXPECT_FALSE(std::regex_search(std::string(200, 'a'), expression("(a*)*b")));
}

TEST(Expression, WhatIsNoneIsRefusedWithItsPlace) {
  const auto refusal = [](const std::string& text) { return test::thrown_by([&] { expression(text); }); };
  for (const auto& [text, said] : {std::pair<std::string, std::string>{"(", "--flag: \"(\": "},
                                   {"(a)\\1", "--flag: \"(a)\\1\": "},
                                   {std::string(1025, 'a'), "--flag: an expression of 1025 bytes: at most 1024"},
                                   {std::string(100'000, '('), "at most 1024"}}) {
    EXPECT_EQ(refusal(text).code, ErrorCode::kInvalidArgument);
    EXPECT_NE(refusal(text).text.find(said), std::string::npos) << refusal(text).text;
  }
  EXPECT_NO_THROW(expression(std::string(1024, 'a')));
  const std::string no = "not a regular expression (ECMAScript's, without back references): ";
  EXPECT_EQ(refusal("(").text,
            "--flag: \"(\": " + no + "mismatched '(' and ')'; a \\ in front takes a character as it is");
  for (const char* pattern : {"*weight", "a|*", "(*)", "\\(|*"}) {  // of file names
    EXPECT_EQ(refusal(pattern).text, core::cat("--flag: \"", pattern, "\": ", no,
                                               "nothing stands before * that it could repeat; any text is .*"));
  }
  EXPECT_NE(refusal("\\(*|(").text.find("mismatched '('"), std::string::npos);
  EXPECT_NE(refusal("(?:a").text.find("mismatched '('"), std::string::npos);
}

}  // namespace
}  // namespace ms::core
