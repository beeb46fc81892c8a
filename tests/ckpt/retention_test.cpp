#include "ckpt/retention.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tests/support/temporary_folder.h"

namespace ms::ckpt {
namespace {

namespace fs = std::filesystem;

std::vector<int64_t> given_up(const fs::path& root, const Generation& newest, const Retention& retention) {
  std::vector<int64_t> iterations;
  for (const Generation& generation : superseded(root, newest, retention)) iterations.push_back(generation.iteration);
  return iterations;
}

TEST(Retention, KeepsNewestMultiplesAndLaterIterations) {
  const test::TemporaryFolder root;
  for (const char* name : {"iter_0000010", "iter_0000020", "iter_0000030", "iter_0000040", "iter_0000900"}) {
    fs::create_directory(root / name);
  }
  const Generation newest{root / "iter_0000040", 40, 0};
  using Iterations = std::vector<int64_t>;
  EXPECT_EQ(given_up(root.path(), newest, {}), Iterations{});
  EXPECT_EQ(given_up(root.path(), newest, {.keep_last = 1}), (Iterations{30, 20, 10}));
  EXPECT_EQ(given_up(root.path(), newest, {.keep_last = 3}), (Iterations{10}));
  EXPECT_EQ(given_up(root.path(), newest, {.retain_interval = 20}), (Iterations{30, 10}));
  EXPECT_EQ(given_up(root.path(), newest, {.keep_last = 2, .retain_interval = 20}), (Iterations{10}));
}

TEST(Retention, RemovesOnlyTheGivenGeneration) {
  const test::TemporaryFolder root;
  fs::create_directory(root / "iter_0000010");
  std::ofstream(root / "iter_0000010/manifest.json") << "{}";
  fs::create_directory(root / "iter_0000020");
  remove_generation(root.path(), {root / "iter_0000010", 10, 0});
  EXPECT_EQ(std::distance(fs::directory_iterator(root.path()), fs::directory_iterator()), 1);
  EXPECT_TRUE(fs::exists(root / "iter_0000020"));
}

}  // namespace
}  // namespace ms::ckpt
