#include "ckpt/detail/retention_thread.h"

#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <thread>

#include "ckpt/detail/save_job.h"
#include "core/error.h"
#include "tests/ckpt/state.h"

namespace ms::ckpt::test {
namespace {

namespace fs = std::filesystem;

TEST(RetentionThread, RemovesSupersededGenerationsBeforeDestruction) {
  const auto config = small_model(17);
  const TemporaryFolder root;
  {
    RetentionThread retention;
    for (int64_t iteration = 10; iteration <= 60; iteration += 10) {
      const fs::path newest =
          write_checkpoint(root.path(), {}, config, {{core::TensorRole::kParam, core::DType::kFp32}}, iteration);
      retention.committed(root.path(), newest, {.keep_last = 2, .retain_interval = 30});
    }
  }
  std::vector<int64_t> kept;
  for (const Generation& generation : list_generations(root.path())) kept.push_back(generation.iteration);
  EXPECT_EQ(kept, (std::vector<int64_t>{60, 50, 30}));
}

// There is not enough space, but something is being removed: it may free the space.
TEST(RetentionThread, SaveWithoutRoomWaitsForRunningRemoval) {
  const TemporaryFolder root;
  const fs::path trash = root / core::cat(kTrashPrefix, "iter_0000010");
  fs::create_directory(trash);
  SaveJob job;
  job.root = root.path();
  job.temporary = root.path();
  std::thread remover([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    fs::remove(trash);
  });
  const auto error = thrown_by([&] { require_room(job, int64_t{1} << 60); });
  EXPECT_FALSE(fs::exists(trash));
  remover.join();
  EXPECT_EQ(error.code, core::ErrorCode::kIo);
}

}  // namespace
}  // namespace ms::ckpt::test
