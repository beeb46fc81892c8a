#include "ckpt/seal.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "ckpt/manifest.h"
#include "core/io/file.h"
#include "core/layout/model_layout.h"
#include "tests/ckpt/state.h"
#include "tests/ckpt/whole_source.h"
#include "tests/support/files_of.h"

namespace ms::ckpt {
namespace {

using core::ErrorCode;
using core::TensorRole;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

class SealTest : public ::testing::Test {
 protected:
  SealTest() : config_(test::small_model(31)), state_(test::trained_state(config_, false, true)) {
    core::write_text_atomically(folder_ / "config.json", "{}");
    std::filesystem::create_directory(folder_ / "inner");
    core::write_text_atomically(folder_ / "inner/b", "bbb");
  }
  Seal seal(int threads = 1) {
    test::WholeSource source = test::cut(state_, config_, {}, {});
    return make_seal(source, folder_.path(), "hf", {.threads = threads});
  }
  VerifyReport verify(const Seal& seal, const test::WholeTensors& tensors,
                      const layout::ModelLayout& layout = {2, 2, 1}) {
    test::WholeSource source = test::cut(tensors, config_, layout, {});
    return verify_source(source, folder_.path(), &seal, {.threads = 2});
  }
  test::TemporaryFolder folder_;
  core::TransformerConfig config_;
  test::WholeTensors state_;
};

TEST_F(SealTest, RoundTripsAsTextForAnyNumberOfThreads) {
  const Seal made = seal();
  EXPECT_EQ(dump_seal(made), dump_seal(seal(3)));
  EXPECT_EQ(dump_seal(parse_seal(dump_seal(made), "x")), dump_seal(made));
  ASSERT_THAT(made.files, SizeIs(2));
  EXPECT_EQ(made.files[1].name, "inner/b");
  EXPECT_EQ(made.files[1].sha256, "3e744b9dc39389baf0c5a0660589b8402f3dbb49b89b3e75f2c9355852a3c677");
  EXPECT_EQ(made.tensors.size(), state_.size());
}

TEST_F(SealTest, IsValidForAnotherLayoutAndFindsAChangedElement) {
  const Seal made = seal();
  EXPECT_THAT(verify(made, state_).findings, IsEmpty());
  test::WholeTensors changed = state_;
  const std::string key = "decoder.layers.1.mlp.linear_fc2.weight";
  changed.at({key, TensorRole::kExpAvg}).bytes[77] ^= std::byte{1};
  const VerifyReport report = verify(made, changed);
  ASSERT_THAT(report.findings, SizeIs(1));
  EXPECT_EQ(report.findings[0].tensor, key + " (exp_avg)");
}

TEST_F(SealTest, MissingOptimizerStateIsANoteAndMissingTensorAFinding) {
  const Seal made = seal();
  test::WholeTensors weights = state_;
  std::erase_if(weights, [](const auto& item) { return item.first.second != TensorRole::kParam; });
  const VerifyReport report = verify(made, weights);
  EXPECT_THAT(report.findings, IsEmpty());
  EXPECT_THAT(report.notes, SizeIs(2));
  weights.erase({"decoder.final_layernorm.weight", TensorRole::kParam});
  ASSERT_THAT(verify(made, weights).findings, SizeIs(1));
  EXPECT_THAT(verify(made, weights).findings[0].text, HasSubstr("is missing"));
}

TEST_F(SealTest, ChangedAndMissingFilesAreFound) {
  const Seal made = seal();
  write_seal(folder_.path(), made);
  EXPECT_THAT(verify_files(folder_.path(), made, {}), IsEmpty());
  const auto found = find_seal(folder_.path());
  ASSERT_TRUE(found);
  EXPECT_EQ(dump_seal(*found), dump_seal(made));
  EXPECT_EQ(dump_seal(seal()), dump_seal(made)) << "a seal does not cover itself";
  core::write_text_atomically(folder_ / "inner/b", "bbc");
  core::write_text_atomically(folder_ / "config.json", "{ }");
  const auto findings = verify_files(folder_.path(), made, {});
  ASSERT_THAT(findings, SizeIs(2));
  EXPECT_THAT(findings[0].text, HasSubstr("3 bytes, but the seal says 2"));
  EXPECT_THAT(findings[1].text, HasSubstr("SHA-256"));
  EXPECT_EQ(findings[1].file, "inner/b");
}

TEST_F(SealTest, SumsAreAcceptedBySha256sum) {
  core::write_text_atomically(folder_ / "odd\\name\nof a file", "x");
  write_seal(folder_.path(), seal());
  const std::string check =
      core::cat("cd '", folder_.path().string(), "' && sha256sum --strict -c SHA256SUMS > /dev/null");
  EXPECT_EQ(std::system(check.c_str()), 0);
  core::write_text_atomically(folder_ / "odd\\name\nof a file", "y");
  EXPECT_NE(std::system((check + " 2>&1").c_str()), 0);
}

TEST_F(SealTest, DamagedNativeChunkIsAFindingWithItsTensor) {
  const auto generation = test::write_checkpoint(folder_ / "ours", {2, 1, 1}, config_);
  const auto whole = open_native(generation);
  const Seal made = make_seal(*whole, generation, "ms", {});
  const Manifest manifest = read_manifest(generation);
  std::fstream file(generation / manifest.file_of(4).name, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(manifest.places[4].at);
  file.put('!');
  file.close();
  const auto damaged = open_native(generation);
  const VerifyReport report = verify_source(*damaged, generation, &made, {});
  ASSERT_THAT(report.findings, SizeIs(1));
  EXPECT_THAT(report.findings[0].tensor, HasSubstr(std::string(manifest.boxes.key(manifest.boxes.tensor_of(4)))));
}

TEST_F(SealTest, InvalidSealIsRefused) {
  for (const std::string text :
       {"", "{}", "{\"schema\": \"x\"}", "{\"schema\": \"msckpt-seal/1\", \"format\": \"hf\", \"iteration\": -1}",
        "{\"schema\": \"msckpt-seal/1\", \"format\": \"hf\", \"iteration\": 0, \"tensors\": [{}], \"files\": []}",
        "{\"schema\": \"msckpt-seal/1\", \"format\": \"hf\", \"iteration\": 0, \"tensors\": [], \"files\": [{\"name\": "
        "\"../a\", \"bytes\": 1, \"sha256\": "
        "\"0000000000000000000000000000000000000000000000000000000000000000\"}]}"}) {
    const auto thrown = test::thrown_by([&] { parse_seal(text, "seal"); });
    EXPECT_EQ(thrown.code, ErrorCode::kCorruptData) << text;
    EXPECT_THAT(thrown.text, testing::StartsWith("seal: ")) << text;
  }
}

}  // namespace
}  // namespace ms::ckpt
