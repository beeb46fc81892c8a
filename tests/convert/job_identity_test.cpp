#include "convert/job_identity.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "tests/support/temporary_folder.h"

namespace ms::convert {
namespace {

namespace fs = std::filesystem;

class JobIdentityTest : public ::testing::Test {
 protected:
  JobIdentityTest() {
    fs::create_directories(folder_ / "in/deep");
    test::write_file(folder_ / "in/a", "1");
    test::write_file(folder_ / "in/deep/b", "2");
  }
  std::string now() const { return identity_of(folder_ / "in"); }
  test::TemporaryFolder folder_;
};

TEST_F(JobIdentityTest, UntouchedFolderHasTheSameIdentityUnderAnyPath) {
  const std::string before = now();
  EXPECT_EQ(before.size(), 16U);
  EXPECT_EQ(now(), before);
  fs::rename(folder_ / "in", folder_ / "in2");
  EXPECT_EQ(identity_of(folder_ / "in2"), before);
}

TEST_F(JobIdentityTest, ChangedContentNameOrFileChangesTheIdentity) {
  const std::string before = now();
  test::write_file(folder_ / "in/deep/b", "33");
  const std::string longer = now();
  EXPECT_NE(longer, before);
  fs::rename(folder_ / "in/a", folder_ / "in/c");
  const std::string renamed = now();
  EXPECT_NE(renamed, longer);
  // Another file with the same size and change time in its place.
  test::write_file(folder_ / "new", "1");
  fs::last_write_time(folder_ / "new", fs::last_write_time(folder_ / "in/c"));
  fs::rename(folder_ / "new", folder_ / "in/c");
  EXPECT_NE(now(), renamed);
}

TEST_F(JobIdentityTest, FileHasAnIdentityAndAbsentPathHasNone) {
  EXPECT_EQ(identity_of(folder_ / "in/a").size(), 16U);
  EXPECT_EQ(identity_of(folder_ / "absent"), "");
  EXPECT_EQ(identity_of(""), "");
}

}  // namespace
}  // namespace ms::convert
