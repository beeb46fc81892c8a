// GGUF files read back and proved against the checkpoint that they were made from.
#include "convert/gguf_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "convert/convert.h"
#include "convert/detect.h"
#include "convert/gguf/reader.h"
#include "core/error.h"
#include "tests/support/files_of.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/thrown.h"

namespace ms::ckpt {
void PrintTo(const Fault& fault, std::ostream* out) { *out << fault_text(fault); }
}  // namespace ms::ckpt

namespace ms::convert {
namespace {

using ckpt::Fault, ckpt::FaultKind, ckpt::ProofReport;
using core::cat;
using core::ErrorCode;
using testing::AllOf;
using testing::Contains;
using testing::Field;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

class GgufSourceTest : public testing::Test {
 protected:
  // Returns the file. model: a folder of the test data, or any path.
  std::string written(const std::string& model, std::optional<core::DType> dtype = {}, bool q8_0 = false) {
    source_ = model.find('/') == std::string::npos ? cat(MS_TEST_DATA, "/", model) : model;
    ConvertOptions options;
    options.load_dir = source_;
    options.save_dir = folder_ / cat("gguf", ++made_);
    options.save_model_type = Format::kGguf;
    options.dtype = dtype;
    options.q8_0 = q8_0;
    options.prove = true;
    const ConvertReport report = convert_checkpoint(options);
    EXPECT_TRUE(report.proof);
    for (const Fault& fault : report.proof->faults) ADD_FAILURE() << model << ": " << fault_text(fault);
    EXPECT_GT(report.proof->elements, 0);
    return report.path;
  }
  ProofReport proof(const std::string& path) {
    const auto source = open_source(source_);
    return prove_gguf(*source, path, nullptr, {.threads = 2});
  }
  // Overwrites bytes of a tensor's data, for elements of 2 or 4 bytes.
  static void change(const std::string& path, const std::string& tensor,
                     const std::function<void(std::string&)>& edit) {
    const GgufReader reader(path);
    const GgufReader::Tensor* found = reader.find(tensor);
    ASSERT_NE(found, nullptr) << tensor;
    std::string bytes = test::read_file(path);
    const auto at = static_cast<size_t>(found->at);
    std::string data = bytes.substr(at, static_cast<size_t>(gguf_bytes(found->gguf_type(), found->elements)));
    edit(data);
    test::write_file(path, bytes.replace(at, data.size(), data));
  }
  test::TemporaryFolder folder_;
  std::string source_;
  int made_ = 0;
};

// Reordered heads, transposed and fused matrices, norms plus 1, experts in one tensor, tied embeddings: all are mapped
// back to the source's form.
TEST_F(GgufSourceTest, FilesOfEveryArchitectureAreProved) {
  // llama.cpp's Gemma 2 uses the head size here.
  const std::string gemma = folder_ / "gemma2";
  std::filesystem::copy(cat(MS_TEST_DATA, "/hf_gemma2_tiny"), gemma);
  std::string config = test::read_file(gemma + "/config.json");
  const std::string_view scalar = "\"query_pre_attn_scalar\": 12";
  ASSERT_NE(config.find(scalar), std::string::npos);
  test::write_file(gemma + "/config.json",
                   config.replace(config.find(scalar), scalar.size(), "\"query_pre_attn_scalar\": 8"));
  const std::vector<std::string> models = {
      "hf_llama_tiny", "hf_mistral_tiny", "hf_qwen2_tiny",     "hf_phi3_tiny",         "hf_glm4_tiny",
      "hf_gpt2_tiny",  "hf_mixtral_tiny", "hf_qwen3_moe_tiny", "hf_llama_biased_tiny", gemma};
  for (const std::string& model : models) {
    SCOPED_TRACE(model);
    for (const auto dtype : {std::optional<core::DType>(), std::optional(core::DType::kFp32),
                             std::optional(core::DType::kFp16), std::optional(core::DType::kBf16)}) {
      written(model, dtype);
    }
    const std::string quantized = written(model, {}, true);
    EXPECT_THAT(proof(quantized).faults, IsEmpty());
  }
}

TEST_F(GgufSourceTest, WrongRowsOfHeadsAreFound) {
  const std::string path = written("hf_llama_tiny");
  change(path, "blk.1.attn_q.weight", [](std::string& data) {  // two rows of the first head
    std::swap_ranges(data.begin(), data.begin() + 32, data.begin() + 32);
  });
  const ProofReport report = proof(path);
  ASSERT_THAT(report.faults, SizeIs(1));
  EXPECT_EQ(report.faults[0].tensor, "decoder.layers.1.self_attention.linear_qkv.weight");
  EXPECT_THAT(report.faults[0].place, HasSubstr("model.gguf:blk.1.attn_q.weight"));
}

TEST_F(GgufSourceTest, FlippedBitOfAQuantizedBlockIsFound) {
  const std::string path = written("hf_gpt2_tiny", {}, true);  // its MLP has rows of 64
  const GgufReader reader(path);
  const auto tensor = std::find_if(reader.tensors().begin(), reader.tensors().end(), [](const auto& one) {
    return one.gguf_type() == GgufType::kQ8_0 && one.name.find("ffn_down") != std::string::npos;
  });
  ASSERT_NE(tensor, reader.tensors().end());
  change(path, tensor->name, [](std::string& data) { data[2] = static_cast<char>(data[2] ^ 1); });
  const ProofReport report = proof(path);
  ASSERT_THAT(report.faults, SizeIs(1));
  EXPECT_THAT(report.faults[0].place, HasSubstr(tensor->name));
  EXPECT_THAT(report.notes, Contains(AllOf(HasSubstr("tensors in q8_0"), HasSubstr("quantize_row_q8_0_ref"))));
}

// Faults in the list of tensors. Names are replaced by others of the same length.
TEST_F(GgufSourceTest, MissingDuplicateAndUnknownTensorsAreNamed) {
  const std::string good = test::read_file(written("hf_llama_tiny"));
  const auto renamed = [&](const std::string& from, const std::string& to) {
    std::string bytes = good;
    const size_t at = bytes.find(from);
    EXPECT_NE(at, std::string::npos);
    test::write_file(folder_ / "renamed.gguf", bytes.replace(at, from.size(), to));
    return proof(folder_ / "renamed.gguf");
  };
  ProofReport report = renamed("blk.1.ffn_down.weight", "blk.0.ffn_down.weight");
  EXPECT_THAT(report.faults, Contains(AllOf(Field(&Fault::kind, FaultKind::kTwice),
                                            Field(&Fault::tensor, "\"blk.0.ffn_down.weight\""))));
  EXPECT_THAT(report.faults, Contains(AllOf(Field(&Fault::kind, FaultKind::kMissing),
                                            Field(&Fault::tensor, "decoder.layers.1.mlp.linear_fc2.weight"))));
  report = renamed("blk.1.ffn_gate.weight", "blk.1.ffn_GATE.weight");
  EXPECT_THAT(report.faults, Contains(AllOf(Field(&Fault::kind, FaultKind::kExtra),
                                            Field(&Fault::tensor, "\"blk.1.ffn_GATE.weight\""))));
  EXPECT_THAT(report.faults, Contains(AllOf(Field(&Fault::kind, FaultKind::kHole),
                                            Field(&Fault::tensor, "decoder.layers.1.mlp.linear_fc1.weight"))));
}

TEST_F(GgufSourceTest, FileOfAnotherModelIsRefused) {
  const std::string path = written("hf_qwen2_tiny");
  source_ = cat(MS_TEST_DATA, "/hf_llama_tiny");
  const ProofReport report = proof(path);
  ASSERT_THAT(report.faults, SizeIs(1));
  EXPECT_EQ(report.faults[0].kind, FaultKind::kRefused);
  EXPECT_THAT(report.faults[0].text, HasSubstr("a \"qwen2\" model, but its source is llama"));
}

TEST_F(GgufSourceTest, IsDetectedByContent) {
  const std::string path = written("hf_llama_tiny");
  EXPECT_TRUE(is_gguf(path));
  EXPECT_TRUE(is_gguf(std::filesystem::path(path).parent_path().string()));
  EXPECT_FALSE(is_gguf(source_));
  test::write_file(folder_ / "x.gguf", "GGU");
  EXPECT_FALSE(is_gguf(folder_ / "x.gguf"));
}

}  // namespace
}  // namespace ms::convert
