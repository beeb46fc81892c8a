// Each feature of the registry is switched on by its flags and owns them alone. What its rules refuse: rules_test.cpp.
#include "train/features/registry.h"

#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "core/error.h"
#include "tests/train/features/feature_flags.h"
#include "train/features/active_features.h"

namespace ms::train {
namespace {

// The feature: flags without it, and flags with it.
const std::map<std::string, std::pair<Flags, Flags>> kSwitches = {
    {"tensor-parallel", {{}, {"--tensor-model-parallel-size", "2"}}},
    {"sequence-parallel",
     {{"--tensor-model-parallel-size", "2"}, {"--tensor-model-parallel-size", "2", "--sequence-parallel"}}},
    {"context-parallel", {{}, {"--context-parallel-size", "2"}}},
    {"hybrid-context-parallel",
     {{"--reset-attention-mask", "--calculate-per-token-loss"},
      {"--reset-attention-mask", "--calculate-per-token-loss", "--hybrid-context-parallel",
       "--max-seqlen-per-dp-cp-rank", "32"}}},
    {"variable-seq-lengths", {{}, {"--variable-seq-lengths"}}},
    {"tp-comm-overlap",
     {{"--tensor-model-parallel-size", "2"}, {"--tensor-model-parallel-size", "2", "--tp-comm-overlap"}}},
    {"ascend-coc",
     {{"--tensor-model-parallel-size", "2"},
      {"--tensor-model-parallel-size", "2", "--use-ascend-coc", "--coc-parallel-num", "2"}}},
    {"ascend-mc2",
     {{"--tensor-model-parallel-size", "2", "--sequence-parallel"},
      {"--tensor-model-parallel-size", "2", "--sequence-parallel", "--use-ascend-mc2"}}},
    {"pipeline-parallel", {{}, {"--pipeline-model-parallel-size", "2"}}},
    {"virtual-pipeline",
     {{"--pipeline-model-parallel-size", "2"},
      {"--pipeline-model-parallel-size", "2", "--num-virtual-stages-per-pipeline-rank", "2"}}},
    {"shared-memory", {{"--no-shared-memory"}, {}}},
    {"comm-progress", {{}, {"--comm-progress", "thread"}}},
    {"pipeline-schedule",
     {{"--pipeline-model-parallel-size", "2"}, {"--pipeline-model-parallel-size", "2", "--schedules-method", "zb-v"}}},
    {"automated-pipeline",
     {{"--pipeline-model-parallel-size", "2"}, {"--pipeline-model-parallel-size", "2", "--automated-pipeline"}}},
    {"stage-layers",
     {{"--pipeline-model-parallel-size", "2"}, {"--pipeline-model-parallel-size", "2", "--num-layer-list", "1,3"}}},
    {"defer-embedding-wgrad",
     {{"--pipeline-model-parallel-size", "2"},
      {"--pipeline-model-parallel-size", "2", "--defer-embedding-wgrad-compute"}}},
    {"distributed-optimizer", {{}, {"--use-distributed-optimizer"}}},
    {"megatron-fsdp",
     {{"--use-distributed-optimizer", "--overlap-grad-reduce"},
      {"--use-megatron-fsdp", "--data-parallel-sharding-strategy", "optim_grads"}}},
    {"optimizer-instances",
     {{"--use-distributed-optimizer"}, {"--use-distributed-optimizer", "--num-distributed-optimizer-instances", "2"}}},
    {"parallel-optimizer",
     {{"--use-distributed-optimizer"}, {"--use-distributed-optimizer", "--parallel-optimizer-threshold", "64"}}},
    {"layerzero",
     {{"--use-megatron-fsdp", "--num-distributed-optimizer-instances", "2", "--outer-dp-sharding-strategy", "optim"},
      {"--layerzero", "--layerzero-config", "layerzero.yml", "--optimizer-weight-shard-size", "2"}}},
    {"gradient-accumulation-steps", {{}, {"--gradient-accumulation-steps", "2"}}},
    {"overlap-grad-reduce", {{}, {"--overlap-grad-reduce"}}},
    {"overlap-param-gather",
     {{"--use-distributed-optimizer", "--overlap-grad-reduce"},
      {"--use-distributed-optimizer", "--overlap-grad-reduce", "--overlap-param-gather"}}},
    {"grad-reduce-in-bf16", {{"--bf16"}, {"--bf16", "--grad-reduce-in-bf16"}}},
    {"ddp-average-in-collective", {{}, {"--ddp-average-in-collective"}}},
    {"async-log-allreduce", {{}, {"--async-log-allreduce"}}},
    {"freeze-parameters", {{}, {"--freeze-parameters", "embedding"}}},
    {"rank-order", {{}, {"--use-tp-pp-dp-mapping"}}},
    {"parallel-mode", {{}, {"--parallel-mode", "data_parallel"}}},
    {"mixed-precision", {{}, {"--fp16"}}},
    {"mixture-of-experts",
     {{"--disable-bias-linear"}, {"--disable-bias-linear", "--num-experts", "4", "--moe-router-topk", "2"}}},
    {"expert-parallel",
     {{"--disable-bias-linear", "--num-experts", "4"},
      {"--disable-bias-linear", "--num-experts", "4", "--expert-model-parallel-size", "2"}}},
    {"moe-fb-overlap",
     {{"--disable-bias-linear", "--num-experts", "4", "--expert-model-parallel-size", "2"},
      {"--disable-bias-linear", "--num-experts", "4", "--expert-model-parallel-size", "2", "--moe-fb-overlap"}}},
    {"expert-placement",
     {{"--disable-bias-linear", "--num-experts", "4", "--expert-model-parallel-size", "2"},
      {"--disable-bias-linear", "--num-experts", "4", "--expert-model-parallel-size", "2",
       "--enable-expert-placement"}}},
    {"multi-latent-attention", {{"--disable-bias-linear"}, latent()}},
    {"multi-token-prediction", {{"--disable-bias-linear"}, further()}},
    {"reuse-fp32-param", {{"--bf16"}, {"--bf16", "--reuse-fp32-param"}}},
    {"recompute",
     {{"--recompute-granularity", "selective"},  // core_attn alone drops nothing
      {"--recompute-granularity", "selective", "--recompute-modules", "mlp"}}},
    {"recompute-norm", {{}, {"--recompute-norm"}}},
    {"recompute-activation-function", {{}, {"--recompute-activation-function"}}},
    {"recompute-pipelining",
     {{"--pipeline-model-parallel-size", "2", "--num-virtual-stages-per-pipeline-rank", "2"},
      {"--pipeline-model-parallel-size", "2", "--num-virtual-stages-per-pipeline-rank", "2", "--recompute-in-bubble"}}},
    {"attention-window", {{}, {"--window-size", "4,0"}}},
    {"packed-documents", {{}, {"--reset-attention-mask"}}},
    {"prefix-mask", {{}, {"--sparse-mode", "5", "--prefix-length", "4"}}},
    {"attention-mask-grid", {{"--attention-mask-type", "general"}, {"--attention-mask-grid", kGrid}}},
    {"swap-attention", {{}, {"--swap-attention"}}},
    {"swap-optimizer", {{}, {"--swap-optimizer"}}},
    {"loss-chunks", {{}, {"--loss-compute-mode", "chunk"}}},
    {"deterministic", {{}, {"--npu-deterministic"}}},
    {"packed-weights", {{}, {"--packed-weights"}}},
    {"gradient-accumulation-fusion", {{"--no-gradient-accumulation-fusion"}, {}}},
    {"fused-operators",
     {{"--no-use-fused-rmsnorm", "--no-use-fused-swiglu", "--no-use-fused-rotary-pos-emb", "--no-use-flash-attn"}, {}}},
    {"optimization-level", {{}, {"--optimization-level", "1"}}},
    {"spike-skip", {{}, {"--spike-skip-factor", "2"}}},
    {"async-save", {{"--save", "s", "--no-async-save"}, {"--save", "s"}}},
    {"ckpt-writer", {{"--save", "s"}, {"--save", "s", "--ckpt-writer", "process"}}},
    {"ckpt-gather",
     {{"--save", "s", "--no-ckpt-fully-parallel-save"},
      {"--save", "s", "--no-ckpt-fully-parallel-save", "--disable-gloo-group"}}},
    {"ckpt-fully-parallel-save", {{"--save", "s", "--no-ckpt-fully-parallel-save"}, {"--save", "s"}}},
    {"ckpt-compress", {{"--save", "s"}, {"--save", "s", "--ckpt-compress"}}},
    {"incremental-save", {{"--save", "s"}, {"--save", "s", "--ckpt-full-every", "4"}}},
    {"local-checkpoints", {{}, kLocal}},
    {"replication", {kLocal, kReplicated}},
    {"profile", {{}, {"--profile"}}},
    {"save-tensors", {{}, {"--save-tensors", "1", "--save-tensors-dir", "d"}}},
    {"routing-trace",
     {{"--disable-bias-linear", "--num-experts", "4"},
      {"--disable-bias-linear", "--num-experts", "4", "--moe-routing-trace-path", "d"}}},
    {"flight-recorder", {{}, {"--flight-recorder-dump-path", "d"}}},
    {"straggler", {{}, {"--log-straggler"}}},
    {"weight-hash", {{}, {"--check-weight-hash-across-dp-replicas-interval", "5"}}},
};

TEST(Features, FlagsSwitchOnTheirFeatureAndNoOther) {
  for (const Feature& feature : features()) {
    const auto found = kSwitches.find(feature.name);
    ASSERT_NE(found, kSwitches.end()) << feature.name << " has no row in kSwitches";
    const auto& [without, with] = found->second;
    std::set<std::string> expected = active(without);
    EXPECT_EQ(expected.count(feature.name), 0u) << feature.name;
    expected.insert(feature.name);
    EXPECT_EQ(active(with), expected) << feature.name;
  }
  EXPECT_EQ(kSwitches.size(), features().size());
}

TEST(Features, OwnTheirFlagsAlone) {
  TrainerConfig config;
  std::map<std::string, int> times;
  for (const core::ConfigFields::FlagHelp& flag : config.fields().flag_help()) ++times[flag.names.front()];
  std::map<std::string, std::string> owners;
  std::set<std::string> names;
  for (const Feature& feature : features()) {
    EXPECT_TRUE(names.insert(feature.name).second) << feature.name;
    EXPECT_TRUE(feature.level >= 0 && feature.level <= 2) << feature.name;
    EXPECT_FALSE(feature.effect.empty() || feature.effect.back() == '.') << feature.name;
    const std::vector<std::string> flags = flags_of(feature);
    EXPECT_FALSE(flags.empty()) << feature.name;
    for (const std::string& flag : flags) {
      EXPECT_TRUE(owners.emplace(flag, feature.name).second)
          << flag << " belongs to " << owners[flag] << " and to " << feature.name;
      EXPECT_EQ(times[flag], 1) << flag << " is in train/config.h too, or not in fields()";
    }
  }
}

TEST(Features, IneffectiveFlagsAreAccepted) {
  // Feature -> flags of each of its warnings, in its order.
  const auto with_experts = [](const char* flag) {
    return Flags{flag,
                 "--tensor-model-parallel-size",
                 "2",
                 "--sequence-parallel",
                 "--disable-bias-linear",
                 "--num-experts",
                 "4",
                 "--moe-router-topk",
                 "2"};
  };
  const std::map<std::string, std::vector<Flags>> cases = {
      {"sequence-parallel", {{"--sequence-parallel"}}},
      {"context-parallel",
       {{"--cp-comm-type", "a2a"},
        {"--ulysses-degree-in-cp", "2"},
        {"--cp-window-size", "2"},
        {"--context-parallel-kv-cache-policy", "half"},
        {"--use-ulysses-allgather-kv", "--group-query-attention", "--num-query-groups", "1"},
        {"--adaptive-cp-only-reschedule"}}},
      {"hybrid-context-parallel", {{"--max-seqlen-per-dp-cp-rank", "32"}}},
      {"tp-comm-overlap", {{"--tp-comm-overlap"}, with_experts("--tp-comm-overlap")}},
      {"ascend-coc", {{"--use-ascend-coc"}, with_experts("--use-ascend-coc"), {"--coc-parallel-num", "2"}}},
      {"ascend-mc2", {{"--use-ascend-mc2"}, with_experts("--use-ascend-mc2")}},
      {"overlap-grad-reduce", {{"--ddp-bucket-size", "9"}}},
      {"megatron-fsdp", {{"--data-parallel-sharding-strategy", "optim_grads"}}},
      {"optimizer-instances", {{"--outer-dp-sharding-strategy", "optim"}}},
      {"swap-attention", {{"--swap-attention", "--checkpoint-activations"}}},
      {"fused-operators",
       {{"--no-use-fused-rmsnorm", "--no-use-fused-swiglu", "--no-use-fused-rotary-pos-emb", "--no-use-flash-attn"},
        {"--no-use-fused-rmsnorm", "--no-use-fused-swiglu", "--no-use-fused-rotary-pos-emb", "--no-use-flash-attn"},
        {"--no-use-fused-rmsnorm", "--no-use-fused-swiglu", "--no-use-fused-rotary-pos-emb", "--no-use-flash-attn"}}},
      {"attention-window",
       {{"--sparse-mode", "2", "--pre-tockens", "9"}, {"--next-tockens", "1"}, {"--window-attn-skip-freq", "2"}}},
      {"packed-documents",
       {{"--reset-position-ids", "--position-embedding-type", "rope"},
        {"--dataloader-inter-document-masking", "--variable-seq-lengths"}}},
      {"attention-mask-grid", {{"--attention-mask-type", "general"}}},
      {"mixture-of-experts",
       {{"--moe-router-topk", "4"},
        {"--moe-router-pre-softmax"},
        {"--moe-router-score-function", "sigmoid"},
        {"--moe-router-num-groups", "2"},
        {"--moe-router-topk-scaling-factor", "2"},
        {"--moe-ffn-hidden-size", "8"},
        {"--moe-layer-freq", "2"},
        {"--moe-shared-expert-intermediate-size", "8"},
        {"--moe-router-load-balancing-type", "none"},
        {"--moe-aux-loss-coeff", "0.1"},
        {"--moe-token-drop-policy", "position"},
        {"--norm-topk-prob"},
        {"--moe-router-dtype", "fp64"},
        {"--fix-router"},
        {"--seq-aux"},
        {"--moe-adaptive-recompute-activation-scale", "3"},
        {"--recompute-granularity", "selective", "--recompute-modules", "moe"},
        {"--moe-router-force-load-balancing"},
        {"--moe-router-load-balancing-type", "softmax_topk", "--moe-aux-loss-coeff", "0.1"}}},
      {"expert-parallel",
       {{"--disable-bias-linear", "--num-experts", "4", "--moe-token-dispatcher-type", "allgather"},
        {"--moe-alltoall-overlap-comm"},
        {"--moe-allgather-overlap-comm", "--moe-token-dispatcher-type", "allgather"},
        {"--moe-shared-expert-overlap"},
        {"--moe-tp-extend-ep"},
        {"--disable-bias-linear", "--num-experts", "4", "--moe-experts-pipeline-degree", "2"},
        {"--disable-bias-linear", "--num-experts", "4", "--moe-hierarchical-alltoallv", "--moe-tp-extend-ep"}}},
      {"moe-fb-overlap", {{"--disable-bias-linear", "--num-experts", "4", "--moe-fb-overlap"}}},
      {"multi-latent-attention",
       {{"--q-lora-rank", "4"},
        {"--kv-lora-rank", "4"},
        {"--qk-head-dim", "4"},
        {"--qk-pos-emb-head-dim", "2"},
        {"--v-head-dim", "4"}}},
      {"multi-token-prediction", {{"--mtp-loss-scaling-factor", "0.3"}, {"--mtp-mem-efficient-logits"}}},
      {"recompute", {{"--recompute-activations"}, {"--enable-recompute-layers-per-pp-rank"}}},
  };
  for (const Feature& feature : features()) {
    const auto found = cases.find(feature.name);
    ASSERT_EQ(feature.ineffective.size(), found == cases.end() ? 0 : found->second.size()) << feature.name;
    for (size_t i = 0; i < feature.ineffective.size(); ++i) {
      const Flags& flags = found->second[i];
      EXPECT_TRUE(feature.ineffective[i].given(parse(flags))) << feature.name;
      EXPECT_FALSE(feature.ineffective[i].given(parse({"--tensor-model-parallel-size", "2"}))) << feature.name;
      EXPECT_EQ(active(flags).count(feature.name), 0u) << feature.name;
    }
  }
}

// A fused operator that is asked for, not one that is on by default.
TEST(Features, LevelRefusesWhatAHigherOneAdds) {
  EXPECT_EQ(refusal({"--optimization-level", "0"}), "");
  EXPECT_EQ(refusal({"--optimization-level", "0", "--no-use-flash-attn"}), "");
  const std::string of_ring =
      refusal({"--optimization-level", "0", "--context-parallel-size", "2", "--cp-comm-type", "p2p"});
  EXPECT_NE(of_ring.find("--optimization-level 0"), std::string::npos) << of_ring;
  for (const char* flag :
       {"--use-flash-attn", "--use-fused-rmsnorm", "--use-fused-swiglu", "--use-fused-rotary-pos-emb"}) {
    EXPECT_EQ(refusal({"--optimization-level", "0", flag}),
              core::cat(flag, " (fused-operators) needs --optimization-level 1, but it is 0"));
    EXPECT_EQ(refusal({"--optimization-level", "1", flag}), "");
  }
}

TEST(ActiveFeatures, GivenFlagsAreThoseThatDifferFromTheirDefaults) {
  TrainerConfig config = parse({"--fp16", "--initial-loss-scale", "1024", "--profile", "--profile-ranks", "0", "3",
                                "--save", "s", "--no-ckpt-fully-parallel-save"});
  config.resolve_and_validate(kRanks);
  std::map<std::string, Flags> given;
  for (const ActiveFeature& feature : active_features(config)) given[feature.name] = feature.flags;
  EXPECT_EQ(given["mixed-precision"], (Flags{"--fp16", "--initial-loss-scale 1024.0"}));
  EXPECT_EQ(given["profile"], (Flags{"--profile", "--profile-ranks 0 3"}));
  EXPECT_EQ(given["async-save"], (Flags{"--async-save"}));
  EXPECT_EQ(given.count("ckpt-fully-parallel-save"), 0u);
  config = parse({"--context-parallel-size", "2", "--cp-comm-type", "a2a"});
  for (const ActiveFeature& feature : active_features(config)) given[feature.name] = feature.flags;
  EXPECT_EQ(given["context-parallel"], (Flags{"--context-parallel-size 2", "--cp-comm-type a2a"}));
}

TEST(ActiveFeatures, TextAndJsonHaveTheSameFeatures) {
  TrainerConfig config = parse({"--bf16", "--reuse-fp32-param"});
  config.resolve_and_validate(kRanks);
  const std::string text = active_features_text(config);
  const std::string not_active = text.substr(text.find("not active:"));
  const nlohmann::json json = features_json(config);
  ASSERT_EQ(json.size(), features().size());
  for (const nlohmann::json& feature : json) {
    const std::string name = feature["name"];
    EXPECT_EQ(not_active.find(" " + name) == std::string::npos, feature["active"].get<bool>()) << name;
  }
  const auto reuse =
      std::find_if(json.begin(), json.end(), [](const auto& f) { return f["name"] == "reuse-fp32-param"; });
  EXPECT_EQ((*reuse)["needs"][0], "--reuse-fp32-param needs --bf16");
  EXPECT_EQ((*reuse)["level"], 2);
}

}  // namespace
}  // namespace ms::train
