// Which annotation names are steps, by default and by the user's expression.
#include "profile/analysis/step_names.h"

#include <gtest/gtest.h>

#include <memory>
#include <regex>
#include <string>

namespace ms::profile {
namespace {

class StepNamesTest : public testing::Test {
 protected:
  void steps_match(const std::string& expression) {
    trace_.step_annotation = std::make_shared<const std::regex>(expression);
  }
  bool is_step(const std::string& name) {
    const NameId id = trace_.names.intern(name);
    return step_names(trace_)[id];
  }
  std::optional<int64_t> number(const std::string& name) { return step_number(trace_, trace_.names.intern(name)); }

  RankTrace trace_;
};

TEST_F(StepNamesTest, ProfilerStepsAndIterationsAreStepsByDefault) {
  EXPECT_TRUE(is_step("ProfilerStep#7"));
  EXPECT_TRUE(is_step("iteration 12"));
  EXPECT_EQ(number("ProfilerStep#7"), 7);
  EXPECT_EQ(number("iteration 12"), 12);
}

TEST_F(StepNamesTest, NamesWithoutAWholeNumberAreNoSteps) {
  for (const char* name : {"", "ProfilerStep#", "ProfilerStep#7a", "ProfilerStep# 7", "iteration", "iteration 1.5",
                           "my iteration 12", "iteration 99999999999999999999"}) {
    EXPECT_FALSE(is_step(name)) << name;
    EXPECT_EQ(number(name), std::nullopt) << name;
  }
}

TEST_F(StepNamesTest, ExpressionReplacesTheDefault) {
  steps_match("execute_(\\d+)");
  EXPECT_TRUE(is_step("vllm execute_31 decode")) << "anywhere in the name";
  EXPECT_EQ(number("vllm execute_31 decode"), 31);
  EXPECT_FALSE(is_step("ProfilerStep#7"));
  EXPECT_EQ(number("ProfilerStep#7"), std::nullopt);
}

TEST_F(StepNamesTest, ExpressionWithoutANumberStillNamesSteps) {
  steps_match("^decode");
  EXPECT_TRUE(is_step("decode 5"));
  EXPECT_EQ(number("decode 5"), std::nullopt) << "no group: such steps are counted";
  steps_match("step (\\w+)");
  EXPECT_TRUE(is_step("step first"));
  EXPECT_EQ(number("step first"), std::nullopt) << "the group is no number";
}

TEST_F(StepNamesTest, ResultHasAnEntryForEachName) {
  steps_match("^decode$");
  const NameId decode = trace_.names.intern("decode"), other = trace_.names.intern("prefill");
  const std::vector<bool> steps = step_names(trace_);
  EXPECT_EQ(steps.size(), trace_.names.size());
  EXPECT_TRUE(steps[decode]);
  EXPECT_FALSE(steps[other]);
}

}  // namespace
}  // namespace ms::profile
