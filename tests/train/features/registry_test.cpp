// Each feature of the registry is switched on by its flags, owns them alone, and refuses what its rules say.
#include "train/features/registry.h"

#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "core/error.h"
#include "train/features/active_features.h"

namespace ms::train {
namespace {

using Flags = std::vector<std::string>;

constexpr int kRanks = 8;
constexpr const char* kGrid = MS_TEST_DATA "/train/mask_grids/causal_8.txt";
const Flags kModel = {
    "--num-layers", "4",   "--hidden-size",      "64", "--num-attention-heads", "4",  "--vocab-size",  "96",
    "--seq-length", "32",  "--micro-batch-size", "1",  "--global-batch-size",   "16", "--train-iters", "9",
    "--lr",         "1e-3"};

TrainerConfig parse(const Flags& flags) {
  TrainerConfig config;
  core::ConfigFields fields = config.fields();
  Flags all = kModel;
  all.insert(all.end(), flags.begin(), flags.end());
  fields.parse_flags(all);
  return config;
}

std::string refusal(const Flags& flags) {
  TrainerConfig config = parse(flags);
  try {
    config.resolve_and_validate(kRanks);
  } catch (const core::Error& e) {
    EXPECT_EQ(core::exit_code(e.code()), 2);
    return e.what();
  }
  return "";
}

std::set<std::string> active(const Flags& flags) {
  TrainerConfig config = parse(flags);
  config.resolve_and_validate(kRanks);
  std::set<std::string> names;
  for (const ActiveFeature& feature : active_features(config)) names.insert(feature.name);
  return names;
}

const Flags kLocal = {"--non-persistent-ckpt-type", "local", "--non-persistent-local-ckpt-dir", "d"};
const Flags kReplicated = {
    "--non-persistent-ckpt-type", "local", "--non-persistent-local-ckpt-dir", "d", "--replication",
    "--replication-jump",         "4"};

// A model with latent attention, and more flags.
Flags latent(const Flags& more = {}) {
  Flags flags = {"--disable-bias-linear", "--multi-latent-attention",
                 "--kv-lora-rank",        "6",
                 "--qk-head-dim",         "4",
                 "--qk-pos-emb-head-dim", "2",
                 "--v-head-dim",          "4"};
  flags.insert(flags.end(), more.begin(), more.end());
  return flags;
}

// A model with a layer of multi-token prediction, and more flags.
Flags further(const Flags& more = {}) {
  Flags flags = {"--disable-bias-linear", "--position-embedding-type", "rope", "--mtp-num-layers", "1"};
  flags.insert(flags.end(), more.begin(), more.end());
  return flags;
}

// Samples of their own lengths on as many of 4 ranks as they need, and more flags.
Flags chosen_degrees(const Flags& more = {}) {
  Flags flags = {"--hybrid-context-parallel",   "--variable-seq-lengths",
                 "--context-parallel-size",     "4",
                 "--max-seqlen-per-dp-cp-rank", "32",
                 "--calculate-per-token-loss"};
  flags.insert(flags.end(), more.begin(), more.end());
  return flags;
}

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

// Every rule of every feature, by its brief(): flags that break it.
const std::map<std::string, Flags> kBroken = {
    {"--num-layers-per-virtual-pipeline-stage and --num-virtual-stages-per-pipeline-rank exclude each other",
     {"--pipeline-model-parallel-size", "2", "--num-layers-per-virtual-pipeline-stage", "1",
      "--num-virtual-stages-per-pipeline-rank", "2"}},
    {"--context-parallel-cache-interval above 0 needs --context-parallel-kv-cache-policy",
     {"--context-parallel-size", "2", "--cp-comm-type", "p2p", "--context-parallel-cache-interval", "1"}},
    {"--use-ulysses-allgather-kv needs --group-query-attention",
     {"--context-parallel-size", "2", "--use-ulysses-allgather-kv"}},
    {"--context-parallel-kv-cache-policy and --recompute-mla-up-proj or --recompute-modules mla_up_proj exclude each "
     "other",
     latent({"--context-parallel-size", "2", "--cp-comm-type", "p2p", "--context-parallel-kv-cache-policy", "half",
             "--recompute-mla-up-proj"})},
    {"--context-parallel-size and --automated-pipeline or --automated-pipeline-perf exclude each other",
     {"--context-parallel-size", "2", "--pipeline-model-parallel-size", "2", "--automated-pipeline"}},
    {"--context-parallel-algo kvallgather_cp_algo, megatron_cp_algo or hybrid_cp_algo and --no-use-flash-attn or "
     "--optimization-level 0 exclude each other",
     {"--context-parallel-size", "2", "--cp-comm-type", "p2p", "--no-use-flash-attn"}},
    {"--hybrid-context-parallel needs --max-seqlen-per-dp-cp-rank",
     {"--hybrid-context-parallel", "--reset-attention-mask", "--calculate-per-token-loss"}},
    {"--hybrid-context-parallel needs --reset-attention-mask, --dataloader-inter-document-masking or "
     "--variable-seq-lengths",
     {"--hybrid-context-parallel", "--max-seqlen-per-dp-cp-rank", "32", "--calculate-per-token-loss"}},
    {"--hybrid-context-parallel needs --calculate-per-token-loss",
     {"--hybrid-context-parallel", "--max-seqlen-per-dp-cp-rank", "32", "--variable-seq-lengths"}},
    {"--hybrid-context-parallel, --variable-seq-lengths and --context-parallel-size above 1 and --cp-window-size above "
     "1 "
     "exclude each other",
     chosen_degrees({"--cp-comm-type", "p2p", "--cp-window-size", "2"})},
    {"--hybrid-context-parallel, --variable-seq-lengths and --context-parallel-size above 1 and several chunks of "
     "layers "
     "on a stage exclude each other",
     chosen_degrees({"--pipeline-model-parallel-size", "2", "--num-virtual-stages-per-pipeline-rank", "2"})},
    {"--hybrid-context-parallel, --variable-seq-lengths and --context-parallel-size above 1 and --mtp-num-layers "
     "exclude "
     "each other",
     further(chosen_degrees())},
    {"--context-parallel-algo adaptive_cp_algo or hybrid_adaptive_cp_algo and --no-use-flash-attn or "
     "--optimization-level 0 exclude each other",
     {"--context-parallel-size", "2", "--context-parallel-algo", "adaptive_cp_algo", "--no-use-flash-attn"}},
    {"--context-parallel-algo adaptive_cp_algo or hybrid_adaptive_cp_algo and --sliding-window or "
     "--interleave-sliding-window exclude each other",
     {"--context-parallel-size", "2", "--context-parallel-algo", "adaptive_cp_algo", "--sliding-window", "4"}},
    {"--context-parallel-algo adaptive_cp_algo or hybrid_adaptive_cp_algo and --position-embedding-type alibi exclude "
     "each other",
     {"--context-parallel-size", "2", "--context-parallel-algo", "adaptive_cp_algo", "--position-embedding-type",
      "alibi"}},
    {"--context-parallel-algo adaptive_cp_algo or hybrid_adaptive_cp_algo and --attention-dropout above 0 exclude each "
     "other",
     {"--context-parallel-size", "2", "--context-parallel-algo", "adaptive_cp_algo", "--attention-dropout", "0.1"}},
    {"--schedules-method needs --pipeline-model-parallel-size above 1", {"--schedules-method", "zb-h1"}},
    {"--schedules-method and --num-layers-per-virtual-pipeline-stage exclude each other",
     {"--schedules-method", "zb-v", "--pipeline-model-parallel-size", "2", "--num-layers-per-virtual-pipeline-stage",
      "1"}},
    {"--schedules-method and --num-virtual-stages-per-pipeline-rank exclude each other",
     {"--schedules-method", "zb-v", "--pipeline-model-parallel-size", "2", "--num-virtual-stages-per-pipeline-rank",
      "2"}},
    {"--dualpipev-dw-detach needs --schedules-method dualpipev",
     {"--dualpipev-dw-detach", "--schedules-method", "zb-v", "--pipeline-model-parallel-size", "2"}},
    {"--delay-wgrad-compute needs --moe-fb-overlap, or --schedules-method dualpipev and --tensor-model-parallel-size "
     "above 1",
     {"--delay-wgrad-compute", "--schedules-method", "dualpipev", "--pipeline-model-parallel-size", "2"}},
    {"--use-nanopipe and --schedules-method exclude each other",
     {"--use-nanopipe", "--schedules-method", "zb-v", "--pipeline-model-parallel-size", "2"}},
    {"--use-nanopipe needs virtual stages, such as --num-virtual-stages-per-pipeline-rank 2",
     {"--use-nanopipe", "--pipeline-model-parallel-size", "2"}},
    {"--microbatch-group-size-per-virtual-pipeline-stage and --schedules-method exclude each other",
     {"--microbatch-group-size-per-virtual-pipeline-stage", "4", "--schedules-method", "zb-v",
      "--pipeline-model-parallel-size", "2"}},
    {"--microbatch-group-size-per-virtual-pipeline-stage needs virtual stages, such as "
     "--num-virtual-stages-per-pipeline-rank 2",
     {"--microbatch-group-size-per-virtual-pipeline-stage", "4", "--pipeline-model-parallel-size", "2"}},
    {"--automated-pipeline and --automated-pipeline-perf exclude each other",
     {"--automated-pipeline", "--automated-pipeline-perf", "--pipeline-model-parallel-size", "2"}},
    {"--automated-pipeline or --automated-pipeline-perf needs --pipeline-model-parallel-size above 1",
     {"--automated-pipeline"}},
    {"--save-memory-ratio needs --automated-pipeline",
     {"--save-memory-ratio", "0.2", "--automated-pipeline-perf", "--pipeline-model-parallel-size", "2"}},
    {"--automated-pipeline or --automated-pipeline-perf and --num-virtual-stages-per-pipeline-rank or "
     "--num-layers-per-virtual-pipeline-stage exclude each other",
     {"--automated-pipeline", "--pipeline-model-parallel-size", "2", "--num-virtual-stages-per-pipeline-rank", "2"}},
    {"--automated-pipeline or --automated-pipeline-perf and --schedules-method exclude each other",
     {"--automated-pipeline-perf", "--pipeline-model-parallel-size", "2", "--schedules-method", "zb-h1"}},
    {"--automated-pipeline or --automated-pipeline-perf and --defer-embedding-wgrad-compute exclude each other",
     {"--automated-pipeline", "--pipeline-model-parallel-size", "2", "--defer-embedding-wgrad-compute"}},
    {"--automated-pipeline or --automated-pipeline-perf and --recompute-granularity full exclude each other",
     {"--automated-pipeline", "--pipeline-model-parallel-size", "2", "--checkpoint-activations"}},
    {"--automated-pipeline or --automated-pipeline-perf and --recompute-module-list exclude each other",
     {"--automated-pipeline", "--pipeline-model-parallel-size", "2", "--recompute-module-list", "1,0"}},
    {"--automated-pipeline or --automated-pipeline-perf and --non-persistent-ckpt-type local exclude each other",
     {"--automated-pipeline", "--pipeline-model-parallel-size", "2", "--non-persistent-ckpt-type", "local",
      "--non-persistent-local-ckpt-dir", "d"}},
    {"--recompute-module-list and --recompute-granularity full exclude each other",
     {"--recompute-module-list", "1,0", "--pipeline-model-parallel-size", "2", "--checkpoint-activations"}},
    {"--recompute-module-list and several chunks of layers a stage exclude each other",
     {"--recompute-module-list", "1,0", "--pipeline-model-parallel-size", "2", "--num-virtual-stages-per-pipeline-rank",
      "2"}},
    {"--defer-embedding-wgrad-compute needs --pipeline-model-parallel-size above 1",
     {"--defer-embedding-wgrad-compute"}},
    {"--defer-embedding-wgrad-compute and --loss-chunk-size exclude each other",
     {"--defer-embedding-wgrad-compute", "--pipeline-model-parallel-size", "2", "--loss-chunk-size", "8"}},
    {"--wgrad-deferral-limit needs --defer-embedding-wgrad-compute", {"--wgrad-deferral-limit", "2"}},
    {"--recompute-in-bubble and --recompute-in-advance exclude each other",
     {"--recompute-in-bubble", "--recompute-in-advance"}},
    {"--recompute-in-bubble needs virtual stages, such as --num-virtual-stages-per-pipeline-rank 2",
     {"--recompute-in-bubble"}},
    {"--recompute-in-advance needs virtual stages, such as --num-virtual-stages-per-pipeline-rank 2",
     {"--recompute-in-advance", "--schedules-method", "zb-v", "--pipeline-model-parallel-size", "2"}},
    {"--recompute-in-bubble and --recompute-granularity exclude each other",
     {"--recompute-in-bubble", "--recompute-granularity", "selective", "--pipeline-model-parallel-size", "2",
      "--num-virtual-stages-per-pipeline-rank", "2"}},
    {"--recompute-in-advance needs --recompute-granularity full",
     {"--recompute-in-advance", "--pipeline-model-parallel-size", "2", "--num-virtual-stages-per-pipeline-rank", "2"}},
    {"--recompute-in-advance and --recompute-method uniform exclude each other",
     {"--recompute-in-advance", "--pipeline-model-parallel-size", "2", "--num-virtual-stages-per-pipeline-rank", "2",
      "--checkpoint-activations"}},
    {"--gradients-mean needs --parallel-mode data_parallel", {"--gradients-mean"}},
    {"--parallel-mode and --tensor-model-parallel-size above 1 exclude each other",
     {"--parallel-mode", "data_parallel", "--tensor-model-parallel-size", "2"}},
    {"--parallel-mode and --pipeline-model-parallel-size above 1 exclude each other",
     {"--parallel-mode", "data_parallel", "--pipeline-model-parallel-size", "2"}},
    {"--moe-z-loss-coeff needs --num-experts", {"--moe-z-loss-coeff", "1e-3"}},
    {"--moe-expert-capacity-factor needs --num-experts", {"--moe-expert-capacity-factor", "1"}},
    {"--moe-input-jitter-eps needs --num-experts", {"--moe-input-jitter-eps", "0.01"}},
    {"--moe-zero-memory needs --num-experts", {"--moe-zero-memory", "level0"}},
    {"--moe-layer-recompute needs --num-experts", {"--moe-layer-recompute"}},
    {"--moe-adaptive-recompute-activation needs --num-experts", {"--moe-adaptive-recompute-activation"}},
    {"--moe-zero-memory-num-layers needs --moe-zero-memory level1", {"--moe-zero-memory-num-layers", "1"}},
    {"--moe-zero-memory and --moe-layer-recompute or --recompute-modules moe exclude each other",
     {"--disable-bias-linear", "--num-experts", "4", "--moe-router-topk", "2", "--moe-zero-memory", "level0",
      "--moe-layer-recompute"}},
    {"--first-k-dense-replace needs --num-experts", {"--first-k-dense-replace", "1"}},
    {"--n-shared-experts needs --num-experts", {"--n-shared-experts", "1"}},
    {"--use-ascend-coc and --use-ascend-mc2 exclude each other", {"--use-ascend-coc", "--use-ascend-mc2"}},
    {"--use-ascend-mc2 needs --sequence-parallel", {"--use-ascend-mc2", "--tensor-model-parallel-size", "2"}},
    {"--sparse-mode 5 or 6 needs --prefix-length", {"--sparse-mode", "6"}},
    {"--prefix-length needs --sparse-mode 5 or 6", {"--prefix-length", "4"}},
    {"--sparse-mode 5 or 6 and --reset-attention-mask or --dataloader-inter-document-masking exclude each other",
     {"--sparse-mode", "5", "--prefix-length", "4", "--dataloader-inter-document-masking"}},
    {"--sparse-mode 5 or 6 and --variable-seq-lengths exclude each other",
     {"--sparse-mode", "5", "--prefix-length", "4", "--variable-seq-lengths"}},
    {"--sparse-mode 5 or 6 and --sliding-window or --interleave-sliding-window exclude each other",
     {"--sparse-mode", "5", "--prefix-length", "4", "--sliding-window", "5"}},
    {"--sparse-mode 5 or 6 and --position-embedding-type alibi exclude each other",
     {"--sparse-mode", "5", "--prefix-length", "4", "--position-embedding-type", "alibi"}},
    {"--sparse-mode 5 or 6 and --generate exclude each other",
     {"--sparse-mode", "5", "--prefix-length", "4", "--generate", "a"}},
    {"--attention-mask-grid and --reset-attention-mask or --dataloader-inter-document-masking exclude each other",
     {"--attention-mask-grid", kGrid, "--dataloader-inter-document-masking"}},
    {"--attention-mask-grid and --variable-seq-lengths exclude each other",
     {"--attention-mask-grid", kGrid, "--variable-seq-lengths"}},
    {"--attention-mask-grid and --sliding-window or --interleave-sliding-window exclude each other",
     {"--attention-mask-grid", kGrid, "--sliding-window", "5"}},
    {"--attention-mask-grid and --sparse-mode 5 or 6 exclude each other",
     {"--attention-mask-grid", kGrid, "--sparse-mode", "5", "--prefix-length", "4"}},
    {"--attention-mask-grid and --generate exclude each other", {"--attention-mask-grid", kGrid, "--generate", "a"}},
    {"--attention-mask-type general and --position-embedding-type alibi exclude each other",
     {"--attention-mask-grid", kGrid, "--attention-mask-type", "general", "--position-embedding-type", "alibi"}},
    {"--attention-mask-type general and --mtp-num-layers exclude each other",
     further({"--attention-mask-grid", kGrid, "--attention-mask-type", "general"})},
    {"--expert-model-parallel-size needs --num-experts", {"--expert-model-parallel-size", "2"}},
    {"--expert-tensor-parallel-size needs --num-experts", {"--expert-tensor-parallel-size", "2"}},
    {"--moe-tp-extend-ep and --expert-tensor-parallel-size exclude each other",
     {"--disable-bias-linear", "--num-experts", "4", "--moe-tp-extend-ep", "--expert-tensor-parallel-size", "2"}},
    {"--moe-alltoall-overlap-comm needs --moe-token-dispatcher-type alltoall",
     {"--moe-alltoall-overlap-comm", "--moe-token-dispatcher-type", "allgather"}},
    {"--moe-allgather-overlap-comm needs --moe-token-dispatcher-type allgather", {"--moe-allgather-overlap-comm"}},
    {"--moe-experts-pipeline-degree needs --num-experts", {"--moe-experts-pipeline-degree", "2"}},
    {"--moe-experts-pipeline-degree needs --moe-token-dispatcher-type alltoall",
     {"--disable-bias-linear", "--num-experts", "4", "--moe-experts-pipeline-degree", "2",
      "--moe-token-dispatcher-type", "allgather"}},
    {"--moe-experts-pipeline-degree and --moe-hierarchical-alltoallv or --moe-fb-overlap exclude each other",
     {"--disable-bias-linear", "--num-experts", "4", "--moe-experts-pipeline-degree", "2", "--moe-fb-overlap"}},
    {"--moe-experts-pipeline-degree and --moe-zero-memory, --moe-adaptive-recompute-activation, --moe-layer-recompute "
     "or "
     "--recompute-modules moe exclude each other",
     {"--disable-bias-linear", "--num-experts", "4", "--moe-experts-pipeline-degree", "2", "--moe-layer-recompute"}},
    {"--moe-hierarchical-alltoallv needs --moe-tp-extend-ep", {"--moe-hierarchical-alltoallv"}},
    {"--moe-hierarchical-alltoallv needs --moe-token-dispatcher-type alltoall",
     {"--moe-hierarchical-alltoallv", "--moe-tp-extend-ep", "--moe-token-dispatcher-type", "allgather"}},
    {"--moe-hierarchical-alltoallv and --moe-fb-overlap exclude each other",
     {"--moe-hierarchical-alltoallv", "--moe-tp-extend-ep", "--moe-fb-overlap", "--disable-bias-linear",
      "--num-experts", "4"}},
    {"--moe-fb-overlap needs --num-experts",
     {"--moe-fb-overlap", "--schedules-method", "dualpipev", "--pipeline-model-parallel-size", "2"}},
    {"--moe-fb-overlap needs --schedules-method dualpipev, virtual stages, such as "
     "--num-virtual-stages-per-pipeline-rank "
     "2, or --pipeline-model-parallel-size 1",
     {"--overlap-moe-expert-parallel-comm", "--disable-bias-linear", "--num-experts", "4",
      "--pipeline-model-parallel-size", "2"}},
    {"--moe-fb-overlap needs --moe-token-dispatcher-type alltoall",
     {"--moe-fb-overlap", "--disable-bias-linear", "--num-experts", "4", "--schedules-method", "dualpipev",
      "--pipeline-model-parallel-size", "2", "--moe-token-dispatcher-type", "allgather"}},
    {"--moe-fb-overlap and --use-nanopipe exclude each other",
     {"--moe-fb-overlap", "--disable-bias-linear", "--num-experts", "4", "--use-nanopipe",
      "--num-virtual-stages-per-pipeline-rank", "2", "--pipeline-model-parallel-size", "2"}},
    {"--moe-fb-overlap and --recompute-in-bubble or --recompute-in-advance exclude each other",
     {"--moe-fb-overlap", "--disable-bias-linear", "--num-experts", "4", "--recompute-in-bubble",
      "--num-virtual-stages-per-pipeline-rank", "2", "--pipeline-model-parallel-size", "2"}},
    {"--moe-fb-overlap and --data-parallel-sharding-strategy optim_grads or optim_grads_params exclude each other",
     {"--moe-fb-overlap", "--disable-bias-linear", "--num-experts", "4", "--num-virtual-stages-per-pipeline-rank", "2",
      "--pipeline-model-parallel-size", "2", "--use-megatron-fsdp"}},
    {"--recompute-mla-up-proj or --recompute-modules mla_up_proj needs --multi-latent-attention",
     {"--recompute-mla-up-proj"}},
    {"--multi-latent-attention and --rotary-interleaved exclude each other", latent({"--rotary-interleaved"})},
    {"--multi-latent-attention and --use-nanopipe-swap exclude each other",
     latent({"--use-nanopipe", "--use-nanopipe-swap", "--pipeline-model-parallel-size", "2",
             "--num-virtual-stages-per-pipeline-rank", "2"})},
    {"--recompute-mla-up-proj or --recompute-modules mla_up_proj and --swap-attention exclude each other",
     latent({"--recompute-mla-up-proj", "--swap-attention"})},
    {"--multi-latent-attention and --rotary-percent below 1 exclude each other", latent({"--rotary-percent", "0.5"})},
    {"--mtp-num-layers and --position-embedding-type learned_absolute exclude each other",
     {"--disable-bias-linear", "--mtp-num-layers", "1"}},
    {"--mtp-num-layers and --defer-embedding-wgrad-compute exclude each other",
     further({"--defer-embedding-wgrad-compute", "--pipeline-model-parallel-size", "2"})},
    {"--mtp-num-layers and --automated-pipeline exclude each other",
     further({"--automated-pipeline", "--pipeline-model-parallel-size", "2"})},
    {"--mtp-num-layers and --save-tensors (or an interval of tensors) exclude each other",
     further({"--save-tensors", "1", "--save-tensors-dir", "d"})},
    {"--data-parallel-sharding-strategy optim_grads or optim_grads_params and --mtp-mem-efficient-logits exclude each "
     "other",
     further(
         {"--use-megatron-fsdp", "--data-parallel-sharding-strategy", "optim_grads", "--mtp-mem-efficient-logits"})},
    {"--fix-router and --moe-router-force-load-balancing exclude each other",
     {"--disable-bias-linear", "--num-experts", "4", "--fix-router", "--moe-router-force-load-balancing"}},
    {"--fp16 and --bf16 exclude each other", {"--fp16", "--bf16"}},
    {"--loss-scale needs --fp16", {"--loss-scale", "8"}},
    {"--ddp-bucket-size and --ddp-num-buckets exclude each other",
     {"--overlap-grad-reduce", "--ddp-bucket-size", "9", "--ddp-num-buckets", "2"}},
    {"--overlap-param-gather needs --use-distributed-optimizer", {"--overlap-grad-reduce", "--overlap-param-gather"}},
    {"--overlap-param-gather needs --overlap-grad-reduce", {"--use-distributed-optimizer", "--overlap-param-gather"}},
    {"--overlap-param-gather-with-optimizer-step needs --overlap-param-gather",
     {"--use-distributed-optimizer", "--overlap-grad-reduce", "--overlap-param-gather-with-optimizer-step"}},
    {"--overlap-param-gather-with-optimizer-step and --data-parallel-sharding-strategy optim_grads_params exclude each "
     "other",
     {"--use-megatron-fsdp", "--overlap-param-gather", "--overlap-param-gather-with-optimizer-step"}},
    {"--num-distributed-optimizer-instances needs --use-distributed-optimizer",
     {"--num-distributed-optimizer-instances", "2"}},
    {"--optimizer-weight-shard-size needs --use-distributed-optimizer", {"--optimizer-weight-shard-size", "4"}},
    {"--outer-dp-sharding-strategy optim needs --data-parallel-sharding-strategy optim_grads_params",
     {"--use-distributed-optimizer", "--num-distributed-optimizer-instances", "2", "--outer-dp-sharding-strategy",
      "optim"}},
    {"--optimizer-level needs --enable-parallel-optimizer", {"--optimizer-level", "level2"}},
    {"--parallel-optimizer-threshold needs --use-distributed-optimizer", {"--parallel-optimizer-threshold", "64"}},
    {"--layerzero needs --layerzero-config", {"--layerzero"}},
    {"--layerzero-config needs --layerzero", {"--layerzero-config", "layerzero.yml"}},
    {"--torch-fsdp2-no-reshard-after-forward needs --use-torch-fsdp2", {"--torch-fsdp2-no-reshard-after-forward"}},
    {"--gradient-accumulation-steps and --rampup-batch-size or --step-batch-size-schedule exclude each other",
     {"--gradient-accumulation-steps", "2", "--rampup-batch-size", "8", "8", "64"}},
    {"--data-parallel-sharding-strategy optim_grads_params and --packed-weights exclude each other",
     {"--use-megatron-fsdp", "--packed-weights"}},
    {"--data-parallel-sharding-strategy optim_grads_params and --check-weight-hash-across-dp-replicas-interval exclude "
     "each other",
     {"--use-megatron-fsdp", "--check-weight-hash-across-dp-replicas-interval", "5"}},
    {"--data-parallel-sharding-strategy optim_grads_params and --generate exclude each other",
     {"--use-megatron-fsdp", "--generate", "text"}},
    {"--data-parallel-sharding-strategy optim_grads or optim_grads_params and --loss-chunk-size exclude each other",
     {"--use-megatron-fsdp", "--data-parallel-sharding-strategy", "optim_grads", "--loss-chunk-size", "8"}},
    {"--data-parallel-sharding-strategy optim_grads or optim_grads_params and --schedules-method dualpipev exclude "
     "each "
     "other",
     {"--use-custom-fsdp", "--schedules-method", "dualpipev", "--pipeline-model-parallel-size", "2"}},
    {"--data-parallel-sharding-strategy optim_grads or optim_grads_params and --automated-pipeline or "
     "--automated-pipeline-perf exclude each other",
     {"--use-megatron-fsdp", "--automated-pipeline", "--pipeline-model-parallel-size", "2"}},
    {"--grad-reduce-in-bf16 needs --bf16", {"--grad-reduce-in-bf16"}},
    {"--ddp-average-in-collective and --calculate-per-token-loss exclude each other",
     {"--ddp-average-in-collective", "--calculate-per-token-loss"}},
    {"--ddp-average-in-collective and --parallel-mode exclude each other",
     {"--ddp-average-in-collective", "--parallel-mode", "data_parallel"}},
    {"--async-log-allreduce and --calculate-per-token-loss exclude each other",
     {"--async-log-allreduce", "--calculate-per-token-loss"}},
    {"--reuse-fp32-param and --optimizer sgd exclude each other",
     {"--bf16", "--reuse-fp32-param", "--optimizer", "sgd"}},
    {"--reuse-fp32-param needs --bf16", {"--reuse-fp32-param"}},
    {"--reuse-fp32-param and --ckpt-lazy-snapshot exclude each other",
     {"--bf16", "--reuse-fp32-param", "--ckpt-lazy-snapshot"}},
    {"--recompute-modules needs --recompute-granularity selective", {"--recompute-modules", "mlp"}},
    {"--recompute-num-layers needs --recompute-granularity full or --swap-attention", {"--recompute-num-layers", "1"}},
    {"--swap-attention and --no-use-flash-attn or --optimization-level 0 exclude each other",
     {"--swap-attention", "--no-use-flash-attn"}},
    {"--swap-modules needs --swap-attention", {"--swap-modules", "input_norm"}},
    {"--swap-dir needs --swap-attention, --use-nanopipe-swap or --swap-optimizer", {"--swap-dir", "d"}},
    {"--swap-optimizer-times needs --swap-optimizer", {"--swap-optimizer-times", "4"}},
    {"--swap-optimizer and --reuse-fp32-param exclude each other",
     {"--swap-optimizer", "--bf16", "--reuse-fp32-param"}},
    {"--swap-optimizer and --optimizer sgd exclude each other", {"--swap-optimizer", "--optimizer", "sgd"}},
    {"--swap-optimizer and --overlap-param-gather-with-optimizer-step exclude each other",
     {"--swap-optimizer", "--use-distributed-optimizer", "--overlap-grad-reduce", "--overlap-param-gather",
      "--overlap-param-gather-with-optimizer-step"}},
    {"--swap-optimizer and --log-params-norm exclude each other", {"--swap-optimizer", "--log-params-norm"}},
    {"--swap-optimizer and --ckpt-lazy-snapshot exclude each other", {"--swap-optimizer", "--ckpt-lazy-snapshot"}},
    {"--swap-min-tensor-kib needs --swap-attention or --use-nanopipe-swap", {"--swap-min-tensor-kib", "4"}},
    {"--use-nanopipe-swap needs --use-nanopipe",
     {"--use-nanopipe-swap", "--pipeline-model-parallel-size", "2", "--num-virtual-stages-per-pipeline-rank", "2"}},
    {"--enable-recompute-layers-per-pp-rank and --recompute-method uniform exclude each other",
     {"--enable-recompute-layers-per-pp-rank", "--checkpoint-activations"}},
    {"--recompute-norm and --recompute-method uniform exclude each other",
     {"--recompute-norm", "--checkpoint-activations"}},
    {"--recompute-norm-num-layers needs --recompute-norm", {"--recompute-norm-num-layers", "1"}},
    {"--recompute-activation-function and --recompute-method uniform exclude each other",
     {"--recompute-activation-function", "--checkpoint-activations"}},
    {"--recompute-activation-function-num-layers needs --recompute-activation-function",
     {"--recompute-activation-function-num-layers", "1"}},
    {"--no-async-save and --ckpt-writer process exclude each other", {"--no-async-save", "--ckpt-writer", "process"}},
    {"--no-async-save and --ckpt-lazy-snapshot exclude each other", {"--no-async-save", "--ckpt-lazy-snapshot"}},
    {"--ckpt-gather and --ckpt-writer process exclude each other", {"--ckpt-gather", "--ckpt-writer", "process"}},
    {"--non-persistent-save-interval needs --non-persistent-ckpt-type local", {"--non-persistent-save-interval", "1"}},
    {"--replication needs --non-persistent-ckpt-type local", {"--replication", "--replication-jump", "4"}},
    {"--replication needs --replication-jump",
     {"--non-persistent-ckpt-type", "local", "--non-persistent-local-ckpt-dir", "d", "--replication"}},
    {"--profile-with-memory needs --profile-with-cpu", {"--profile-with-memory"}},
    {"--flight-recorder-dump-path needs --flight-recorder",
     {"--flight-recorder-dump-path", "d", "--no-flight-recorder"}},
    {"--moe-routing-trace-path needs --num-experts", {"--moe-routing-trace-path", "d"}},
    {"--moe-routing-trace-max-training-iters needs --moe-routing-trace-path",
     {"--disable-bias-linear", "--num-experts", "4", "--moe-routing-trace-max-training-iters", "2"}},
    {"--enable-expert-placement needs --expert-model-parallel-size above 1",
     {"--disable-bias-linear", "--num-experts", "4", "--enable-expert-placement"}},
    {"--expert-placement-freq needs --enable-expert-placement", {"--expert-placement-freq", "10"}},
    {"--enable-fine-grained-expert-placement needs --enable-expert-placement",
     {"--enable-fine-grained-expert-placement"}},
    {"--fine-grained-expert-placement-thre needs --enable-fine-grained-expert-placement",
     {"--fine-grained-expert-placement-thre", "0.1"}},
    {"--print-expert-load needs --num-experts", {"--print-expert-load"}},
    {"--enable-expert-placement and --non-persistent-ckpt-type local exclude each other",
     {"--disable-bias-linear", "--num-experts", "4", "--expert-model-parallel-size", "2", "--enable-expert-placement",
      "--non-persistent-ckpt-type", "local", "--non-persistent-local-ckpt-dir", "d"}},
    {"--enable-expert-placement and --outer-dp-sharding-strategy optim exclude each other",
     {"--disable-bias-linear", "--num-experts", "4", "--expert-model-parallel-size", "2", "--enable-expert-placement",
      "--use-megatron-fsdp", "--data-parallel-sharding-strategy", "optim_grads_params",
      "--num-distributed-optimizer-instances", "2", "--outer-dp-sharding-strategy", "optim"}},
    {"--straggler-minmax-count needs --log-straggler", {"--straggler-minmax-count", "2"}},
    {"--save-tensors (or an interval of tensors) needs --save-tensors-dir", {"--save-tensors", "1"}},
    {"--save-tensors-dir needs --save-tensors (or an interval of tensors)", {"--save-tensors-dir", "d"}},
    {"--save-tensors-filter needs --save-tensors (or an interval of tensors)", {"--save-tensors-filter", "x"}},
    {"--save-tensors (or an interval of tensors) and --skip-train exclude each other",
     {"--save-tensors", "1", "--save-tensors-dir", "d", "--skip-train"}},
    {"--save-tensors (or an interval of tensors) and --variable-seq-lengths exclude each other",
     {"--save-tensors", "1", "--save-tensors-dir", "d", "--variable-seq-lengths"}},
    {"--save-tensors (or an interval of tensors) and --hybrid-context-parallel exclude each other",
     {"--save-tensors", "1", "--save-tensors-dir", "d", "--hybrid-context-parallel", "--max-seqlen-per-dp-cp-rank",
      "32", "--calculate-per-token-loss", "--reset-attention-mask"}},
    {"--recompute-type needs --recompute-module-list", {"--recompute-type", "0"}},
    {"--recompute-module-list and --recompute-num-layers exclude each other",
     {"--recompute-module-list", "1,1", "--pipeline-model-parallel-size", "2", "--recompute-num-layers", "1",
      "--swap-attention"}},
    {"--automated-pipeline or --automated-pipeline-perf and --recompute-num-layers exclude each other",
     {"--automated-pipeline", "--pipeline-model-parallel-size", "2", "--recompute-num-layers", "1",
      "--swap-attention"}},
    {"--save-tensors-perturbation needs --save-tensors (or an interval of tensors)",
     {"--save-tensors-perturbation", "1e-6"}},
};

TEST(Features, BrokenRulesAreErrorsThatNameBothFlags) {
  size_t num_rules = 0;
  for (const Feature& feature : features()) {
    for (const Rule& rule : feature.rules) {
      ++num_rules;
      const auto found = kBroken.find(rule.brief());
      ASSERT_NE(found, kBroken.end()) << rule.brief() << " has no row in kBroken";
      EXPECT_EQ(refusal(found->second), rule.text());
      EXPECT_NE(rule.text().find(rule.flag), std::string::npos);
      EXPECT_NE(rule.text().find(rule.other), std::string::npos);
    }
  }
  EXPECT_EQ(num_rules, kBroken.size());
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

TEST(Features, ValuesOutOfRangeAreErrorsThatNameTheFlag) {
  const std::vector<Flags> cases = {
      {"--save-tensors", "99", "--save-tensors-dir", "d"},
      {"--save-tensors-dir", "d", "--save-tensors", "1", "--save", "x/../d"},
      {"--num-layers-per-virtual-pipeline-stage", "0", "--pipeline-model-parallel-size", "2"},
      {"--num-virtual-stages-per-pipeline-rank", "9", "--pipeline-model-parallel-size", "2"},
      {"--microbatch-group-size-per-virtual-pipeline-stage", "1", "--pipeline-model-parallel-size", "2",
       "--num-virtual-stages-per-pipeline-rank", "2"},
      {"--wgrad-deferral-limit", "-1", "--defer-embedding-wgrad-compute", "--pipeline-model-parallel-size", "2"},
      {"--noop-layers", "0,1,2,3"},
      {"--noop-layers", "1,0"},
      {"--noop-layers", "4"},
      {"--noop-layers", "0", "--pipeline-model-parallel-size", "2", "--num-layer-list", "1,3"},
      {"--schedules-method", "gpipe", "--pipeline-model-parallel-size", "2"},
      {"--schedules-method", "zb-v", "--pipeline-model-parallel-size", "4", "--num-layers", "4"},
      {"--schedules-method", "zb-h1", "--pipeline-model-parallel-size", "2", "--pipeline-model-parallel-layout",
       "Et|t|t|tL"},
      {"--schedules-method", "dualpipev", "--pipeline-model-parallel-size", "2", "--global-batch-size", "12"},
      {"--num-layer-list", "1,2", "--pipeline-model-parallel-size", "2"},
      {"--num-layer-list", "1,2,1", "--pipeline-model-parallel-size", "2"},
      {"--num-layer-list", "1,3", "--pipeline-model-parallel-size", "2", "--pipeline-model-parallel-layout", "Et|tttL"},
      {"--num-layers-per-virtual-pipeline-stage", "2", "--num-layer-list", "1,3", "--pipeline-model-parallel-size",
       "2"},
      {"--num-layer-list", "1,3", "--automated-pipeline", "--pipeline-model-parallel-size", "2"},
      {"--noop-layers", "0,1", "--automated-pipeline", "--pipeline-model-parallel-size", "2"},
      {"--standalone-embedding-stage", "--automated-pipeline-perf", "--pipeline-model-parallel-size", "2"},
      {"--save-memory-ratio", "1", "--automated-pipeline", "--pipeline-model-parallel-size", "2"},
      {"--recompute-module-list", "1,0,0", "--pipeline-model-parallel-size", "2"},
      {"--recompute-type", "1", "--recompute-module-list", "1,0", "--pipeline-model-parallel-size", "2"},
      {"--recompute-type", "3", "--recompute-module-list", "1,0", "--pipeline-model-parallel-size", "2"},
      {"--pipeline-model-parallel-layout", "Et|ttL", "--pipeline-model-parallel-size", "2"},
      {"--pipeline-model-parallel-layout", "Et|tL", "--pipeline-model-parallel-size", "2"},
      {"--pipeline-model-parallel-layout", "Et|tt|tL", "--pipeline-model-parallel-size", "2"},
      {"--pipeline-model-parallel-layout", "Et|tttmL", "--pipeline-model-parallel-size", "2"},
      {"--decoder-first-pipeline-num-layers", "2", "--pipeline-model-parallel-size", "4"},
      {"--decoder-last-pipeline-num-layers", "0", "--pipeline-model-parallel-size", "2"},
      {"--account-for-embedding-in-pipeline-split", "--pipeline-model-parallel-size", "2", "--num-layer-list", "1,3"},
      {"--standalone-embedding-stage", "--pipeline-model-parallel-size", "4"},
      {"--optimization-level", "3"},
      {"--recompute-norm", "--optimization-level", "1"},
      {"--schedules-method", "zb-h1", "--pipeline-model-parallel-size", "2", "--optimization-level", "0"},
      {"--parallel-mode", "stand_alone"},
      {"--parallel-mode", "auto_parallel"},
      {"--parallel-mode", "no_such_mode"},
      {"--loss-scale", "0", "--fp16"},
      {"--min-loss-scale", "0"},
      {"--loss-scale-window", "0"},
      {"--hysteresis", "0"},
      {"--recompute-granularity", "half"},
      {"--recompute-granularity", "full"},
      {"--recompute-method", "none", "--recompute-granularity", "full"},
      {"--recompute-norm-num-layers", "-1", "--recompute-norm"},
      {"--recompute-activation-function-num-layers", "-1", "--recompute-activation-function"},
      {"--swap-modules", "self_attention,mlp", "--swap-attention"},
      {"--swap-min-tensor-kib", "-1", "--swap-attention"},
      {"--swap-optimizer-times", "0", "--swap-optimizer"},
      {"--loss-compute-mode", "fast"},
      {"--loss-chunk-size", "-1"},
      {"--max-seqlen-per-dp-cp-rank", "0"},
      {"--max-seqlen-per-dp-cp-rank", "31", "--hybrid-context-parallel", "--reset-attention-mask",
       "--calculate-per-token-loss"},
      {"--max-seqlen-per-dp-cp-rank", "7", "--hybrid-context-parallel", "--variable-seq-lengths",
       "--context-parallel-size", "4", "--calculate-per-token-loss"},
      chosen_degrees({"--context-parallel-algo", "adaptive_cp_algo", "--attention-dropout", "0"}),
      chosen_degrees({"--cp-comm-type", "a2a+p2p", "--ulysses-degree-in-cp", "2"}),
      chosen_degrees({"--cp-comm-type", "a2a", "p2p", "a2a", "a2a+p2p", "--ulysses-degree-in-cp", "2"}),
      {"--cp-window-size", "2", "--context-parallel-size", "4", "--cp-comm-type", "a2a", "p2p", "a2a", "a2a+p2p",
       "--ulysses-degree-in-cp", "2"},
      {"--mtp-loss-scaling-factor", "-1"},
      {"--moe-router-dtype", "bf16"},
      {"--spike-skip-factor", "1"},
      {"--spike-skip-window", "0"},
      {"--ckpt-overlap", "never"},
      {"--ckpt-staging-buffers", "3"},
      {"--ckpt-writer", "ink"},
      {"--ckpt-write-path", "tape"},
      {"--ckpt-writer-cpus", "x"},
      {"--ckpt-writer-nice", "20"},
      {"--ckpt-io-limit", "-1"},
      {"--ckpt-gather-progress", "never"},
      {"--ckpt-slice-size", "0"},
      {"--ckpt-compress-threads", "0"},
      {"--non-persistent-ckpt-type", "global"},
      {"--non-persistent-save-interval", "-1"},
      {"--non-persistent-local-ckpt-dir", "d"},
      {"--replication-factor", "1", "--replication", "--replication-jump", "1", "--non-persistent-ckpt-type", "local",
       "--non-persistent-local-ckpt-dir", "d"},
      {"--replication-jump", "3", "--replication", "--non-persistent-ckpt-type", "local",
       "--non-persistent-local-ckpt-dir", "d"},
      {"--profile-step-start", "20", "--profile"},
      {"--profile-level", "level3"},
      {"--flight-recorder-trace-buffer-size", "0"},
      {"--moe-routing-trace-max-training-iters", "0", "--moe-routing-trace-path", "d", "--num-experts", "4",
       "--disable-bias-linear"},
      {"--expert-placement-freq", "0", "--enable-expert-placement", "--expert-model-parallel-size", "2",
       "--disable-bias-linear", "--num-experts", "4"},
      {"--fine-grained-expert-placement-thre", "0", "--enable-fine-grained-expert-placement",
       "--enable-expert-placement", "--expert-model-parallel-size", "2", "--disable-bias-linear", "--num-experts", "4"},
      {"--straggler-minmax-count", "0", "--log-straggler"},
      {"--check-weight-hash-across-dp-replicas-interval", "-1"},
      {"--profile-format", "xml"},
      {"--profile-ranks", "8", "--profile"},
  };
  for (const Flags& flags : cases) {
    const std::string text = refusal(flags);
    EXPECT_NE(text.find(flags[0]), std::string::npos) << flags[0] << ": " << text;
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
