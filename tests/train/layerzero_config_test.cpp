#include "train/layerzero_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "core/error.h"
#include "core/io/yaml.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/thrown.h"
#include "train/config.h"

namespace ms::train {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

FlagsOfFile flags_of(std::string_view text, const std::vector<std::string>& args = {}, int tp = 1) {
  TrainerConfig config;
  core::ConfigFields fields = config.fields();
  fields.parse_flags(args);
  return flags_of_layerzero(core::parse_yaml(text, "zero.yml"), fields, tp, "zero.yml");
}

std::string refusal(std::string_view text, const std::vector<std::string>& args = {}, int tp = 1) {
  return test::thrown_by([&] { flags_of(text, args, tp); }).text;
}

// MindSpeed's tests_extend/system_tests/feature_tests/layerzero.yml, and the keys of its page.
constexpr std::string_view kExample = R"(
zero3_size: 4
transformer_layers:
  - megatron.core.transformer.transformer_layer.TransformerLayer
backward_prefetch: 'BACKWARD_PRE'
forward_prefetch: true
param_dtype: "bf16"
reduce_dtype: "fp32"
ignored_modules: null
offload_grads: False
autocast_input: True
autocast_output: True
)";

TEST(LayerZeroConfig, SaysWhatFlagsSay) {
  const FlagsOfFile seen = flags_of(kExample);
  EXPECT_THAT(seen.flags, ElementsAre("--bf16=true", "--optimizer-weight-shard-size=4"));
  std::string notices;
  for (const std::string& notice : seen.notices) notices += notice + "\n";
  for (const char* key : {"transformer_layers", "backward_prefetch BACKWARD_PRE", "forward_prefetch true",
                          "ignored_modules null", "offload_grads false", "autocast_input", "autocast_output"})
    EXPECT_THAT(notices, HasSubstr(key));
  EXPECT_THAT(flags_of("{}").flags, ElementsAre("--optimizer-weight-shard-size=8")) << "MindSpeed's default";
  EXPECT_THAT(flags_of("zero3_size: 8", {}, 2).flags, ElementsAre("--optimizer-weight-shard-size=4"))
      << "ranks of a stage, those of tensor parallelism too";
  EXPECT_THAT(flags_of("{zero3_size: 2, param_dtype: fp16, reduce_dtype: bf16}").flags,
              ElementsAre("--fp16=true", "--grad-reduce-in-bf16=true", "--optimizer-weight-shard-size=2"));
  EXPECT_THAT(flags_of(kExample, {"--bf16", "--optimizer-weight-shard-size", "4"}).flags, ElementsAre());
}

TEST(LayerZeroConfig, WhatItCannotSayIsNamed) {
  const struct {
    const char *text, *word;
    std::vector<std::string> args = {};
    int tp = 1;
  } cases[] = {
      {"zero3_siz: 4", "zero.yml: unknown key \"zero3_siz\". Did you mean zero3_size?"},
      {"zero3_size: 0", "zero3_size is 0; expected a number of ranks, at least 1"},
      {"zero3_size: many", "zero3_size is many; expected"},
      {"zero3_size: 6", "zero3_size 6 is not a multiple of --tensor-model-parallel-size 4", {}, 4},
      {"zero3_size: 4",
       "zero3_size 4 is --optimizer-weight-shard-size 4, not 2",
       {"--optimizer-weight-shard-size", "2"}},
      {"param_dtype: fp8", "param_dtype is fp8; expected fp16, bf16 or fp32"},
      {"param_dtype: fp32", "param_dtype is fp32, but --bf16 is true", {"--bf16"}},
      {"reduce_dtype: fp16", "reduce_dtype fp16 is not supported"},
      {"ignored_modules: [vae]", "ignored_modules [\"vae\"] is not supported"},
      {"ckpt_load_path: /a/b", "--load names the checkpoint"},
      {"autocast_output: false", "autocast_output false is not supported"},
      {"backward_prefetch: NEVER", "give BACKWARD_PRE|BACKWARD_POST"},
      {"- 3", "expected keys and values"},
  };
  for (const auto& one : cases) EXPECT_THAT(refusal(one.text, one.args, one.tp), HasSubstr(one.word)) << one.text;
}

TrainerConfig resolved(const std::vector<std::string>& args, int ranks) {
  TrainerConfig config;
  core::ConfigFields fields = config.fields();
  fields.parse_flags({"--num-layers", "2", "--hidden-size", "16", "--num-attention-heads", "2", "--seq-length", "8",
                      "--max-position-embeddings", "8", "--train-iters", "2", "--lr", "1"});
  fields.parse_flags(args);
  load_layerzero_file(config, fields);
  config.model.vocab_size = 100;
  config.resolve_and_validate(ranks);
  return config;
}

TEST(LayerZeroConfig, IsZeroThreeWithinGroupsAndStateOverAll) {
  const test::TemporaryFolder folder;
  const std::string path = folder / "zero.yml";
  std::ofstream(path) << "zero3_size: 4";
  const TrainerConfig config = resolved({"--layerzero", "--layerzero-config", path}, 8);
  const layout::Sharding sharding = config.layout(8).sharding();
  EXPECT_EQ(sharding.zero_stage, 3);
  EXPECT_EQ(sharding.num_instances, 2);
  EXPECT_EQ(sharding.parts_of_state(), 2);
  EXPECT_EQ(resolved({"--layerzero", "--layerzero-config", path}, 2).layout(2).sharding().num_instances, 1)
      << "one group of all, if there are no more";
  EXPECT_THAT(
      test::thrown_by([&] {
        resolved({"--layerzero", "--layerzero-config", path}, 6);
      }).text,
      HasSubstr("zero3_size of --layerzero-config (4 data-parallel ranks) does not divide the data-parallel size 6"));
  EXPECT_THAT(test::thrown_by([&] {
                resolved({"--layerzero", "--layerzero-config", path, "--data-parallel-sharding-strategy", "optim"}, 8);
              }).text,
              HasSubstr("--layerzero is --data-parallel-sharding-strategy optim_grads_params, not optim"));
  EXPECT_THAT(test::thrown_by([&] {
                resolved({"--layerzero", "--layerzero-config", folder / "none"}, 8);
              }).text,
              HasSubstr("--layerzero-config "));
}

// MindSpore's names.
TEST(ParallelOptimizer, LevelsAreStagesOfZero) {
  const auto sharding = [](const std::vector<std::string>& args) { return resolved(args, 8).layout(8).sharding(); };
  EXPECT_EQ(sharding({"--enable-parallel-optimizer"}).zero_stage, 1);
  EXPECT_EQ(sharding({"--enable-parallel-optimizer"}).least_divided_elems, 64 * 1024 / 4) << "64 KiB of fp32";
  EXPECT_EQ(sharding({"--enable-parallel-optimizer", "--bf16"}).least_divided_elems, 64 * 1024 / 2);
  const layout::Sharding of_four =
      sharding({"--enable-parallel-optimizer", "--optimizer-level", "level2", "--optimizer-weight-shard-size", "4",
                "--parallel-optimizer-threshold", "0"});
  EXPECT_EQ(of_four.zero_stage, 2);
  EXPECT_EQ(of_four.num_instances, 2);
  EXPECT_EQ(of_four.parts_of_state(), 1) << "instances have the same";
  EXPECT_EQ(of_four.least_divided_elems, 0);
  EXPECT_EQ(
      sharding({"--enable-parallel-optimizer", "--optimizer-level", "level3", "--optimizer-weight-shard-size", "-1"})
          .num_instances,
      1);
  const struct {
    std::vector<std::string> args;
    const char* word;
  } cases[] = {
      {{"--enable-parallel-optimizer", "--optimizer-level", "level4"}, "expected level1, level2 or level3"},
      {{"--enable-parallel-optimizer", "--parallel-optimizer-threshold", "-1"}, "--parallel-optimizer-threshold -1"},
      {{"--enable-parallel-optimizer", "--optimizer-level", "level2", "--data-parallel-sharding-strategy", "optim"},
       "--optimizer-level level2 is --data-parallel-sharding-strategy optim_grads, not optim"},
      {{"--enable-parallel-optimizer", "--optimizer-weight-shard-size", "3"},
       "does not divide the data-parallel size 8"},
      {{"--enable-parallel-optimizer", "--optimizer-weight-shard-size", "0"}, "at least 1, or -1"},
      {{"--enable-parallel-optimizer", "--optimizer-weight-shard-size", "4", "--num-distributed-optimizer-instances",
        "4"},
       "give one of both"},
  };
  for (const auto& one : cases) EXPECT_THAT(test::thrown_by([&] { resolved(one.args, 8); }).text, HasSubstr(one.word));
}

TEST(OptimizerInstances, MustDivideTheReplicasOfExperts) {
  const std::vector<std::string> experts = {"--num-experts",
                                            "8",
                                            "--moe-router-topk",
                                            "2",
                                            "--disable-bias-linear",
                                            "--expert-model-parallel-size",
                                            "4",
                                            "--use-distributed-optimizer"};
  const auto with = [&](const char* instances) {
    std::vector<std::string> args = experts;
    args.insert(args.end(), {"--num-distributed-optimizer-instances", instances});
    return args;
  };
  EXPECT_EQ(resolved(with("2"), 8).layout(8).sharding().num_instances, 2);
  EXPECT_THAT(test::thrown_by([&] { resolved(with("4"), 8); }).text,
              HasSubstr("--num-distributed-optimizer-instances 4 does not divide the 2 data-parallel ranks of an "
                        "expert (--expert-model-parallel-size 4, --expert-tensor-parallel-size 1)"));
}

}  // namespace
}  // namespace ms::train
