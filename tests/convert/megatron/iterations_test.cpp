// Which iteration of a root is chosen: the tracker's, or the newest.
#include "convert/megatron/iterations.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/thrown.h"

namespace ms::convert {
namespace {

namespace fs = std::filesystem;
using core::ErrorCode;
using testing::ElementsAre;

class IterationsTest : public testing::Test {
 protected:
  void make(const std::string& name) {
    fs::create_directories(folder_ / name);
    test::write_file(folder_ / (name + "/whole"), "");
  }
  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const fs::path& path : megatron_iterations(folder_.path(), holds)) names.push_back(path.filename().string());
    return names;
  }
  static bool holds(const fs::path& folder) { return fs::exists(folder / "whole"); }
  test::TemporaryFolder folder_;
};

TEST_F(IterationsTest, NewestIsFirstByNumber) {
  for (const char* name : {"iter_0000900", "iter_10000000", "iter_0001000", "release", "iter_12x", "other"}) make(name);
  fs::create_directories(folder_ / "iter_99999999");  // contains nothing
  EXPECT_THAT(names(), ElementsAre("iter_10000000", "iter_0001000", "iter_0000900", "release"));
  EXPECT_EQ(choose_megatron_iteration(folder_.path(), holds).filename(), "iter_10000000");
}

TEST_F(IterationsTest, TrackersIterationIsChosenWhateverItsContent) {
  make("iter_0000900");
  test::write_file(folder_ / kMegatronTracker, "1000\n");
  EXPECT_EQ(choose_megatron_iteration(folder_.path(), holds).filename(), "iter_0001000");
  test::write_file(folder_ / kMegatronTracker, "release");
  EXPECT_EQ(choose_megatron_iteration(folder_.path(), holds).filename(), "release");
  for (const char* wrong : {"", "-1", "../x", "12a"}) {
    test::write_file(folder_ / kMegatronTracker, wrong);
    EXPECT_EQ(test::thrown_by([&] { choose_megatron_iteration(folder_.path(), holds); }).code, ErrorCode::kCorruptData)
        << wrong;
  }
}

TEST_F(IterationsTest, EmptyRootIsRefused) {
  EXPECT_TRUE(names().empty());
  EXPECT_EQ(test::thrown_by([&] { choose_megatron_iteration(folder_.path(), holds); }).code, ErrorCode::kNotFound);
}

}  // namespace
}  // namespace ms::convert
