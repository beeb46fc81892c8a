// What gc removes and keeps; a dry run lists the same.
#include "ckpt/gc.h"

#include <gtest/gtest.h>

#include <set>

#include "ckpt/commit.h"
#include "core/io/lock_file.h"
#include "tests/ckpt/state.h"

namespace ms::ckpt {
namespace {

namespace fs = std::filesystem;
using namespace test;  // NOLINT

class Gc : public ::testing::Test {
 protected:
  Gc() {
    for (const int64_t iteration : {100, 200, 300, 400}) {
      write_checkpoint(folder_.path(), {}, config_, {{core::TensorRole::kParam, core::DType::kFp32}}, iteration);
    }
    fs::create_directory(folder_.path() / "iter_0000500.tmp-host-1-2");
    ms::test::write_file(folder_ / "iter_0000500.tmp-host-1-2/rank_00000.h5", std::string(1000, 'x'));
    fs::create_directory(folder_.path() / ".trash-iter_0000050.tmp-host-1-3");
    ms::test::write_file(folder_ / "mine.txt", "not ours");
  }
  std::set<std::string> names() const {
    std::set<std::string> result;
    for (const auto& entry : fs::directory_iterator(folder_.path())) {
      const std::string name = entry.path().filename().string();
      if (name != kLockName && name != kPointerName) result.insert(name);
    }
    return result;
  }
  std::set<std::string> items(const GcReport& report) const {
    std::set<std::string> result;
    for (const GcItem& item : report.items) result.insert(item.path.filename().string());
    return result;
  }

  core::TransformerConfig config_ = small_model(17);
  TemporaryFolder folder_;
  using Names = std::set<std::string>;
};

TEST_F(Gc, WithoutRuleRemovesOnlyLeftovers) {
  const GcReport report = collect_garbage(folder_.path(), {});
  EXPECT_EQ(items(report), (Names{"iter_0000500.tmp-host-1-2", ".trash-iter_0000050.tmp-host-1-3"}));
  EXPECT_EQ(names(), (Names{"iter_0000100", "iter_0000200", "iter_0000300", "iter_0000400", "mine.txt"}));
  EXPECT_TRUE(collect_garbage(folder_.path(), {}).items.empty());
}

TEST_F(Gc, KeepsLastAndMultiples) {
  const GcOptions options{{.keep_last = 2, .retain_interval = 200}, true};
  const auto before = names();
  const auto planned = items(collect_garbage(folder_.path(), options));
  EXPECT_EQ(names(), before);
  EXPECT_EQ(planned, (Names{"iter_0000500.tmp-host-1-2", ".trash-iter_0000050.tmp-host-1-3", "iter_0000100"}));
  EXPECT_EQ(items(collect_garbage(folder_.path(), {options.retention, false})), planned);
  EXPECT_EQ(names(), (Names{"iter_0000200", "iter_0000300", "iter_0000400", "mine.txt"}));
  EXPECT_EQ(find_latest(folder_.path())->generation.iteration, 400);
}

// The newest complete generation is kept, and so are newer damaged ones.
TEST_F(Gc, NeverRemovesNewestCompleteGeneration) {
  fs::resize_file(folder_.path() / "iter_0000400/rank_00000.h5", 10);
  const GcReport report = collect_garbage(folder_.path(), {{.keep_last = 1}, false});
  EXPECT_EQ(report.newest.filename(), "iter_0000300");
  EXPECT_FALSE(report.notes.empty());
  EXPECT_EQ(names(), (Names{"iter_0000300", "iter_0000400", "mine.txt"}));
  fs::resize_file(folder_.path() / "iter_0000300/rank_00000.h5", 10);
  EXPECT_EQ(collect_garbage(folder_.path(), {{.keep_last = 1}, false}).items.size(), 0u);
  EXPECT_EQ(names(), (Names{"iter_0000300", "iter_0000400", "mine.txt"}));
}

TEST_F(Gc, CountsFilesSharedByHardLinks) {
  const fs::path shared = folder_.path() / "iter_0000100/rank_00000.h5";
  fs::create_hard_link(shared, folder_.path() / "iter_0000400/parent.h5");
  const auto size = static_cast<int64_t>(fs::file_size(shared));
  for (const int64_t keep : {3, 1}) {
    const GcReport report = collect_garbage(folder_.path(), {{.keep_last = keep}, true});
    const auto first = std::find_if(report.items.begin(), report.items.end(),
                                    [](const GcItem& item) { return item.path.filename() == "iter_0000100"; });
    ASSERT_NE(first, report.items.end());
    EXPECT_EQ(first->bytes - first->bytes_freed, size);
  }
  collect_garbage(folder_.path(), {{.keep_last = 1}, false});
  EXPECT_EQ(static_cast<int64_t>(fs::file_size(folder_.path() / "iter_0000400/parent.h5")), size);
  EXPECT_NO_THROW(check_generation(folder_.path() / "iter_0000400"));
}

TEST_F(Gc, RefusedWhileAnotherProcessSaves) {
  const core::LockFile saver(folder_ / kLockName);
  const auto before = names();
  EXPECT_EQ(thrown_by([&] { collect_garbage(folder_.path(), {{.keep_last = 1}, false}); }).code, core::ErrorCode::kIo);
  EXPECT_EQ(names(), before);
  EXPECT_EQ(thrown_by([&] { collect_garbage(folder_.path() / "absent", {}); }).code, core::ErrorCode::kNotFound);
}

}  // namespace
}  // namespace ms::ckpt
