// Flips every bit of a small checkpoint, and truncates every file at every byte: verify names the file and, in tensor
// data, the tensor and its bytes; a load gives the true values or fails. By default one bit of each byte, all in
// `nightly`.
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>

#include "ckpt/commit.h"
#include "ckpt/manifest.h"
#include "ckpt/shard_list.h"
#include "ckpt/verify.h"
#include "tests/ckpt/state.h"

namespace ms::ckpt {
namespace {

namespace fs = std::filesystem;
using namespace test;  // NOLINT
using ms::test::read_file;
using ms::test::write_file;

class Damage : public ::testing::Test {
 protected:
  Damage() {
    config_ = small_model(5, true, 4);
    config_.num_layers = 1;
    config_.ffn_hidden_size = 4;
    config_.num_attention_heads = config_.num_query_groups = 1;
    config_.kv_channels = 2;
    path_ = write_checkpoint(folder_.path(), {}, config_, roles_);
    manifest_ = read_manifest(path_);
  }

  // True if it loads; checks that every value is right.
  bool loads() {
    try {
      const auto source = open_native(path_);
      expect_loads(*source, {}, config_, roles_);
      return true;
    } catch (const core::Error& e) {
      EXPECT_TRUE(e.code() == core::ErrorCode::kCorruptData || e.code() == core::ErrorCode::kNotFound) << e.what();
      return false;
    }
  }

  // The tensor that a byte of a file belongs to; empty if there is none.
  std::string owner(const std::string& file, int64_t byte) const {
    for (size_t box = 0; box < manifest_.boxes.size(); ++box) {
      const int64_t at = manifest_.places[box].at;
      if (manifest_.file_of(box).name == file && byte >= at && byte < at + manifest_.boxes.size_bytes(box)) {
        return std::string(manifest_.boxes.key(manifest_.boxes.tensor_of(box)));
      }
    }
    return "";
  }

  static bool nightly() { return std::getenv("MS_NIGHTLY") != nullptr; }

  // Uses a file system in memory if there is one: the test writes thousands of damaged files.
  static int in_memory() {
    return fs::is_directory("/dev/shm") && std::getenv("TMPDIR") == nullptr ? ::setenv("TMPDIR", "/dev/shm", 1) : 0;
  }

  const int in_memory_ = in_memory();
  TemporaryFolder folder_;
  core::TransformerConfig config_;
  std::vector<RoleSpec> roles_ = {{core::TensorRole::kParam, core::DType::kBf16}};
  fs::path path_;
  Manifest manifest_;
};

TEST_F(Damage, EveryFlippedBitIsFoundAndNamed) {
  for (const char* file : {"rank_00000.h5", kManifestName}) {
    const std::string whole = read_file(path_ / file);
    std::string text = whole;
    size_t in_tensors = 0;
    for (size_t bit = 0; bit < 8 * whole.size(); bit += nightly() ? 1 : 9) {
      text[bit / 8] = static_cast<char>(text[bit / 8] ^ (1 << bit % 8));
      write_file(path_ / file, text);
      text[bit / 8] = whole[bit / 8];
      const auto findings = verify_generation(path_, {}).findings;
      ASSERT_FALSE(findings.empty()) << file << " bit " << bit;
      ASSERT_EQ(findings.front().file, file) << "bit " << bit;
      const std::string tensor = owner(file, static_cast<int64_t>(bit / 8));
      if (!tensor.empty()) {
        ++in_tensors;
        ASSERT_EQ(findings.size(), 1u) << "bit " << bit;
        ASSERT_EQ(findings.front().tensor, tensor) << "bit " << bit;
        ASSERT_LE(findings.front().begin, static_cast<int64_t>(bit / 8));
        ASSERT_GT(findings.front().end, static_cast<int64_t>(bit / 8));
      }
      const bool loaded = loads();
      ASSERT_TRUE(!loaded || (tensor.empty() && std::string(file) != kManifestName)) << file << " bit " << bit;
    }
    EXPECT_EQ(in_tensors > 100, std::string(file) != kManifestName) << file;
    write_file(path_ / file, whole);
  }
  EXPECT_TRUE(verify_generation(path_, {}).findings.empty());
  EXPECT_TRUE(loads());
}

TEST_F(Damage, EveryTruncationIsFoundAndRefused) {
  for (const char* file : {"rank_00000.h5", kManifestName}) {
    const std::string whole = read_file(path_ / file);
    for (size_t size = 0; size < whole.size(); size += nightly() ? 1 : 3) {
      write_file(path_ / file, whole.substr(0, size));
      const auto findings = verify_generation(path_, {}).findings;
      ASSERT_FALSE(findings.empty()) << file << " of " << size;
      ASSERT_EQ(findings.front().file, file) << size;
      ASSERT_FALSE(loads()) << file << " of " << size;
    }
    write_file(path_ / file, whole + "x");  // a longer file is damaged too
    ASSERT_FALSE(verify_generation(path_, {}).findings.empty()) << file;
    ASSERT_FALSE(loads());
    write_file(path_ / file, whole);
  }
}

// The pointer is advisory: whatever it contains, the newest complete generation is loaded, and a mismatch is reported.
TEST_F(Damage, FlippedBitOfThePointerIsOnlyReported) {
  const std::string whole = read_file(folder_.path() / kPointerName);
  for (size_t bit = 0; bit < 8 * whole.size(); ++bit) {
    std::string text = whole;
    text[bit / 8] = static_cast<char>(text[bit / 8] ^ (1 << bit % 8));
    write_file(folder_.path() / kPointerName, text);
    const auto latest = find_latest(folder_.path());
    ASSERT_TRUE(latest);
    EXPECT_EQ(latest->generation.iteration, 100);
    ASSERT_EQ(latest->notes.size(), 1u) << bit;
    EXPECT_EQ(latest->notes[0].rfind(kPointerName, 0), 0u) << latest->notes[0];
  }
}

}  // namespace
}  // namespace ms::ckpt
