// The command line as users write it: Megatron's spellings are accepted, and each mistake gives one clear error.
#include "train/config.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/error.h"

namespace ms::train {
namespace {

const std::vector<std::string> kGood = {"--num-layers",
                                        "4",
                                        "--hidden-size",
                                        "64",
                                        "--num-attention-heads",
                                        "4",
                                        "--swiglu",
                                        "--normalization",
                                        "RMSNorm",
                                        "--position-embedding-type",
                                        "rope",
                                        "--disable-bias-linear",
                                        "--vocab-size",
                                        "257",
                                        "--seq-length",
                                        "32",
                                        "--train-iters",
                                        "10",
                                        "--lr",
                                        "1e-3"};

// Parses kGood plus `more` for a world of `ranks`. Returns the text of the error, or "" if there is none.
std::string refusal(std::vector<std::string> more, int ranks = 8) {
  TrainerConfig config;
  core::ConfigFields fields = config.fields();
  more.insert(more.begin(), kGood.begin(), kGood.end());
  try {
    fields.parse_flags(more);
    config.resolve_and_validate(ranks);
  } catch (const core::Error& e) {
    EXPECT_EQ(core::exit_code(e.code()), 2);
    return e.what();
  }
  return "";
}

TEST(Config, AcceptsMegatronsSpellings) {
  EXPECT_EQ(refusal({}), "");
  EXPECT_EQ(refusal({"--tensor-model-parallel-size", "2", "--sequence-parallel", "--npu-deterministic"}), "");
  EXPECT_EQ(refusal({"--pipeline-model-parallel-size", "2", "--num-layers-per-virtual-pipeline-stage", "1",
                     "--global-batch-size", "8", "--no-overlap-p2p-communication"}),
            "");
  EXPECT_EQ(refusal({"--tensor-model-parallel-size=2", "--no-async-save", "--eval-only", "--use-flash-attn"}), "");
  // Of scripts whose ranks share no sequence.
  EXPECT_EQ(refusal({"--context-parallel-size", "1", "--context-parallel-algo", "megatron_cp_algo"}), "");
  EXPECT_EQ(
      refusal({"--context-parallel-size", "2", "--cp-comm-type", "a2a", "--context-parallel-algo", "ulysses_cp_algo"}),
      "");
  EXPECT_EQ(refusal({"--attention-dropout", "0", "--context-parallel-size", "4", "--cp-comm-type", "a2a+p2p",
                     "--context-parallel-algo", "hybrid_cp_algo", "--ulysses-degree-in-cp", "2",
                     "--hierarchical-context-parallel-sizes", "2", "2"}),
            "");
  EXPECT_EQ(refusal({"--attention-dropout", "0", "--context-parallel-size", "4", "--ulysses-degree-in-cp", "2",
                     "--cp-comm-type", "a2a", "p2p", "all_gather", "a2a+p2p"}),
            "");
  EXPECT_EQ(refusal({"--num-query-groups", "4"}), "");  // as many as heads: the number without sharing
}

// Megatron's names and MindSpeed's mean the same.
TEST(Config, HybridContextParallelismHasTwoNames) {
  const ContextParallelConfig of_mindspeed{
      .context_parallel_size = 8, .context_parallel_algo = "hybrid_cp_algo", .ulysses_degree_in_cp = 4};
  const ContextParallelConfig of_megatron{
      .context_parallel_size = 8, .cp_comm_type = {"a2a+p2p"}, .hierarchical_context_parallel_sizes = {4, 2}};
  for (const ContextParallelConfig& config : {of_mindspeed, of_megatron}) {
    EXPECT_EQ(context_algorithm(config), layout::ContextAlgorithm::kHybrid);
    EXPECT_EQ(context_parts(config).ulysses, 4);
    EXPECT_EQ(context_parts(config).window, 1);
    EXPECT_EQ(context_parts(config).ring, 2);
  }
}

// Of layers of several types, groups are those of the ring behind an exchange of heads; other layers have all ranks as
// one part.
TEST(Config, LayersOfSeveralTypesHavePartsOfTheirOwn) {
  ContextParallelConfig config{
      .context_parallel_size = 8, .cp_comm_type = {"a2a", "p2p", "a2a+p2p", "all_gather"}, .ulysses_degree_in_cp = 2};
  EXPECT_EQ(context_algorithm(config), layout::ContextAlgorithm::kRing);
  const auto parts = [&](int64_t layer) {
    const layout::ContextParts of = context_parts_of_layer(config, layer);
    return std::vector<int>{of.ulysses, of.window, of.ring};
  };
  EXPECT_EQ(context_parts(config).ring, 4);
  EXPECT_EQ(parts(0), (std::vector<int>{8, 1, 1}));
  EXPECT_EQ(parts(1), (std::vector<int>{1, 1, 8}));
  EXPECT_EQ(parts(2), (std::vector<int>{2, 1, 4}));
  EXPECT_EQ(parts(3), (std::vector<int>{1, 1, 1}));
  config.cp_comm_type[2] = "a2a";
  config.cp_window_size = 4;
  EXPECT_EQ(parts(1), (std::vector<int>{1, 4, 2}));
  EXPECT_EQ(parts(2), (std::vector<int>{8, 1, 1}));
  const layout::SequenceShare share = sequence_share(config, 64, 1);
  EXPECT_EQ(share.segments()[1].first, 14 * 4) << "a part from the front and one from the back";
}

TEST(Config, ErrorsNameTheFlags) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{"--num-layer", "3"}, "--num-layers"},  // the nearest known flag
      {{"--tensor-model-parallel-size", "3"}, "world size 8"},
      {{"--global-batch-size", "9"}, "--global-batch-size"},
      {{"--micro-batch-size", "x"}, "--micro-batch-size"},
      {{"--num-layers", "5", "--pipeline-model-parallel-size", "2"}, "--num-layers"},
      {{"--pipeline-model-parallel-size", "2", "--num-layers-per-virtual-pipeline-stage", "3"},
       "--num-layers-per-virtual-pipeline-stage"},
      {{"--pipeline-model-parallel-size", "2", "--num-virtual-stages-per-pipeline-rank", "3"}, "3 virtual stages"},
      {{"--num-virtual-stages-per-pipeline-rank", "2"}, "--pipeline-model-parallel-size"},
      {{"--pipeline-model-parallel-size", "2", "--num-layers-per-virtual-pipeline-stage", "1",
        "--num-virtual-stages-per-pipeline-rank", "2"},
       "exclude each other"},
      {{"--pipeline-model-parallel-size", "2", "--num-virtual-stages-per-pipeline-rank", "2"}, "--global-batch-size 4"},
      {{"--lr-warmup-iters", "2", "--lr-warmup-fraction", "0.1"}, "exclude each other"},
      {{"--fp16", "--bf16"}, "exclude each other"},
      {{"--loss-scale", "1024"}, "--fp16"},
      {{"--fp16", "--hysteresis", "0"}, "--hysteresis"},
      {{"--reuse-fp32-param"}, "--reuse-fp32-param needs --bf16"},
      {{"--reuse-fp32-param", "--bf16", "--save", "x", "--ckpt-lazy-snapshot"}, "--ckpt-lazy-snapshot"},
      {{"--fp16", "--min-loss-scale", "8", "--initial-loss-scale", "4"}, "--initial-loss-scale"},
      {{"--spike-skip-factor", "0.5"}, "--spike-skip-factor"},
      {{"--iterations-to-skip", "0"}, "--iterations-to-skip"},
      {{"--exit-signal", "SIGUSR1"}, "--exit-signal-handler"},
      {{"--exit-signal-handler", "--exit-signal", "SIGKILL"}, "SIGUSR2"},
      {{"--tensorboard-log-interval", "0"}, "--tensorboard-log-interval"},
      {{"--profile-with-memory"}, "--profile-with-cpu"},
      {{"--recompute-granularity", "full"}, "--recompute-method"},
      {{"--recompute-granularity", "full", "--recompute-method", "uniform", "--recompute-num-layers", "1",
        "--recompute-norm"},
       "--recompute-method uniform"},
      {{"--recompute-norm-num-layers", "1"}, "--recompute-norm"},
      {{"--recompute-granularity", "selective", "--recompute-modules", "attn"}, "--recompute-modules attn"},
      {{"--recompute-modules", "mlp"}, "--recompute-modules needs --recompute-granularity selective"},
      {{"--recompute-granularity", "selective", "--recompute-num-layers", "2"}, "--recompute-num-layers"},
      {{"--recompute-activation-function-num-layers", "1"}, "--recompute-activation-function"},
      {{"--recompute-norm", "--recompute-norm-num-layers", "99"}, "--recompute-norm-num-layers 99: --num-layers is "},
      {{"--recompute-activation-function", "--recompute-activation-function-num-layers", "99"},
       "--recompute-activation-function-num-layers 99: --num-layers is "},
      {{"--swap-attention", "--swap-modules", "self_attention,,input_norm"},
       "--swap-modules \"self_attention,,input_norm\" has an empty name: expected self_attention"},
      {{"--optimizer", ""}, "--optimizer \"\": expected adam or sgd"},
      {{"--freeze-parameters", "*norm"}, "nothing stands before * that it could repeat"},
      {{"--use-checkpoint-args"}, "--load"},
      {{"--normalization", "BatchNorm"}, "--normalization BatchNorm: expected RMSNorm or LayerNorm"},
      {{"--normalization", ""}, "--normalization \"\": expected RMSNorm or LayerNorm"},
      {{"--position-embedding-type", ""}, "--position-embedding-type \"\": expected"},
      {{"--softmax-type", ""}, "--softmax-type \"\": expected"},
      {{"--rope-scaling-type", ""}, "--rope-scaling-type \"\": expected"},
      {{"--log-rank", ""}, "--log-rank \"\": expected 0 or all"},
      {{"--exit-signal", ""}, "--exit-signal \"\": expected"},
      {{"--geglu"}, "--swiglu"},
      {{"--squared-relu"}, "--swiglu"},
      {{"--hidden-dropout", "1"}, "--hidden-dropout"},
      {{"--sliding-window", "8", "--interleave-sliding-window", "8"}, "--interleave-sliding-window"},
      {{"--rope-scaling-type", "axial"}, "--rope-scaling-type"},
      {{"--rope-scaling-type", "longrope"}, "--rope-scaling-short-factor is no list"},
      {{"--rope-scaling-type", "longrope", "--short-factor", "1,2", "--rope-scaling-long-factor", "1"},
       "--rope-scaling-short-factor is 2 numbers"},
      {{"--rope-scaling-long-factor", "1,2"}, "--rope-scaling-type longrope"},
      {{"--rope-scaling-factor", "4"}, "--rope-scaling-type"},
      {{"--rotary-percent", "0"}, "--rotary-percent"},
      {{"--position-embedding-type", "relative"}, "--position-embedding-type"},
      {{"--group-query-attention", "--num-query-groups", "3"}, "--num-query-groups"},
      {{"--num-query-groups", "2"}, "--group-query-attention"},
      {{"--parallel-mode", "auto_parallel"}, "--parallel-mode"},
      {{"--parallel-mode", "data_parallel", "--tensor-model-parallel-size", "2"}, "--tensor-model-parallel-size"},
      {{"--parallel-mode", "stand_alone"}, "one rank"},
      {{"--gradients-mean"}, "--gradients-mean needs --parallel-mode data_parallel"},
      {{"--timing-log-level", "3"}, "--timing-log-level"},
      {{"--adam-eps", "nan"}, "--adam-eps"},
      {{"--no-position-embedding", "--position-embedding-type", "learned_absolute"}, "--position-embedding-type"},
      {{"--rampup-batch-size", "8", "8", "1000", "--global-batch-size", "64"}, "--train-samples"},
      {{"--eval-global-batch-size", "12"}, "--eval-global-batch-size 12 is not a multiple"},
      {{"--eval-global-batch-size", "-8"}, "--eval-global-batch-size -8"},
      {{"--pipeline-model-parallel-size", "2", "--num-layers-per-virtual-pipeline-stage", "1", "--global-batch-size",
        "8", "--eval-global-batch-size", "4"},
       "--eval-global-batch-size 4"},
      {{"--step-batch-size-schedule", "0:8 1M:16", "--global-batch-size", "8"}, "leave --global-batch-size out"},
      {{"--step-batch-size-schedule", "0:8 1M:16", "--rampup-batch-size", "8", "8", "99"}, "exclude each other"},
      {{"--step-batch-size-schedule", "8M:16"}, "the first entry must be 0:BATCH"},
      {{"--context-parallel-size", "0"}, "--context-parallel-size 0: at least 1"},
      {{"--context-parallel-size", "3"}, "x --context-parallel-size 3. Start a multiple of 3 ranks"},
      {{"--context-parallel-size", "8"}, "--num-attention-heads 4 is not a multiple of --context-parallel-size 8"},
      {{"--context-parallel-size", "2", "--seq-length", "33"}, "--seq-length 33 is not a multiple of 2"},
      {{"--context-parallel-size", "2", "--seq-length", "34", "--cp-comm-type", "all_gather"},
       "a multiple of 4, twice"},
      {{"--context-parallel-size", "2", "--cp-comm-type", "a2a", "--context-parallel-algo", "kvallgather_cp_algo"},
       "the same would be all_gather"},
      {{"--context-parallel-size", "2", "--cp-comm-type", "a2a", "all_gather"},
       "--cp-comm-type has 2 entries, expected one, or one for each of --num-layers 4"},
      {{"--context-parallel-size", "2", "--seq-length", "34", "--attention-dropout", "0", "--cp-comm-type", "a2a",
        "p2p", "a2a", "p2p"},
       "a multiple of 4, twice"},
      {{"--context-parallel-size", "8", "--attention-dropout", "0", "--cp-comm-type", "p2p", "p2p", "a2a", "p2p"},
       "--num-attention-heads 4 is not a multiple of --context-parallel-size 8, over which a2a distributes "
       "them; all_gather and p2p do not"},
      {{"--context-parallel-size", "4", "--attention-dropout", "0", "--cp-comm-type", "a2a", "p2p", "a2a", "a2a+p2p"},
       "--cp-comm-type a2a+p2p needs --hierarchical-context-parallel-sizes, or --ulysses-degree-in-cp"},
      {{"--context-parallel-size", "4", "--attention-dropout", "0", "--cp-comm-type", "a2a", "p2p", "a2a", "a2a+p2p",
        "--ulysses-degree-in-cp", "2", "--cp-window-size", "2"},
       "--cp-window-size 2 and --cp-comm-type with both p2p and a2a+p2p exclude each other"},
      {{"--context-parallel-size", "2", "--context-parallel-algo", "megatron_cp_algo", "--cp-comm-type", "p2p",
        "all_gather", "p2p", "p2p"},
       "--cp-comm-type all_gather exclude each other: the same would be p2p"},
      {{"--cp-comm-type", "a2a", "a2a", "a2a"}, "--cp-comm-type has 3 entries"},
      {{"--attention-dropout", "0", "--context-parallel-size", "4", "--cp-comm-type", "a2a+p2p"},
       "--cp-comm-type a2a+p2p needs --hierarchical-context-parallel-sizes, or --ulysses-degree-in-cp"},
      {{"--attention-dropout", "0", "--context-parallel-size", "4", "--context-parallel-algo", "hybrid_cp_algo"},
       "--context-parallel-algo hybrid_cp_algo needs --ulysses-degree-in-cp, or --hierarchical-context-parallel-sizes"},
      {{"--attention-dropout", "0", "--context-parallel-size", "2", "--cp-comm-type", "a2a+p2p",
        "--hierarchical-context-parallel-sizes", "2", "1"},
       "--hierarchical-context-parallel-sizes 2 1: expected as the first size a divisor of --context-parallel-size 2, "
       "below it"},
      {{"--attention-dropout", "0", "--context-parallel-size", "8", "--num-attention-heads", "2", "--cp-comm-type",
        "a2a+p2p", "--hierarchical-context-parallel-sizes", "4", "2"},
       "--num-attention-heads 2 is not a multiple of 4 (the first of --hierarchical-context-parallel-sizes 4 2), over "
       "which a2a+p2p distributes them; all_gather and p2p do not"},
      {{"--attention-dropout", "0", "--context-parallel-size", "4", "--context-parallel-algo", "hybrid_cp_algo",
        "--ulysses-degree-in-cp", "4"},
       "--ulysses-degree-in-cp 4: expected a divisor of --context-parallel-size 4, below it"},
      {{"--attention-dropout", "0", "--context-parallel-size", "4", "--context-parallel-algo", "hybrid_cp_algo",
        "--ulysses-degree-in-cp", "3"},
       "--ulysses-degree-in-cp 3: expected a divisor"},
      {{"--attention-dropout", "0", "--context-parallel-size", "4", "--cp-comm-type", "a2a+p2p",
        "--hierarchical-context-parallel-sizes", "2", "3"},
       "--hierarchical-context-parallel-sizes 2 3: expected two sizes whose product is --context-parallel-size 4"},
      {{"--attention-dropout", "0", "--context-parallel-size", "8", "--cp-comm-type", "a2a+p2p",
        "--ulysses-degree-in-cp", "2", "--hierarchical-context-parallel-sizes", "4", "2"},
       "exclude each other: the same would be 2 and 4"},
      {{"--attention-dropout", "0", "--context-parallel-size", "4", "--cp-comm-type", "p2p", "--context-parallel-algo",
        "hybrid_cp_algo"},
       "--cp-comm-type p2p exclude each other: the same would be a2a+p2p"},
      {{"--attention-dropout", "0", "--context-parallel-size", "4", "--cp-comm-type", "p2p", "--cp-window-size", "4"},
       "--cp-window-size 4: expected a divisor of the 4 ranks of a ring, below it"},
      {{"--attention-dropout", "0", "--context-parallel-size", "8", "--cp-comm-type", "a2a+p2p",
        "--ulysses-degree-in-cp", "2", "--cp-window-size", "3"},
       "--cp-window-size 3: expected a divisor of the 4 ranks"},
      {{"--cp-window-size", "0"}, "--cp-window-size 0: at least 1"},
      {{"--context-parallel-size", "2", "--cp-comm-type", "p2p", "--attention-dropout", "0",
        "--context-parallel-kv-cache-policy", "most"},
       "--context-parallel-kv-cache-policy most: expected"},
      {{"--context-parallel-size", "2", "--cp-comm-type", "p2p", "--attention-dropout", "0",
        "--context-parallel-kv-cache-policy", "half", "--context-parallel-cache-interval", "4"},
       "--context-parallel-cache-interval 4: expected 0 or more, below --num-layers 4"},
      {{"--context-parallel-size", "2", "--cp-comm-type", "all_gather", "p2p", "all_gather", "p2p",
        "--attention-dropout", "0", "--context-parallel-kv-cache-policy", "half", "--context-parallel-cache-interval",
        "1"},
       "--context-parallel-cache-interval 1: --cp-comm-type makes none of the layers that keep blocks with it p2p or "
       "a2a+p2p"},
      {{"--context-parallel-size", "2", "--group-query-attention", "--num-query-groups", "2",
        "--use-ulysses-allgather-kv"},
       "--num-query-groups 2 must be at most --tensor-model-parallel-size 1"},
      {{"--context-parallel-size", "2", "--context-parallel-algo", "adaptive_cp_algo", "--cp-comm-type", "p2p",
        "--attention-dropout", "0"},
       "adaptive_cp_algo and --cp-comm-type exclude each other: Megatron has no such algorithm"},
      {{"--context-parallel-size", "4", "--context-parallel-algo", "hybrid_adaptive_cp_algo", "--attention-dropout",
        "0"},
       "hybrid_adaptive_cp_algo needs --ulysses-degree-in-cp"},
      {{"--context-parallel-size", "3", "--context-parallel-algo", "adaptive_cp_algo", "--attention-dropout", "0"},
       "x --context-parallel-size 3"},
      {{"--context-parallel-algo", "ring"}, "--context-parallel-algo ring: expected"},
      {{"--context-parallel-size", "2", "--tensor-model-parallel-size", "2", "--sequence-parallel", "--seq-length",
        "6"},
       "--tensor-model-parallel-size 2 x --context-parallel-size 2"},
      {{"--optimizer", "muon"}, "--optimizer"},
      {{"--decoupled-min-lr", "1e-5"}, "--decoupled-min-lr needs --decoupled-lr"},
      {{"--decoupled-lr", "0"}, "--decoupled-lr 0"},
      {{"--apply-wd-to-qk-layernorm"}, "--qk-layernorm"},
      {{"--decoupled-lr", "1e-4", "--decoupled-min-lr", "2e-4"}, "--decoupled-min-lr"},
      {{"--decoupled-lr", "1e-4", "--min-lr", "2e-4"}, "give --decoupled-min-lr"},
      // Numbers whose products overflow: 2^63 - 1, and 2^16 x 2^16 ranks, which is 0 in 32 bits.
      {{"--hidden-size", "9223372036854775807"}, "--hidden-size"},
      {{"--hidden-size", "-9223372036854775807"}, "--hidden-size"},
      {{"--kv-channels", "9223372036854775807"}, "--kv-channels"},
      {{"--vocab-size", "9223372036854775807"}, "--vocab-size"},
      {{"--max-position-embeddings", "9223372036854775807"}, "--max-position-embeddings"},
      {{"--num-layers", "65537"}, "--num-layers"},
      {{"--num-layers", "65536", "--hidden-size", "65536", "--ffn-hidden-size", "2147483647"}, "parameters"},
      {{"--make-vocab-size-divisible-by", "2147483647", "--tensor-model-parallel-size", "2"},
       "--make-vocab-size-divisible-by"},
      {{"--tensor-model-parallel-size", "65536", "--pipeline-model-parallel-size", "65536"}, "4294967296 ranks"},
      {{"--seq-length", "9223372036854775807"}, "--seq-length"},
      {{"--micro-batch-size", "9223372036854775807"}, "--micro-batch-size"},
      {{"--global-batch-size", "9223372036854775800"}, "--global-batch-size"},
      {{"--train-iters", "9223372036854775807"}, "--train-iters"},
      {{"--eval-iters", "9223372036854775807"}, "--eval-iters"},
      {{"--lr-decay-iters", "9223372036854775807"}, "--lr-decay-iters"},
      {{"--seed", "-1"}, "--seed -1: expected 0 to 4294967295"},
      {{"--seed", "4294967296"}, "--seed 4294967296: expected 0 to 4294967295"},
      {{"--train-iters", "1000000000000", "--eval-interval", "1", "--eval-iters", "1000000"}, "validation samples"},
  };
  for (const auto& [flags, word] : cases) {
    EXPECT_NE(refusal(flags).find(word), std::string::npos) << flags[0] << ": " << refusal(flags);
  }
}

TEST(Config, FewerQueryGroupsThanTensorParallelRanksDivideThem) {
  for (const auto& [groups, tp] :
       {std::pair("1", "2"), std::pair("2", "4"), std::pair("1", "4"), std::pair("2", "2")}) {
    EXPECT_EQ(refusal({"--group-query-attention", "--num-query-groups", groups, "--tensor-model-parallel-size", tp}),
              "");
  }
}

TEST(Config, NormsOverAllHeadsNeedThemOnOneRank) {
  const std::vector<std::string> flags = {"--qk-layernorm", "--qk-layernorm-all-heads"};
  EXPECT_EQ(refusal(flags), "");
  EXPECT_NE(refusal({flags[0], flags[1], "--tensor-model-parallel-size", "2"})
                .find("--qk-layernorm-all-heads with --tensor-model-parallel-size above 1"),
            std::string::npos);
}

TEST(Config, HelpListsFlagsOfTheModelAndRefusedOnes) {
  TrainerConfig config;
  const std::string help = config.fields().help();
  const auto line_of = [&](const std::string& flag) {
    size_t at = 0;
    for (const char* behind : {" ", ",", "\n"})
      at = std::max(at, help.find("  --" + flag + behind) + 1);  // npos + 1: 0
    EXPECT_NE(at, 0u) << flag;
    return help.substr(at, help.find("\n  --", at) - at);
  };
  core::TransformerConfig::fields([&](const char* name, auto, const char*) {
    std::string flag(name);
    std::replace(flag.begin(), flag.end(), '_', '-');
    EXPECT_EQ(line_of(flag).find("not trained yet"), std::string::npos) << line_of(flag);
  });
  const size_t refused = help.find("refused, because the feature is not implemented:");
  ASSERT_NE(refused, std::string::npos);
  EXPECT_NE(help.find(" --fp8-format", refused), std::string::npos);
}

TEST(Config, FlagsWithoutEffectGiveOneNotice) {
  TrainerConfig config;
  core::ConfigFields fields = config.fields();
  fields.parse_flags({"--distributed-backend", "nccl", "--data-impl", "mmap", "--use-fusion-attn-v2",
                      "--use-fusion-attn-v2", "--DDP-impl", "local", "--spec", "some.spec", "layer_spec",
                      "--num-workers=2"});
  ASSERT_EQ(fields.notices().size(), 6u);
  for (const std::string& notice : fields.notices()) EXPECT_EQ(notice.rfind("--", 0), 0u) << notice;
}

// As Megatron, whose example scripts give both.
TEST(Config, FlagsWithoutTheirConditionHaveNoEffect) {
  EXPECT_EQ(refusal({"--sequence-parallel"}), "");
  EXPECT_EQ(refusal({"--save-interval", "1000"}), "");
  EXPECT_EQ(refusal({"--split", "'99,1,0'"}), "");
  TrainerConfig config;
  config.parallel.sequence_parallel = true;
  config.resolve(8);
  EXPECT_FALSE(config.parallel.sequence_parallel);
  config.parallel.sequence_parallel = true;
  config.parallel.tensor_model_parallel_size = 2;
  config.resolve(8);
  EXPECT_TRUE(config.parallel.sequence_parallel);
}

TEST(Config, DeprecatedSpellingsAreReadAsCurrentOnes) {
  TrainerConfig config;
  core::ConfigFields fields = config.fields();
  fields.parse_flags({"--checkpoint-activations", "--use_rotary_position_embeddings", "--padded-vocab-size", "300",
                      "--recompute-num-layers", "2"});
  EXPECT_EQ(config.training.recompute_granularity, "full");
  EXPECT_EQ(config.training.recompute_method, "uniform");
  EXPECT_EQ(config.training.recompute_num_layers, 2);  // the flag that follows wins
  EXPECT_EQ(config.model.position_embedding_type, "rope");
  EXPECT_EQ(config.model.vocab_size, 300);
  EXPECT_EQ(fields.notices().size(), 2u);
}

TEST(Config, LossChunksAreEnabledByModeOrSize) {
  const auto chunk = [](std::vector<std::string> flags) {
    TrainerConfig config;
    flags.insert(flags.end(), {"--num-layers", "1", "--hidden-size", "8", "--num-attention-heads", "1", "--vocab-size",
                               "9", "--seq-length", "4", "--max-position-embeddings", "4", "--skip-train"});
    config.fields().parse_flags(flags);
    config.resolve_and_validate(1);
    return std::pair(config.training.loss_compute_mode, config.training.loss_chunk_size);
  };
  EXPECT_EQ(chunk({}), std::pair(std::string("default"), int64_t{0}));
  EXPECT_EQ(chunk({"--loss-compute-mode", "chunk"}), std::pair(std::string("chunk"), int64_t{1024}));
  EXPECT_EQ(chunk({"--loss-compute-mode", "chunk", "--loss-chunk-size", "7"}),
            std::pair(std::string("chunk"), int64_t{7}));
  EXPECT_EQ(chunk({"--loss-chunk-size", "7"}), std::pair(std::string("chunk"), int64_t{7}));
  EXPECT_THROW(chunk({"--loss-chunk-size", "-1"}), core::Error);
  EXPECT_THROW(chunk({"--loss-compute-mode", "chunks"}), core::Error);
}

TEST(Config, FlagsOverrideTheFile) {
  TrainerConfig config;
  core::ConfigFields fields = config.fields();
  fields.parse_flags({"--num-layers", "4"});
  fields.load_json(nlohmann::json::parse(
                       R"({"num_layers": 8, "model": {"hidden_size": 128}, "bf16": true, "data_path": ["a", "b"]})"),
                   "x.json");
  EXPECT_EQ(config.model.num_layers, 4);
  EXPECT_EQ(config.model.hidden_size, 128);
  EXPECT_TRUE(config.training.bf16);
  EXPECT_EQ(config.data.data_path, (std::vector<std::string>{"a", "b"}));
  EXPECT_THROW(fields.load_json(nlohmann::json::parse(R"({"num_layerz": 8})"), "x.json"), core::Error);
}

TEST(Config, ResolveDerivesFieldsFromOthers) {
  TrainerConfig config;
  core::ConfigFields fields = config.fields();
  config.resolve(1);  // nothing is derived from fields that are not given
  EXPECT_EQ(config.model.ffn_hidden_size, 0);
  fields.parse_flags({"--hidden-size", "512", "--num-attention-heads", "8", "--swiglu", "--seq-length", "128",
                      "--global-batch-size", "0", "--micro-batch-size", "3", "--tensor-model-parallel-size", "2",
                      "--train-iters", "10", "--loss-compute-mode", "chunk"});
  config.resolve(8);
  EXPECT_EQ(config.model.ffn_hidden_size, 1344);
  EXPECT_EQ(config.model.kv_channels, 64);
  EXPECT_EQ(config.model.max_position_embeddings, 128);
  EXPECT_EQ(config.training.global_batch_size, 12);
  EXPECT_EQ(config.training.loss_chunk_size, 1024);
  EXPECT_EQ(config.scheduler.lr_decay_iters, 10);
  EXPECT_EQ(config.data.split, "969,30,1");
  const nlohmann::json once = fields.dump();
  config.resolve(8);
  EXPECT_EQ(fields.dump(), once);
}

TEST(Config, PrintedConfigurationReadsBack) {
  TrainerConfig config, copy;
  core::ConfigFields fields = config.fields(), copied = copy.fields();
  fields.parse_flags(kGood);
  copied.load_json(fields.dump(), "printed");
  EXPECT_EQ(copied.dump(), fields.dump());
  EXPECT_EQ(copied.hash(), fields.hash());
}

}  // namespace
}  // namespace ms::train
