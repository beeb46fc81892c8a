// Distinguishes values from flags like Python's argparse, except for numbers with an exponent.
#include "core/flag_syntax.h"

#include <gtest/gtest.h>

#include "core/error.h"
#include "tests/support/thrown.h"

namespace ms::core {
namespace {

using Args = std::vector<std::string>;

FlagSyntax example() {
  FlagSyntax syntax;
  syntax.add("--save", 1, 1);
  syntax.add("--weight-decay", 1, 1);
  syntax.add("--bf16", 0, 0);
  syntax.add("--no-bf16", 0, 0);
  syntax.add("--data-path", 1, FlagSyntax::kNoLimit);
  syntax.add("--rampup", 3, 3);
  syntax.add("--anything", 0, FlagSyntax::kNoLimit);
  syntax.add("--output", 1, 1);
  syntax.add("-o", 1, 1);
  return syntax;
}

// The error's text, or "" if there is none.
std::string problem(const Args& args) {
  try {
    example().check(args);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    return error.what();
  }
  return "";
}

TEST(FlagSyntax, SwitchTakesTrueAndFalseAlone) {
  EXPECT_EQ(problem({"--bf16=true", "--no-bf16=false", "--bf16"}), "");
  EXPECT_EQ(problem({"--bf16=maybe"}), "--bf16: \"maybe\" is neither true nor false");
  EXPECT_EQ(problem({"--bf16="}), "--bf16: \"\" is neither true nor false");
}

TEST(FlagSyntax, FlagIsNeverAValue) {
  EXPECT_EQ(problem({"--weight-decay", "--bf16", "0.5"}),
            "--weight-decay: expected one argument, but the flag --bf16 follows. Is a shell variable empty?");
  for (const Args& args : std::vector<Args>{{"--save", "--bf16"},
                                            {"--save", "--no-bf16"},
                                            {"--save", "--data-path=x"},
                                            {"--save", "--data-path=x y"},
                                            {"--save", "--save", "x"},
                                            {"--save", "-o", "x"},
                                            {"--save", "-ox"},
                                            {"-o", "--bf16"},
                                            {"--bf16", "x", "--save", "--bf16"}}) {
    EXPECT_NE(problem(args).find(": expected one argument, but the flag "), std::string::npos)
        << testing::PrintToString(args);
  }
}

TEST(FlagSyntax, UnknownFlagIsNotAValue) {
  for (const Args& args : std::vector<Args>{{"--save", "--unknown"}, {"--save", "-x"}, {"--save", "--", "x"}}) {
    EXPECT_EQ(problem(args).rfind("--save: expected one argument", 0), 0u) << testing::PrintToString(args);
  }
}

TEST(FlagSyntax, MissingValueAtEndOfLineIsReported) {
  EXPECT_EQ(problem({"--bf16", "--save"}),
            "--save: expected one argument, but the command line ends. Is a shell variable empty?");
  EXPECT_NE(problem({"--save=", "--bf16"}), "");  // --save=$EMPTY
  EXPECT_NE(problem({"--data-path"}).find("expected at least one argument"), std::string::npos);
  EXPECT_NE(problem({"--rampup", "1", "2", "--bf16"}).find("expected 3 arguments, but after 2 the flag --bf16 follows"),
            std::string::npos);
}

TEST(FlagSyntax, NegativeNumbersDashEmptyAndSpacedTextAreValues) {
  for (const Args& args : std::vector<Args>{{"--weight-decay", "-1"},
                                            {"--weight-decay", "-.5"},
                                            {"--weight-decay", "-1e-5"},
                                            {"--weight-decay", "-1,7"},
                                            {"--weight-decay", "-1,-2,3"},
                                            {"--data-path", "-"},
                                            {"--save", ""},
                                            {"--save", "- a list"},
                                            {"--save", "--- what?"},
                                            {"--save=--bf16"},
                                            {"--data-path", "a", "-1", "b", "--bf16"},
                                            {"--rampup", "1", "-2", "3"},
                                            {"-ox"},
                                            {"-o", "x"},
                                            {"--anything", "--bf16"}}) {
    EXPECT_EQ(problem(args), "") << testing::PrintToString(args);
  }
}

TEST(FlagSyntax, NothingIsCheckedAfterDoubleDash) { EXPECT_EQ(problem({"--bf16", "--", "--save", "--bf16"}), ""); }

TEST(FlagSyntax, NearestFindsTyposAndUniquePrefixes) {
  const FlagSyntax syntax = example();
  EXPECT_EQ(syntax.nearest("--svae"), "--save");  // swapped letters
  EXPECT_EQ(syntax.nearest("--saves=3"), "--save");
  EXPECT_EQ(syntax.nearest("--wieght-decya"), "--weight-decay");
  EXPECT_EQ(syntax.nearest("--weight"), "--weight-decay");  // the only one with this prefix
  EXPECT_EQ(syntax.nearest("--frobnicate"), "");
  EXPECT_EQ(syntax.nearest("-x"), "");
  EXPECT_EQ(syntax.nearest("--" + std::string(1 << 20, 'x')), "");
}

TEST(NearestWord, ReturnsTheClosestCandidate) {
  const Args verbs = {"inspect", "verify", "reshard", "convert", "diff", "gc"};
  EXPECT_EQ(nearest_word("inspct", verbs), "inspect");
  EXPECT_EQ(nearest_word("g", verbs), "gc");
  EXPECT_EQ(nearest_word("x", verbs), "");
  EXPECT_EQ(nearest_word("", verbs), "");
  EXPECT_EQ(nearest_word("explain", verbs), "");
}

}  // namespace
}  // namespace ms::core
