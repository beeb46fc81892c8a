#include "train/deepspeed_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "core/error.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/thrown.h"
#include "train/config.h"

namespace ms::train {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

DeepspeedFlags flags_of(std::string_view text, const std::vector<std::string>& args = {}) {
  TrainerConfig config;
  core::ConfigFields fields = config.fields();
  fields.parse_flags(args);
  return flags_of_deepspeed(core::parse_json(text, "ds.json"), fields, "ds.json");
}

std::string refusal(std::string_view text, const std::vector<std::string>& args = {}) {
  return test::thrown_by([&] { flags_of(text, args); }).text;
}

// What transformers' documentation gives for ZeRO-3, with values for "auto".
constexpr std::string_view kExample = R"({
  "fp16": {"enabled": false, "loss_scale": 0, "loss_scale_window": 1000, "initial_scale_power": 16, "hysteresis": 2,
           "min_loss_scale": 1},
  "bf16": {"enabled": true},
  "optimizer": {"type": "AdamW", "params": {"lr": 3e-5, "betas": [0.8, 0.999], "eps": 1e-8, "weight_decay": "auto"}},
  "zero_optimization": {
    "stage": 3, "overlap_comm": true, "contiguous_gradients": true, "sub_group_size": 1e9, "reduce_bucket_size": 5e8,
    "offload_optimizer": {"device": "cpu", "pin_memory": true},
    "stage3_prefetch_bucket_size": 5e7, "stage3_param_persistence_threshold": 1e5,
    "stage3_gather_16bit_weights_on_model_save": true},
  "gradient_accumulation_steps": 4, "gradient_clipping": 1.0, "steps_per_print": 2000, "train_batch_size": 64,
  "train_micro_batch_size_per_gpu": 2, "wall_clock_breakdown": false
})";

TEST(DeepspeedConfig, SaysWhatFlagsSay) {
  const DeepspeedFlags seen = flags_of(kExample);
  EXPECT_THAT(seen.flags,
              ::testing::UnorderedElementsAre("--bf16=true", "--optimizer=adam", "--lr=3e-05", "--adam-beta1=0.8",
                                              "--adam-beta2=0.999", "--adam-eps=1e-08", "--use-megatron-fsdp=true",
                                              "--data-parallel-sharding-strategy=optim_grads_params",
                                              "--gradient-accumulation-steps=4", "--clip-grad=1", "--log-interval=2000",
                                              "--global-batch-size=64", "--micro-batch-size=2"));
  // Whatever has no flag is said.
  std::string notices;
  for (const std::string& notice : seen.notices) notices += notice + "\n";
  for (const char* key : {"fp16.loss_scale_window", "fp16.hysteresis", "contiguous_gradients", "sub_group_size",
                          "reduce_bucket_size", "offload_optimizer", "stage3_prefetch_bucket_size",
                          "stage3_param_persistence_threshold", "overlap_comm", "wall_clock_breakdown"})
    EXPECT_THAT(notices, HasSubstr(key));
}

TEST(DeepspeedConfig, FlagsAreTakenAsTheirTextSays) {
  TrainerConfig config;
  core::ConfigFields fields = config.fields();
  const test::TemporaryFolder folder;
  std::ofstream(folder / "ds.json") << kExample;
  load_deepspeed_file(folder / "ds.json", fields);
  EXPECT_TRUE(config.training.bf16);
  EXPECT_EQ(config.training.global_batch_size, 64);
  EXPECT_EQ(config.training.micro_batch_size, 2);
  EXPECT_EQ(config.training.gradient_accumulation_steps, 4);
  EXPECT_EQ(config.optimizer.lr, 3e-5);
  EXPECT_EQ(config.optimizer.adam_beta1, 0.8);
  EXPECT_EQ(zero_stage(config.parallel), 3);
  EXPECT_EQ(config.optimizer.weight_decay, OptimizerConfig{}.weight_decay) << "auto";
}

TEST(DeepspeedConfig, StagesAreThoseOfZero) {
  EXPECT_THAT(flags_of(R"({"zero_optimization": {"stage": 0}})").flags, IsEmpty());
  EXPECT_THAT(
      flags_of(R"({"zero_optimization": {"stage": 1, "overlap_comm": true, "reduce_bucket_size": 5e8}})").flags,
      ElementsAre("--use-distributed-optimizer=true", "--overlap-grad-reduce=true", "--ddp-bucket-size=500000000"));
  EXPECT_THAT(flags_of(R"({"zero_optimization": {"stage": 1, "reduce_bucket_size": 5e8}})").flags,
              ElementsAre("--use-distributed-optimizer=true"));
  EXPECT_THAT(flags_of(R"({"zero_optimization": {"stage": 2}})").flags,
              ElementsAre("--use-megatron-fsdp=true", "--data-parallel-sharding-strategy=optim_grads"));
}

TEST(DeepspeedConfig, LossScaleAndOtherOptimizers) {
  EXPECT_THAT(
      flags_of(R"({"fp16": {"enabled": true, "loss_scale": 0, "initial_scale_power": 16, "hysteresis": 3}})").flags,
      ElementsAre("--fp16=true", "--hysteresis=3", "--initial-loss-scale=65536"));
  EXPECT_THAT(flags_of(R"({"fp16": {"enabled": true, "loss_scale": 128}})").flags,
              ElementsAre("--fp16=true", "--loss-scale=128"));
  EXPECT_THAT(flags_of(R"({"optimizer": {"type": "SGD", "params": {"momentum": 0.5, "lr": 0.1}}})").flags,
              ::testing::UnorderedElementsAre("--optimizer=sgd", "--sgd-momentum=0.5", "--lr=0.1"));
  EXPECT_THAT(refusal(R"({"optimizer": {"type": "Lamb"}})"), HasSubstr("optimizer.type is \"Lamb\""));
}

// Both values are named; the same one, or auto, is none.
TEST(DeepspeedConfig, ContradictionsAreErrorsWithBothValues) {
  EXPECT_EQ(refusal(R"({"train_batch_size": 32})", {"--global-batch-size", "64"}),
            "ds.json: train_batch_size is 32, but --global-batch-size is 64: give one of both, or \"auto\"");
  EXPECT_THAT(
      refusal(R"({"zero_optimization": {"stage": 2}})",
              {"--use-megatron-fsdp", "--data-parallel-sharding-strategy", "optim_grads_params"}),
      HasSubstr("zero_optimization.stage is 2, but --data-parallel-sharding-strategy is \"optim_grads_params\""));
  EXPECT_THAT(refusal(R"({"zero_optimization": {"stage": 0}})", {"--use-distributed-optimizer"}),
              HasSubstr("zero_optimization.stage is 0, but --use-distributed-optimizer is true"));
  EXPECT_THAT(refusal(R"({"zero_optimization": {"stage": 1}})", {"--use-megatron-fsdp"}),
              HasSubstr("use-megatron-fsdp"));
  EXPECT_THAT(refusal(R"({"bf16": {"enabled": false}})", {"--bf16"}),
              HasSubstr("bf16.enabled is false, but --bf16 is true"));
  EXPECT_THAT(
      refusal(R"({"optimizer": {"type": "AdamW", "params": {"betas": [0.9, 0.95]}}})", {"--adam-beta2", "0.99"}),
      HasSubstr("optimizer.params.betas is [0.9,0.95], but --adam-beta2 is 0.99"));
  EXPECT_THAT(refusal(R"({"zero_optimization": {"stage": 1, "overlap_comm": false}})", {"--overlap-grad-reduce"}),
              HasSubstr("overlap_comm is false, but --overlap-grad-reduce is true"));
  EXPECT_THAT(flags_of(R"({"train_batch_size": 64, "gradient_clipping": 1})",
                       {"--global-batch-size", "64", "--clip-grad", "1.0"})
                  .flags,
              IsEmpty());
  EXPECT_THAT(flags_of(R"({"train_batch_size": "auto"})", {"--global-batch-size", "64"}).flags, IsEmpty());
}

TEST(DeepspeedConfig, UnknownKeysAndValuesAreNamed) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"train_batchsize": 32})", "unknown key \"train_batchsize\". Did you mean train_batch_size?"},
      {R"({"zero_optimization": {"stage": 1, "overlap_com": true}})",
       "unknown key \"zero_optimization.overlap_com\". Did you mean overlap_comm?"},
      {R"({"zero_optimization": {"stage": 4}})", "stage is 4; expected 0 to 3"},
      {R"({"zero_optimization": {"stage": "auto"}})", "stage is \"auto\""},
      {R"({"zero_optimization": 3})", "zero_optimization is 3; expected an object"},
      {R"({"zero_optimization": {"overlap_comm": 1}})", "expected true or false"},
      {R"({"zero_optimization": {"reduce_bucket_size": "big"}})", "expected a number of elements"},
      {R"({"zero_optimization": {"offload_param": {"device": "nvme"}}})", "nvme"},
      {R"({"zero_optimization": {"offload_param": {"devise": "cpu"}}})", "unknown key"},
      {R"({"zero_optimization": {"zero_quantized_gradients": true}})",
       "zero_quantized_gradients true is not supported"},
      {R"({"zero_optimization": {"zero_hpz_partition_size": 8}})", "zero_hpz_partition_size 8 is not supported"},
      {R"({"fp16": {"enabled": true, "initial_scale_power": "auto", "auto_cast": true}})", "auto_cast true"},
      {R"({"scheduler": {"type": "WarmupLR"}})", "--lr-warmup-iters"},
      {R"({"scheduler": {"type": "WarmupLR", "params": {"warmup_max_lr": "auto", "warmup_num_steps": 9}}})",
       "leave it out"},
      {R"({"sparse_attention": {"mode": "fixed"}})", "sparse_attention is not supported"},
      {R"({"activation_checkpointing": {"partition_activations": true}})",
       "activation_checkpointing.partition_activations"},
      {R"({"optimizer": {"type": "AdamW", "params": {"betas": [0.9]}}})", "expected two numbers"},
      {R"({"optimizer": {"type": "AdamW", "parms": {}}})", "unknown key \"optimizer.parms\""},
      {R"({"train_batch_size": [32]})", "expected a value"},
      {R"([])", "expected a JSON object"},
  };
  for (const auto& [text, word] : cases) EXPECT_THAT(refusal(text), HasSubstr(word)) << text;
}

}  // namespace
}  // namespace ms::train
