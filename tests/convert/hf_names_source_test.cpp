// Models of every family, from formats with other names, written under Hugging Face's names: .bin folders and single
// files.
#include "convert/hf_names_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "ckpt/reader.h"
#include "convert/convert.h"
#include "convert/huggingface_config.h"
#include "convert/named.h"
#include "core/error.h"
#include "tests/convert/conversions.h"
#include "tests/convert/tensors_of.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/thrown.h"

namespace ms::convert {
namespace {

namespace fs = std::filesystem;
using core::cat;
using core::ErrorCode;
using testing::HasSubstr;

std::string data(const std::string& name) { return cat(MS_TEST_DATA, "/", name); }

// Under the names in the files.
test::TensorsOfSource tensors(const std::string& path) {
  std::vector<std::string> decisions;
  return test::tensors_of(*open_named(path, true, decisions));
}

class HfNamesSourceTest : public testing::Test {
 protected:
  ConvertOptions options(const std::string& from, const std::string& to, Format format) {
    ConvertOptions made;
    made.load_dir = from;
    made.save_dir = folder_ / to;
    made.save_model_type = format;
    return made;
  }
  // hf -> ours, cut for two tensor-parallel ranks.
  std::string native_of(const std::string& model) {
    ConvertOptions made = options(data(model), cat("ms_", model), Format::kNative);
    made.target_tensor_parallel_size = 2;
    return convert_checkpoint(made), made.save_dir;
  }
  test::TemporaryFolder folder_;
};

// Rows and columns swapped (GPT-2), packed q, k and v, experts one by one, multi-token prediction layers, tied heads.
TEST_F(HfNamesSourceTest, NativeToBinHasTheFamilysTensorsAndConfig) {
  for (const char* model :
       {"hf_llama_tiny", "hf_gpt2_tiny", "hf_qwen2_tiny", "hf_gemma2_tiny", "hf_phi3_tiny", "hf_glm4_tiny",
        "hf_mixtral_tiny", "hf_deepseek_v3_tiny", "hf_internlm2_tiny", "hf_gpt_neox_tiny", "hf_llava_tiny"}) {
    SCOPED_TRACE(model);
    const std::string to = cat("bin_", model);
    convert_checkpoint(options(native_of(model), to, Format::kHuggingFaceBin));
    EXPECT_EQ(test::first_difference(tensors(folder_ / to), tensors(data(model))), "");
    EXPECT_TRUE(fs::exists((folder_ / to) + "/pytorch_model.bin"));
    EXPECT_TRUE(test::read_file((folder_ / to) + "/config.json") == test::read_file(data(model) + "/config.json"));
  }
}

TEST_F(HfNamesSourceTest, SplitBySizeHasAnIndexAndIsProved) {
  ConvertOptions made = options(native_of("hf_llama_tiny"), "bin", Format::kHuggingFaceBin);
  made.max_shard_size_bytes = 8'000;
  made.prove = true;
  const ConvertReport report = convert_checkpoint(made);
  ASSERT_TRUE(report.proof.has_value());
  EXPECT_TRUE(report.proof->faults.empty());
  EXPECT_TRUE(fs::exists(folder_ / "bin/pytorch_model.bin.index.json"));
  EXPECT_EQ(test::first_difference(tensors(folder_ / "bin"), tensors(data("hf_llama_tiny"))), "");
}

TEST_F(HfNamesSourceTest, NativeConvertsToOneFile) {
  const std::string native = native_of("hf_gpt2_tiny");
  for (const char* file : {"model.safetensors", "model.pt"}) {
    convert_checkpoint(options(native, file, Format::kFile));
    EXPECT_EQ(test::first_difference(tensors(folder_ / file), tensors(data("hf_gpt2_tiny"))), "") << file;
  }
}

TEST_F(HfNamesSourceTest, EveryFormatWithAFamilyConverts) {
  const std::string native = native_of("hf_qwen2_tiny");
  for (const Format format : {Format::kMegatron, Format::kMegatronDist, Format::kDcp, Format::kUniversal}) {
    const std::string name(format_name(format));
    SCOPED_TRACE(name);
    ConvertOptions first = options(native, name, format);
    convert_checkpoint(first);
    ConvertOptions second = options(first.save_dir, name + "_bin", Format::kHuggingFaceBin);
    second.hf_cfg_dir = data("hf_qwen2_tiny");
    convert_checkpoint(second);
    EXPECT_EQ(test::first_difference(tensors(second.save_dir), tensors(data("hf_qwen2_tiny"))), "");
    EXPECT_TRUE(test::read_file(second.save_dir + "/config.json") ==
                test::read_file(data("hf_qwen2_tiny") + "/config.json"));
  }
}

TEST_F(HfNamesSourceTest, OptimizerStateNeedsDropOptimizer) {
  const std::string from = data("megatron/swiglu_tp2_pp2_distributed");
  ConvertOptions bin = options(from, "bin", Format::kHuggingFaceBin);
  const test::Thrown thrown = test::thrown_by([&] { convert_checkpoint(bin); });
  EXPECT_EQ(thrown.code, ErrorCode::kUnsupported);
  EXPECT_THAT(thrown.text, HasSubstr("--drop-optimizer"));
  EXPECT_FALSE(fs::exists(bin.save_dir));
  ConvertOptions hf = options(from, "hf", Format::kHuggingFace);
  bin.drop_optimizer = hf.drop_optimizer = true;
  convert_checkpoint(bin);
  convert_checkpoint(hf);
  EXPECT_EQ(test::first_difference(tensors(bin.save_dir), tensors(hf.save_dir)), "");
  EXPECT_TRUE(test::read_file(bin.save_dir + "/config.json") == test::read_file(hf.save_dir + "/config.json"));
}

TEST_F(HfNamesSourceTest, DtypeChangesWeightsAndConfig) {
  ConvertOptions made = options(native_of("hf_llama_tiny"), "bin", Format::kHuggingFaceBin);
  made.dtype = core::DType::kFp16;
  convert_checkpoint(made);
  for (const auto& [key, tensor] : tensors(made.save_dir)) EXPECT_EQ(tensor.dtype, core::DType::kFp16) << key.second;
  EXPECT_THAT(test::read_file(made.save_dir + "/config.json"), HasSubstr("float16"));
}

// Boxes at every position and of every size of a transposed and of a packed matrix, compared with the whole.
TEST_F(HfNamesSourceTest, ReadsAnyBox) {
  for (const auto& [model, name] : {std::pair("hf_gpt2_tiny", "transformer.h.0.attn.c_attn.weight"),
                                    std::pair("hf_phi3_tiny", "model.layers.0.mlp.gate_up_proj.weight")}) {
    const std::string native = native_of(model);
    const auto original = ckpt::open_native(native);
    const nlohmann::json config = original->info().model_extra.at("hf_config");
    const auto source =
        with_hf_names(ckpt::open_native(native), family_of_result(config, original->info().model_extra));
    const auto tensor = source->shards().find(name, core::TensorRole::kParam);
    ASSERT_TRUE(tensor) << name;
    const auto shape = source->shards().global_shape(*tensor);
    const int64_t item = core::size_of(source->shards().dtype(*tensor));
    const auto whole = test::whole_tensor(*source, name, core::TensorRole::kParam);
    for (int64_t row = 0; row < shape[0]; row += 3) {
      for (int64_t column = 0; column < shape[1]; column += 5) {
        const core::Dims extent = {std::min<int64_t>(4, shape[0] - row), std::min<int64_t>(7, shape[1] - column)};
        std::vector<std::byte> box(static_cast<size_t>(extent[0] * extent[1] * item));
        source->read(*tensor, {row, column}, extent, box.data());
        for (int64_t r = 0; r < extent[0]; ++r) {
          ASSERT_TRUE(std::equal(box.begin() + r * extent[1] * item, box.begin() + (r + 1) * extent[1] * item,
                                 whole.begin() + ((row + r) * shape[1] + column) * item))
              << name << " from " << row << ", " << column;
        }
      }
    }
  }
}

}  // namespace
}  // namespace ms::convert
