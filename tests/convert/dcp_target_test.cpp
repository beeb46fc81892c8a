// Our DCP checkpoints: compared with the values that torch gathered from a genuine one, cut for any number of ranks,
// from and to other formats, with disk faults.
#include "convert/dcp_target.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "ckpt/optimizer_settings.h"
#include "convert/convert.h"
#include "convert/torch/dcp_reader.h"
#include "core/error.h"
#include "tests/convert/conversions.h"
#include "tests/convert/megatron/check_values.h"
#include "tests/convert/tensors_of.h"
#include "tests/convert/whole_tensor.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/thrown.h"

namespace ms::convert {
namespace {

namespace fs = std::filesystem;
using core::cat;
using core::ErrorCode;
using test::read_file;
using ::testing::Contains;
using ::testing::HasSubstr;

std::string data(const std::string& name) { return cat(MS_TEST_DATA, "/", name); }

ConvertOptions to_dcp(const std::string& from, const std::string& to, int ranks = 1) {
  ConvertOptions options;
  options.load_dir = from;
  options.save_dir = to;
  options.save_model_type = Format::kDcp;
  options.target_data_parallel_size = ranks;
  return options;
}

ConvertOptions plain(const std::string& from, const std::string& to, Format format) {
  ConvertOptions options;
  options.load_dir = from;
  options.save_dir = to;
  options.save_model_type = format;
  return options;
}

// A checkpoint by PyTorch, with some tensors cut by columns, through a native checkpoint: every key and value, and
// FSDP's boxes.
TEST(DcpTargetTest, PyTorchCheckpointIsReproduced) {
  const test::TemporaryFolder folder;
  ConvertOptions native = plain(data("dcp_fsdp"), folder / "ms", Format::kNative);
  native.hf_cfg_dir = data("dcp_fsdp/expected/param");
  native.target_tensor_parallel_size = 2;
  convert_checkpoint(native);
  const ConvertReport report = convert_checkpoint(to_dcp(folder / "ms", folder / "dcp", 2));
  EXPECT_EQ(report.path, folder / "dcp");
  const DcpReader genuine(data("dcp_fsdp")), ours(report.path);
  for (const auto& [key, tensor] : genuine.tensors()) {
    SCOPED_TRACE(key);
    const auto found = ours.tensors().find(key);
    ASSERT_NE(found, ours.tensors().end());
    EXPECT_EQ(found->second.dtype, tensor.dtype);
    EXPECT_EQ(found->second.shape, tensor.shape);
    EXPECT_EQ(found->second.chunks.size(), tensor.chunks.size());
  }
  EXPECT_EQ(ours.tensors().size(), genuine.tensors().size());
  for (const auto& [key, payload] : genuine.objects()) {
    EXPECT_TRUE(key == "epoch" || ours.objects().contains(key)) << key;
  }
  EXPECT_EQ(ours.tensors().at("model.lm_head.weight").chunks[1].offset, (core::Dims{10, 0})) << "19 rows for two ranks";
  const auto made = open_source(report.path);
  EXPECT_EQ(made->info().iteration, 3);
  EXPECT_EQ(made->info().common.at("step"), 3);
  for (const auto& [role, name] : {std::pair(core::TensorRole::kParam, "param"),
                                   {core::TensorRole::kExpAvg, "exp_avg"},
                                   {core::TensorRole::kExpAvgSq, "exp_avg_sq"}}) {
    const auto wanted = open_source(data(cat("dcp_fsdp/expected/", name)));
    for (const auto& [tensor, values] : test::tensors_of(*wanted)) {
      EXPECT_EQ(test::whole_tensor(*made, tensor.second, role), values.bytes) << name << " of " << tensor.second;
    }
  }
}

TEST(DcpTargetTest, HuggingFaceFolderIsByteIdenticalAfterSharding) {
  const test::TemporaryFolder folder;
  for (const char* model : {"hf_llama_tiny_sharded", "hf_gpt2_tiny", "hf_gemma2_tiny", "hf_glm_tiny", "hf_mixtral_tiny",
                            "hf_deepseek_v3_tiny"}) {
    SCOPED_TRACE(model);
    const std::string at = folder / model;
    ConvertOptions first = to_dcp(data(model), at + "/dcp", 3);
    const ConvertReport made = convert_checkpoint(first);
    EXPECT_TRUE(read_file(at + "/dcp/config.json") == read_file(data(model) + "/config.json"));
    convert_checkpoint(to_dcp(at + "/dcp", at + "/dcp2", 40));  // more ranks than some tensors have rows
    EXPECT_EQ(DcpReader(at + "/dcp2").tensors().size(), DcpReader(at + "/dcp").tensors().size());
    ConvertOptions back = plain(at + "/dcp2", at + "/hf", Format::kHuggingFace);
    if (std::string(model) == "hf_llama_tiny_sharded") back.max_shard_size_bytes = 8'000;
    convert_checkpoint(back);
    for (const auto& entry : fs::directory_iterator(data(model))) {
      const std::string name = entry.path().filename().string();
      if (name == "reference.json" || name == "generation_config.json") continue;  // not part of the model
      EXPECT_TRUE(read_file(cat(at, "/hf/", name)) == read_file(entry.path().string())) << name;
    }
  }
}

TEST(DcpTargetTest, WeightsAreFilledFromMasters) {
  const test::TemporaryFolder folder;
  const std::string from = data("megatron/swiglu_tp2_pp2_distributed");
  const auto original = open_source(from);
  ConvertOptions options = to_dcp(from, folder / "dcp", 2);
  const ConvertReport report = convert_checkpoint(options);
  EXPECT_THAT(report.decisions, Contains(HasSubstr("fp32 master weights")));
  const auto made = open_source(folder / "dcp");
  EXPECT_EQ(test::check_all_values(*made).size(), test::check_all_values(*original).size() / 4 * 3);
  options.dtype = core::DType::kBf16;
  options.save_dir = folder / "bf16";
  const test::Thrown thrown = test::thrown_by([&] { convert_checkpoint(options); });
  EXPECT_EQ(thrown.code, ErrorCode::kUnsupported);
  EXPECT_THAT(thrown.text, HasSubstr("leave --dtype out"));

  ConvertOptions back = plain(folder / "dcp", folder / "mg", Format::kMegatron);
  back.dtype = core::DType::kBf16;
  convert_checkpoint(back);
  const auto again = open_source(folder / "mg");
  EXPECT_EQ(test::first_difference(test::tensors_of(*again), test::tensors_of(*original)), "");
}

// Matrices decay, vectors do not: each parameter keeps its settings, by position and by name.
TEST(DcpTargetTest, OptimizerGroupsKeepTheirSettings) {
  const test::TemporaryFolder folder;
  const std::string from = data("megatron/swiglu_tp2_pp2_distributed");
  convert_checkpoint(to_dcp(from, folder / "dcp", 2));
  const auto made = open_source(folder / "dcp"), original = open_source(from);
  const auto groups = ckpt::optimizer_groups(*made), wanted = ckpt::optimizer_groups(*original);
  ASSERT_EQ(groups.size(), 2U);
  for (const auto& [key, decay] : {std::pair("embedding.word_embeddings.weight", 0.1),
                                   {"decoder.layers.0.mlp.linear_fc1.weight", 0.1},
                                   {"decoder.final_layernorm.weight", 0.0}}) {
    const ckpt::OptimizerGroup *group = ckpt::group_of(groups, key), *before = ckpt::group_of(wanted, key);
    ASSERT_TRUE(group != nullptr && before != nullptr) << key;
    EXPECT_EQ(group->weight_decay, decay) << key;
    EXPECT_EQ(group->lr, before->lr) << key;
    EXPECT_EQ(group->beta2, before->beta2) << key;
    EXPECT_EQ(group->step, before->step) << key;
  }
  const DcpReader reader(folder / "dcp");
  for (const char* key :
       {"optim.param_groups.0.lr", "optim.param_groups.1.params", "optim.param_groups.1.foreach",
        "optim.param_groups.model.norm.weight.weight_decay", "optim.param_groups.model.embed_tokens.weight.betas"}) {
    EXPECT_TRUE(reader.objects().contains(key)) << key;
  }
}

TEST(DcpTargetTest, SettingsThatTheSourceLacksAreLeftOutAndNamed) {
  const test::TemporaryFolder folder;
  // An elastic checkpoint has no param_groups.
  ConvertOptions options = to_dcp(data("deepspeed/zero2"), folder / "dcp");
  options.hf_cfg_dir = data("deepspeed/expected/zero2/param");
  const ConvertReport report = convert_checkpoint(options);
  EXPECT_THAT(report.decisions, Contains(HasSubstr("the source lacks lr (--lr), betas")));
  EXPECT_FALSE(DcpReader(folder / "dcp").objects().contains("optim.param_groups.0.lr"));
  options.save_dir = folder / "flags";
  options.optimizer.lr = 3e-4;
  options.optimizer.adam_beta1 = 0.8;
  options.optimizer.adam_beta2 = 0.97;
  options.optimizer.adam_eps = 1e-8;
  options.optimizer.weight_decay = 0.05;
  const ConvertReport whole = convert_checkpoint(options);
  for (const char* flag : {"--lr", "--adam-beta1", "--adam-beta2", "--adam-eps", "--weight-decay"}) {
    EXPECT_THAT(whole.from_flags, Contains(HasSubstr(flag)));
  }
  const auto groups = ckpt::optimizer_groups(*open_source(folder / "flags"));
  ASSERT_EQ(groups.size(), 1U);
  EXPECT_EQ(groups[0].lr, 3e-4);
  EXPECT_EQ(groups[0].weight_decay, 0.05);
}

TEST(DcpTargetTest, DropOptimizerLeavesOutOptimizerState) {
  const test::TemporaryFolder folder;
  ConvertOptions options = to_dcp(data("megatron/qk_norm_tp2_bf16"), folder / "dcp");
  options.drop_optimizer = true;
  EXPECT_EQ(test::thrown_by([&] { convert_checkpoint(options); }).code, ErrorCode::kUnsupported)
      << "a model that no family has";
  options.load_dir = data("megatron/swiglu_tp2_pp2_distributed");
  convert_checkpoint(options);
  const auto made = open_source(folder / "dcp");
  EXPECT_EQ(made->info().iteration, 0);
  EXPECT_FALSE(ckpt::has_role(*made, core::TensorRole::kExpAvg));
  EXPECT_EQ(DcpReader(folder / "dcp").objects().size(), 0u);
}

TEST(DcpTargetTest, UnsupportedRequestsAreRefused) {
  const test::TemporaryFolder folder;
  ConvertOptions options = to_dcp(data("hf_llama_tiny"), folder.path().string());
  test::Thrown thrown = test::thrown_by([&] { convert_checkpoint(options); });
  EXPECT_EQ(thrown.code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(thrown.text, HasSubstr("already exists"));
  options.save_dir = folder / "dcp";
  options.target_tensor_parallel_size = 2;
  thrown = test::thrown_by([&] { convert_checkpoint(options); });
  EXPECT_EQ(thrown.code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(thrown.text, HasSubstr("--target-tensor-parallel-size applies to ms, mg and dist results"));
  options.target_tensor_parallel_size = 1;
  options.save_model_type = Format::kNative;
  options.target_data_parallel_size = 2;
  thrown = test::thrown_by([&] { convert_checkpoint(options); });
  EXPECT_EQ(thrown.code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(thrown.text, HasSubstr("--target-data-parallel-size applies to dcp results"));
  EXPECT_TRUE(fs::is_empty(folder.path()));
}

TEST(DcpTargetTest, DiskFaultOrInterruptLeavesNothing) {
  const test::TemporaryFolder folder;
  const ConvertOptions options = to_dcp(data("megatron/swiglu_tp2_pp2_distributed"), folder / "dcp", 2);
  test::expect_survives_disk_errors(options, [&] {
    if (fs::exists(folder / "dcp")) {
      EXPECT_FALSE(test::check_all_values(*open_source(folder / "dcp")).empty());
      fs::remove_all(folder / "dcp");
      fs::remove(folder / "dcp.msckpt_report.json");
    }
    ASSERT_TRUE(fs::is_empty(folder.path()));
  });
  test::expect_stop_leaves_nothing(options, folder.path());
}

}  // namespace
}  // namespace ms::convert
