// Comparing checkpoints: differences are named, and damage on either side is found.
#include "ckpt/diff.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "ckpt/manifest.h"
#include "tests/ckpt/floats.h"
#include "tests/ckpt/state.h"

namespace ms::ckpt {
namespace {

using test::Floats, test::some_values, test::TemporaryFolder;
using testing::HasSubstr;

TEST(Diff, DifferenceHasCountSizeAndFirstPosition) {
  auto values = some_values(8);
  Floats a({4, 2}, 1, values);
  values[5] = 7;
  Floats b({4, 2}, 3, values);
  const auto differences = diff_checkpoints(a, b).differences;
  ASSERT_EQ(differences.size(), 1u);
  EXPECT_THAT(differences[0].text, HasSubstr("1 of 8 elements"));
  EXPECT_THAT(differences[0].text, HasSubstr("first at [2, 1]"));
}

class DiffOfFiles : public ::testing::Test {
 protected:
  DiffOfFiles() : config_(test::small_model(31)) {
    a_ = test::write_checkpoint(folder_.path() / "a", {2, 1, 1}, config_);
    b_ = test::write_checkpoint(folder_.path() / "b", {1, 2, 1}, config_);
  }
  // Flips a bit of a tensor's data, in the middle of its first box.
  std::string flip_a_bit(const std::filesystem::path& generation, size_t box) {
    const Manifest manifest = read_manifest(generation);
    std::fstream file(generation / manifest.file_of(box).name, std::ios::in | std::ios::out | std::ios::binary);
    const auto at = manifest.places[box].at + manifest.boxes.size_bytes(box) / 2;
    file.seekg(at);
    const char byte = static_cast<char>(file.get() ^ 4);
    file.seekp(at);
    file.put(byte);
    return std::string(manifest.boxes.key(manifest.boxes.tensor_of(box)));
  }
  TemporaryFolder folder_;
  core::TransformerConfig config_;
  std::filesystem::path a_, b_;
};

TEST_F(DiffOfFiles, EqualAcrossLayoutsReadsEveryTensor) {
  for (const int threads : {1, 3}) {
    const auto a = open_native(a_), b = open_native(b_);
    int64_t done = 0, total = 0;
    DiffOptions options;
    options.threads = threads;
    options.progress = [&](int64_t so_far, int64_t all) { done = so_far, total = all; };
    const DiffReport report = diff_checkpoints(*a, *b, options);
    EXPECT_TRUE(report.differences.empty());
    EXPECT_EQ(report.compared, static_cast<int64_t>(a->shards().num_tensors()));
    EXPECT_EQ(report.by_hash, 0);
    EXPECT_GT(total, 0);
    EXPECT_EQ(done, total);
  }
}

TEST_F(DiffOfFiles, DamageOnEitherSideIsCorruptDataNamingTensorAndBytes) {
  const std::string tensor = flip_a_bit(b_, 7);
  for (const bool swapped : {false, true}) {
    const auto a = open_native(swapped ? b_ : a_), b = open_native(swapped ? a_ : b_);
    const test::Thrown thrown = test::thrown_by([&] { diff_checkpoints(*a, *b); });
    EXPECT_EQ(thrown.code, core::ErrorCode::kCorruptData);
    EXPECT_THAT(thrown.text, HasSubstr(tensor));
    EXPECT_THAT(thrown.text, HasSubstr("bytes"));
    const DiffReport by_hash = diff_checkpoints(*a, *b, {.by_recorded_hashes = true});
    EXPECT_TRUE(by_hash.differences.empty());  // as documented: not detected
    EXPECT_EQ(by_hash.compared, 0);
    EXPECT_EQ(by_hash.by_hash, static_cast<int64_t>(a->shards().num_tensors()));
  }
}

TEST_F(DiffOfFiles, StopsOnRequest) {
  const auto a = open_native(a_), b = open_native(b_);
  DiffOptions options;
  options.stopped = [] { return true; };
  EXPECT_THAT(test::thrown_by([&] { diff_checkpoints(*a, *b, options); }).text, HasSubstr("interrupted"));
}

}  // namespace
}  // namespace ms::ckpt
