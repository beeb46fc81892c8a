#include "train/deepspeed_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "core/error.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/thrown.h"
#include "train/config.h"
#include "train/optim/param_scheduler.h"

namespace ms::train {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

FlagsOfFile flags_of(std::string_view text, const std::vector<std::string>& args = {}) {
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
  const FlagsOfFile seen = flags_of(kExample);
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

TEST(DeepspeedConfig, SchedulersAreMegatrons) {
  EXPECT_THAT(flags_of(R"({"optimizer": {"type": "AdamW", "params": {"lr": 3e-5}},
                           "scheduler": {"type": "WarmupLR", "params": {"warmup_type": "linear", "warmup_min_lr": 1e-6,
                                         "warmup_max_lr": 0.01, "warmup_num_steps": 30}}})")
                  .flags,
              ::testing::UnorderedElementsAre("--optimizer=adam", "--lr-warmup-iters=30", "--lr-decay-style=constant",
                                              "--lr-warmup-init=1e-06", "--lr=0.01", "--lr-decay-iters=31"))
      << "the scheduler's rate is DeepSpeed's, whatever the optimizer's is";
  EXPECT_THAT(
      flags_of(
          R"({"scheduler": {"type": "WarmupDecayLR", "params": {"warmup_type": "linear", "total_num_steps": 90}}})")
          .flags,
      ElementsAre("--lr-warmup-iters=1000", "--lr-decay-iters=90", "--lr-decay-style=linear", "--lr-warmup-init=0",
                  "--lr=0.001", "--min-lr=0"));
  EXPECT_THAT(flags_of(R"({"scheduler": {"type": "WarmupCosineLR", "params": {"warmup_type": "linear",
                           "warmup_num_steps": 0, "total_num_steps": 90, "cos_min_ratio": 0.5}}})",
                       {"--lr", "0.25"})
                  .flags,
              ElementsAre("--lr-warmup-iters=2", "--lr-decay-iters=90", "--lr-decay-style=cosine", "--lr-warmup-init=0",
                          "--min-lr=0.125"))
      << "DeepSpeed's least";
  EXPECT_THAT(flags_of(R"({"scheduler": {"type": "WarmupLR", "params": {"warmup_min_lr": "auto",
                           "warmup_max_lr": "auto", "warmup_num_steps": "auto"}}})")
                  .flags,
              IsEmpty());
  EXPECT_THAT(flags_of(R"({"scheduler": {"type": "WarmupLR", "params": {"warmup_type": "linear"}}})",
                       {"--lr", "0.5", "--lr-warmup-iters", "7"})
                  .flags,
              ElementsAre("--lr-decay-style=constant", "--lr-warmup-init=0", "--lr-decay-iters=1001"))
      << "a flag replaces a default";
  EXPECT_THAT(refusal(R"({"scheduler": {"type": "WarmupLR", "params": {"warmup_type": "linear", "warmup_max_lr": 1}}})",
                      {"--lr", "0.5"}),
              HasSubstr("scheduler.params.warmup_max_lr is 1, but --lr is 0.5"));
}

// What DeepSpeed's own schedulers give (tests/data/deepspeed_schedules.json, made by make_deepspeed_schedules.py) to
// the next step, whose first two are alike; in a cosine decay to the same.
TEST(DeepspeedConfig, SchedulesGiveDeepspeedsRates) {
  std::ifstream file(MS_TEST_DATA "/deepspeed_schedules.json");
  const nlohmann::json golden = nlohmann::json::parse(file);
  ASSERT_GE(golden.size(), 8U);
  for (const auto& entry : golden) {
    SCOPED_TRACE(entry["config"].dump());
    TrainerConfig config;
    core::ConfigFields fields = config.fields();
    fields.parse_flags({"--num-layers", "2", "--hidden-size", "16", "--num-attention-heads", "2", "--seq-length", "8",
                        "--max-position-embeddings", "8", "--train-iters", "50"});
    fields.parse_flags(flags_of(entry["config"].dump()).flags);
    config.model.vocab_size = 100;
    config.resolve_and_validate(3);
    const ParamSchedule schedule = param_schedule(config);
    const std::vector<double> rates = entry["rates"];
    const bool is_cosine = config.scheduler.lr_decay_style == "cosine";
    const int64_t warmup = config.scheduler.lr_warmup_iters;
    for (int64_t step = 0; step + 1 < static_cast<int64_t>(rates.size()); ++step) {
      if (is_cosine && step == warmup) continue;  // the peak, which DeepSpeed leaves out
      const int64_t of_deepspeed = is_cosine && step > warmup ? step : step + 1;
      if (is_cosine && of_deepspeed == 0) continue;
      EXPECT_NEAR(learning_rate(schedule, step * config.training.global_batch_size),
                  rates[static_cast<size_t>(of_deepspeed)], 1e-12)
          << "step " << step;
    }
  }
}

// The interval of the log changes no number: the flag wins, and the log says so.
TEST(DeepspeedConfig, TheFlagOfTheLogIntervalWins) {
  EXPECT_THAT(flags_of(R"({"steps_per_print": 10})").flags, ElementsAre("--log-interval=10"));
  EXPECT_THAT(flags_of(R"({"steps_per_print": 10})", {"--log-interval", "10"}).notices, IsEmpty());
  const FlagsOfFile both = flags_of(R"({"steps_per_print": 10})", {"--log-interval", "3"});
  EXPECT_THAT(both.flags, IsEmpty());
  EXPECT_THAT(both.notices,
              ElementsAre("steps_per_print 10 changes nothing: --log-interval 3 is given, too, and wins"));
}

TEST(DeepspeedConfig, AKeyThatIsGivenTwiceIsAnError) {
  const test::TemporaryFolder folder;
  const auto load = [&](const char* text) {
    std::ofstream(folder / "ds.json") << text;
    TrainerConfig config;
    core::ConfigFields fields = config.fields();
    return test::thrown_by([&] { load_deepspeed_file(folder / "ds.json", fields); });
  };
  const test::Thrown twice = load(R"({"zero_optimization": {"stage": 1, "overlap_comm": true, "stage": 2}})");
  EXPECT_EQ(twice.code, core::ErrorCode::kInvalidArgument);
  EXPECT_THAT(twice.text, HasSubstr("ds.json: key \"stage\" is given twice"));
  EXPECT_THAT(load(R"({"gradient_clipping": "yes"})").text,
              ::testing::AllOf(HasSubstr("--deepspeed_config "), HasSubstr("ds.json: gradient_clipping is \"yes\"")));
}

// Of three sizes two give the third, as in DeepSpeed; three must agree.
TEST(DeepspeedConfig, TheBatchIsMicroBatchesTimesAccumulationTimesReplicas) {
  const auto resolved = [](std::string_view text) {
    TrainerConfig config;
    core::ConfigFields fields = config.fields();
    fields.parse_flags({"--num-layers", "2", "--hidden-size", "16", "--num-attention-heads", "2", "--seq-length", "8",
                        "--max-position-embeddings", "8", "--train-iters", "2", "--lr", "1"});
    fields.parse_flags(flags_of(text).flags);
    config.model.vocab_size = 100;
    config.resolve_and_validate(4);
    return config.training.global_batch_size;
  };
  EXPECT_EQ(resolved(R"({"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 3})"), 2 * 3 * 4);
  EXPECT_EQ(resolved(R"({"train_micro_batch_size_per_gpu": 2})"), 2 * 4);
  EXPECT_EQ(resolved(R"({"train_batch_size": 24, "train_micro_batch_size_per_gpu": 2})"), 24);
  const test::Thrown thrown = test::thrown_by([&] {
    resolved(R"({"train_batch_size": 32, "train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 3})");
  });
  EXPECT_EQ(thrown.code, core::ErrorCode::kInvalidArgument);
  EXPECT_THAT(thrown.text, HasSubstr("--gradient-accumulation-steps 3, but --global-batch-size 32 with "
                                     "--micro-batch-size 2 on 4 data-parallel ranks makes 4"));
}

TEST(DeepspeedConfig, MicsIsAShardSize) {
  EXPECT_THAT(flags_of(R"({"zero_optimization": {"stage": 3, "mics_shard_size": 4}})").flags,
              ElementsAre("--use-megatron-fsdp=true", "--data-parallel-sharding-strategy=optim_grads_params",
                          "--optimizer-weight-shard-size=4"));
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
      {R"({"scheduler": {"type": "OneCycle"}})", "expected WarmupLR, WarmupDecayLR or WarmupCosineLR"},
      {R"({"scheduler": {"type": "WarmupLR"}})", "DeepSpeed's default \"log\" is not supported: give \"linear\""},
      {R"({"scheduler": {"type": "WarmupLR", "params": {"warmup_type": "log"}}})", "params.warmup_type \"log\""},
      {R"({"scheduler": {"type": "WarmupLR", "params": {"warmup_type": "linear", "warmup_num_step": 9}}})",
       "Did you mean warmup_num_steps?"},
      {R"({"scheduler": {"type": "WarmupLR", "params": {"warmup_type": "linear", "total_num_steps": 9}}})",
       "WarmupLR has no params.total_num_steps"},
      {R"({"scheduler": {"type": "WarmupDecayLR", "params": {"warmup_type": "linear"}}})",
       "WarmupDecayLR needs total_num_steps"},
      {R"({"scheduler": {"type": "WarmupCosineLR", "params": {"warmup_type": "linear", "total_num_steps": 9}}})",
       "params.cos_min_ratio is a share of optimizer.params.lr, which is not given"},
      {R"({"scheduler": {"type": "WarmupLR", "params": {"warmup_type": "linear", "warmup_num_steps": 1.5}}})",
       "params.warmup_num_steps is 1.5; expected a number of steps"},
      {R"({"scheduler": {"type": "WarmupLR", "params": {"warmup_type": "linear", "warmup_max_lr": "big"}}})",
       "params.warmup_max_lr is \"big\"; expected a number"},
      {R"({"scheduler": {"type": "WarmupLR", "parms": {}}})", "unknown key \"scheduler.parms\""},
      {R"({"gradient_clipping": "yes"})", "ds.json: gradient_clipping is \"yes\"; expected a number"},
      {R"({"train_batch_size": 2.5})", "ds.json: train_batch_size is 2.5; expected a whole number"},
      {R"({"sparse_attention": {"mode": "fixed"}})", "sparse_attention is not supported"},
      {R"({"activation_checkpointing": {"partition_activations": true}})",
       "activation_checkpointing.partition_activations"},
      {R"({"optimizer": {"type": "AdamW", "params": {"betas": [0.9]}}})", "expected two numbers"},
      {R"({"optimizer": {"type": "AdamW", "parms": {}}})", "unknown key \"optimizer.parms\""},
      {R"({"train_batch_size": [32]})", "train_batch_size is [32]; expected a whole number"},
      {R"([])", "expected a JSON object"},
  };
  for (const auto& [text, word] : cases) EXPECT_THAT(refusal(text), HasSubstr(word)) << text;
}

}  // namespace
}  // namespace ms::train
