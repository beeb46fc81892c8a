#include "core/path_list.h"

#include <gmock/gmock.h>

#include <sstream>

#include "core/error.h"

namespace ms::core {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(ExpandPathList, KeepsPathsWithoutDash) {
  std::istringstream in("never read\n");
  EXPECT_THAT(expand_path_list({"a", "./-", "b c"}, in), ElementsAre("a", "./-", "b c"));
}

TEST(ExpandPathList, ReplacesDashByLinesOfStdin) {
  std::istringstream in("x y\n\nlast without newline");
  EXPECT_THAT(expand_path_list({"a", "-", "b"}, in), ElementsAre("a", "x y", "last without newline", "b"));
}

TEST(ExpandPathList, IsEmptyAfterAFailedUpstreamCommand) {
  std::istringstream in("");
  EXPECT_THAT(expand_path_list({"-"}, in), IsEmpty());
}

TEST(ExpandPathList, RejectsASecondDash) {
  std::istringstream in("a\n");
  try {
    expand_path_list({"-", "-"}, in);
    FAIL() << "no error";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::kInvalidArgument);
  }
}

TEST(ExpandPathList, RejectsAnEmptyPath) {
  std::istringstream in("a\n");
  try {
    expand_path_list({"b", ""}, in);
    FAIL() << "no error";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::kInvalidArgument);
    EXPECT_THAT(e.what(), testing::HasSubstr("an empty path"));
  }
}

TEST(ExpandPathList, ReportsAFailingStream) {
  std::istringstream in("a\n");
  in.setstate(std::ios::badbit);
  EXPECT_THROW(expand_path_list({"-"}, in), Error);
}

}  // namespace
}  // namespace ms::core
