// Changes to a command so that it records a trace; profile.record runs such commands.
#include "profile/record/launch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "core/error.h"
#include "tests/support/thrown.h"

namespace ms::profile {
namespace {

using testing::ElementsAre;
using testing::Pair;

RecordOptions options_of(std::vector<std::string> command) {
  RecordOptions options;
  options.folder = "/traces";
  options.command = std::move(command);
  return options;
}

class LaunchTest : public testing::Test {
 protected:
  LaunchTest() {
    ::unsetenv("OMPI_MCA_mca_base_env_list");
    ::unsetenv("LD_PRELOAD");
  }
};

TEST_F(LaunchTest, FlagsGoBehindMstrainWhereverItStands) {
  RecordOptions options = options_of({"mpirun", "-n", "2", "/bin/mstrain", "--num-layers", "2"});
  EXPECT_THAT(recorded_command(options, "/lib.so").words,
              ElementsAre("mpirun", "-n", "2", "/bin/mstrain", "--profile", "--profile-save-path", "/traces",
                          "--profile-ranks", "-1", "--num-layers", "2"));
  options.ranks = {0, 3};
  options.level = "level2";
  options.first_step = options.last_step = 5;
  const RecordedCommand some = recorded_command(options, "/lib.so");
  EXPECT_THAT(std::vector(some.words.begin() + 7, some.words.begin() + 16),
              ElementsAre("--profile-ranks", "0", "3", "--profile-level", "level2", "--profile-step-start", "5",
                          "--profile-step-end", "6"));
  EXPECT_TRUE(some.environment.empty()) << "no library in front of it";
}

TEST_F(LaunchTest, OpenMpisLaunchersTakeVariablesToOtherNodes) {
  const RecordedCommand run = recorded_command(options_of({"/usr/bin/mpiexec", "-n", "2", "./solver"}), "/lib.so");
  EXPECT_TRUE(run.environment.empty()) << "the launcher itself is not recorded";
  EXPECT_THAT(run.words,
              ElementsAre("/usr/bin/mpiexec", "-x", "LD_PRELOAD=/lib.so", "-x", "MSUITE_RECORD_PATH=/traces", "-x",
                          "MSUITE_RECORD_RANKS=", "-x", "MSUITE_RECORD_LEVEL=level1", "-n", "2", "./solver"));
  ::setenv("OMPI_MCA_mca_base_env_list", "A=1", 1);
  const RecordedCommand listed = recorded_command(options_of({"mpirun", "./solver"}), "/lib.so");
  EXPECT_THAT(listed.words, ElementsAre("mpirun", "./solver"));
  EXPECT_THAT(listed.environment,
              ElementsAre(Pair("OMPI_MCA_mca_base_env_list",
                               "A=1;LD_PRELOAD=/lib.so;MSUITE_RECORD_PATH=/traces;MSUITE_RECORD_RANKS=;"
                               "MSUITE_RECORD_LEVEL=level1")));
}

TEST_F(LaunchTest, OtherProgramsGetThemInTheEnvironment) {
  ::setenv("LD_PRELOAD", "/other.so", 1);
  RecordOptions options = options_of({"srun", "./solver"});
  options.ranks = {1, 2};
  options.level = "level0";
  const RecordedCommand run = recorded_command(options, "/lib.so");
  ::unsetenv("LD_PRELOAD");
  EXPECT_THAT(run.words, ElementsAre("srun", "./solver"));
  EXPECT_THAT(run.environment,
              ElementsAre(Pair("LD_PRELOAD", "/lib.so:/other.so"), Pair("MSUITE_RECORD_PATH", "/traces"),
                          Pair("MSUITE_RECORD_RANKS", "1,2"), Pair("MSUITE_RECORD_LEVEL", "level0")));
}

TEST_F(LaunchTest, WhatOnlyMstrainHasIsRefused) {
  RecordOptions options = options_of({"./solver"});
  options.last_step = 3;
  EXPECT_EQ(test::thrown_by([&] { recorded_command(options, "/lib.so"); }).code, core::ErrorCode::kInvalidArgument);
  options.last_step = -1;
  options.level = "level2";
  EXPECT_EQ(test::thrown_by([&] { recorded_command(options, "/lib.so"); }).code, core::ErrorCode::kInvalidArgument);
}

TEST_F(LaunchTest, HowItEndedIsPassedOn) {
  EXPECT_EQ(run_recorded({{"sh", "-c", "exit $CODE"}, {{"CODE", "7"}}}), 7);
  EXPECT_EQ(std::getenv("CODE"), nullptr);
  EXPECT_EQ(run_recorded({{"sh", "-c", "kill -9 $$"}, {}}), 128 + 9);
  EXPECT_EQ(test::thrown_by([] { run_recorded({{"./nosuch"}, {}}); }).code, core::ErrorCode::kNotFound);
}

}  // namespace
}  // namespace ms::profile
