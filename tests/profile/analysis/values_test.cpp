// One value per type: set, replaced, missing.
#include "profile/analysis/values.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/support/thrown.h"

namespace ms::profile {
namespace {

TEST(Values, GetFindsTheValueOfItsTypeOnly) {
  Values values;
  values.set(7);
  values.set(std::vector<int>{1, 2, 3});
  ASSERT_NE(values.get<int>(), nullptr);
  EXPECT_EQ(*values.get<int>(), 7);
  EXPECT_EQ(values.at<std::vector<int>>(), (std::vector<int>{1, 2, 3}));
  EXPECT_EQ(values.get<long>(), nullptr) << "another type, though an int would fit";
}

TEST(Values, SetReplacesAndReturnsTheStoredValue) {
  Values values;
  values.set(std::string("first"));
  std::string& stored = values.set(std::string("second"));
  stored += "!";
  EXPECT_EQ(values.at<std::string>(), "second!");
}

TEST(Values, CopiesSeeWhatTheOriginalHeldWhenCopied) {
  Values values;
  values.set(7);
  const Values copy = values;
  values.set(8);
  EXPECT_EQ(copy.at<int>(), 7);
  EXPECT_EQ(values.at<int>(), 8);
}

TEST(Values, AtRefusesWhatNothingComputed) {
  const Values values;
  EXPECT_EQ(values.get<int>(), nullptr);
  const test::Thrown thrown = test::thrown_by([&] { (void)values.at<int>(); });
  EXPECT_EQ(thrown.code, core::ErrorCode::kInternal);
  EXPECT_THAT(thrown.text, testing::HasSubstr("no result of type"));
}

}  // namespace
}  // namespace ms::profile
