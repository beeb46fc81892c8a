// Runs whose ranks share sequences, against one rank: models with positions, masks and losses of their own, what reads
// samples besides training, and continued runs. Plain Llama on all layouts: layouts_test.cpp.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "ckpt/reader.h"
#include "tests/support/tiny_run.h"
#include "train/loop/expert_load.h"

namespace ms {
namespace {

using test::Outcome;
using test::TinyLayout;
using Change = std::function<void(train::TrainerConfig&)>;

constexpr int kSteps = 12;

Outcome run(const TinyLayout& layout, const Change& change) {
  const test::TemporaryFolder folder;
  train::TrainerConfig config = test::tiny_config(folder.path(), layout);
  config.optimizer.lr = 1e-3;
  change(config);
  config.training.train_iters = kSteps;
  Outcome outcome = test::outcome_of(config, layout.ranks(), folder / "save");
  // Whose gradients are rounding errors only, from which Adam makes steps of full size (families_test.cpp).
  std::erase_if(outcome.weights, [](const auto& item) { return item.first.ends_with("linear_qkv.bias"); });
  return outcome;
}

// Each token counts once, and each loss is that of whole samples.
void expect_near(const train::ExpertLoads& seen, const train::ExpertLoads& want) {
  ASSERT_EQ(seen.size(), want.size());
  for (const auto& [layer, load] : want) {
    const train::LayerLoad& own = seen.at(layer);
    EXPECT_EQ(own.tokens, load.tokens) << "layer " << layer;
    EXPECT_EQ(own.microbatches, load.microbatches) << "layer " << layer;
    EXPECT_NEAR(own.losses.aux, load.losses.aux, 1e-5 * load.losses.aux) << "layer " << layer;
    EXPECT_NEAR(own.losses.seq_aux, load.losses.seq_aux, 1e-5 * load.losses.seq_aux) << "layer " << layer;
    EXPECT_NEAR(own.losses.z, load.losses.z, 1e-5 * load.losses.z) << "layer " << layer;
  }
}

struct Model {
  const char* name;
  Change change;
  bool leaves_queries = true;    // whether a gather of keys and rings can do it
  bool adapts = leaves_queries;  // and adaptive algorithms
};

void choose_two_of_four(train::TrainerConfig& config) {
  config.model.num_experts = 4;
  config.model.moe_router_topk = 2;
  config.model.init_method_std = 0.1;
}
// With choices beyond the experts' capacity.
void drop_choices(train::TrainerConfig& config, const char* policy) {
  choose_two_of_four(config);
  config.training.moe_expert_capacity_factor = 0.8;
  config.training.moe_token_drop_policy = policy;
}

const Model kModels[] = {
    {"learned positions, dropout, a tied embedding and more than a sample",
     [](train::TrainerConfig& config) {
       core::TransformerConfig& model = config.model;
       model.normalization = "LayerNorm";
       model.position_embedding_type = "learned_absolute";
       model.swiglu = false;
       model.add_bias_linear = true;
       model.untie_embeddings_and_output_weights = false;
       model.hidden_dropout = model.attention_dropout = 0.2;
       config.training.micro_batch_size = 2;
     },
     true, false},
    {"windows and soft caps",
     [](train::TrainerConfig& config) {
       config.model.attn_logit_softcapping = 2;
       config.model.output_logit_softcapping = 5;
       config.model.interleave_sliding_window = 5;
     },
     true, false},
    {"documents, a window in every other layer and dropout in attention",
     [](train::TrainerConfig& config) {
       config.model.sliding_window = 9;
       config.model.window_attn_skip_freq = "2";
       config.model.attention_dropout = 0.2;
       config.training.reset_attention_mask = true;
       config.training.micro_batch_size = 2;
       config.training.seq_length = 64;
     },
     true, false},
    {"dropout of hidden states, soft caps",
     [](train::TrainerConfig& config) {
       config.model.hidden_dropout = 0.2;
       config.model.attn_logit_softcapping = 2;
     }},
    {"sinks in each head", [](train::TrainerConfig& config) { config.model.softmax_type = "learnable"; }},
    {"output gates", [](train::TrainerConfig& config) { config.model.attention_output_gate = true; }},
    {"ALiBi", [](train::TrainerConfig& config) { config.model.position_embedding_type = "alibi"; }, true, false},
    {"latent attention", [](train::TrainerConfig& config) { test::use_latent_attention(config); }},
    {"one query group with norms of heads",
     [](train::TrainerConfig& config) {
       config.model.num_query_groups = 1;
       config.model.qk_layernorm = true;
     }},
    {"documents that do not see each other, with positions of their own",
     [](train::TrainerConfig& config) {
       config.training.reset_attention_mask = config.training.reset_position_ids = true;
       config.training.micro_batch_size = 2;
       config.training.seq_length = 64;
     }},
    {"positions that begin anew, and losses that do not count",
     [](train::TrainerConfig& config) {
       config.model.position_embedding_type = "learned_absolute";
       config.training.reset_position_ids = true;
       config.data.eod_mask_loss = true;
       config.training.seq_length = 64;
     }},
    {"a loss of each token",
     [](train::TrainerConfig& config) {
       config.training.calculate_per_token_loss = true;
       config.data.eod_mask_loss = true;
       config.training.seq_length = 64;
     }},
    {"exchanges of heads, rings and gathers of keys in turns",
     [](train::TrainerConfig& config) {
       std::vector<std::string>& types = config.parallel.cp_comm_type;
       const bool is_hybrid = config.parallel.ulysses_degree_in_cp > 0;
       if (!types.empty()) types = {is_hybrid ? "a2a+p2p" : "p2p", "a2a", "all_gather", "a2a"};
       config.model.sliding_window = 5;
       config.model.window_attn_skip_freq = "2";
     },
     true, false},
    {"plain operators", [](train::TrainerConfig& config) { config.training.optimization_level = 0; }, false},
    {"a loss in chunks, layers that run again",
     [](train::TrainerConfig& config) {
       config.training.loss_chunk_size = 3;
       config.training.recompute_granularity = "full";
       config.training.recompute_method = "uniform";
       config.training.recompute_num_layers = 2;
     }},
    {"tensors that leave memory",
     [](train::TrainerConfig& config) {
       config.training.swap_attention = true;
       config.training.swap_min_tensor_kib = 0;
     }},
    {"another order of the axes", [](train::TrainerConfig& config) { config.parallel.use_tp_pp_dp_mapping = true; }},
    {"experts, with losses of micro-batches and of sequences, and jitter",
     [](train::TrainerConfig& config) {
       config.model.num_experts = 4;
       config.model.moe_router_topk = 2;
       config.model.moe_ffn_hidden_size = 24;
       config.model.moe_shared_expert_intermediate_size = 16;
       config.model.init_method_std = 0.1;  // scores that rounding does not reorder
       config.training.moe_router_load_balancing_type = {"aux_loss", "seq_aux_loss"};
       config.training.moe_aux_loss_coeff = {0.2, 0.1};
       config.training.moe_z_loss_coeff = 0.01;
       config.training.moe_input_jitter_eps = 0.1;
       config.training.micro_batch_size = 2;
     }},
    {"experts with biases, and a loss of each token",
     [](train::TrainerConfig& config) {
       config.model.num_experts = 4;
       config.model.moe_router_topk = 2;
       config.model.moe_router_score_function = "sigmoid";
       config.model.moe_router_enable_expert_bias = true;
       config.model.init_method_std = 0.1;
       config.training.moe_router_bias_update_rate = 0.01;
       config.training.moe_aux_loss_coeff = {0.2};
       config.training.calculate_per_token_loss = true;
     }},
    {"experts chosen by sinkhorn",
     [](train::TrainerConfig& config) {
       choose_two_of_four(config);
       config.training.moe_router_load_balancing_type = {"sinkhorn"};
     }},
    {"experts that drop the last choices beyond their capacity",
     [](train::TrainerConfig& config) {
       drop_choices(config, "position");
       config.training.micro_batch_size = 2;
     }},
    {"documents, and experts that drop the least likely choices beyond their capacity",
     [](train::TrainerConfig& config) {
       drop_choices(config, "probs");
       config.training.reset_attention_mask = true;
       config.training.seq_length = 64;
     }},
    {"further tokens, some of which do not count",
     [](train::TrainerConfig& config) {
       config.model.mtp_num_layers = 2;
       config.training.mtp_loss_scaling_factor = 0.3;
       config.training.micro_batch_size = 2;
       config.data.eod_mask_loss = true;
       config.training.seq_length = 64;
     }},
    {"buckets on their way during the backward",
     [](train::TrainerConfig& config) {
       config.parallel.overlap_grad_reduce = true;
       config.parallel.ddp_num_buckets = 3;
     }},
};

TEST(ContextParallel, EveryModelAgreesWithOneRank) {
  for (const Model& model : kModels) {
    SCOPED_TRACE(model.name);
    const Outcome one = run({}, model.change);
    EXPECT_GT(std::abs(one.summary.steps.back().loss - one.summary.steps.front().loss), 0.01) << "weights must move";
    for (const TinyLayout& layout :
         {TinyLayout{1, 1, 2, 1, false, 1, "", "", 2, "a2a"}, TinyLayout{2, 1, 1, 0, true, 1, "", "", 4, "a2a"},
          TinyLayout{1, 2, 1, 0, false, 1, "", "", 2, "all_gather"},
          TinyLayout{2, 1, 1, 1, true, 1, "", "", 2, "all_gather"}, TinyLayout{2, 1, 1, 1, true, 1, "", "", 2, "p2p"},
          TinyLayout{1, 2, 1, 0, false, 1, "", "", 4, "a2a+p2p"},
          TinyLayout{1, 1, 1, 0, false, 1, "", "", 4, "a2a+p2p,a2a,p2p,all_gather"},
          TinyLayout{2, 1, 1, 1, true, 1, "", "", 4, "adaptive"},
          TinyLayout{1, 2, 1, 0, false, 1, "", "", 4, "hybrid_adaptive"}}) {
      if (layout.context != "a2a" && !model.leaves_queries) continue;
      if (layout.context.ends_with("adaptive") && !model.adapts) continue;
      SCOPED_TRACE(layout.name());
      const Outcome seen = run(layout, model.change);
      for (size_t i = 0; i < one.summary.steps.size(); ++i) {
        const auto &a = seen.summary.steps[i], &b = one.summary.steps[i];
        EXPECT_NEAR(a.loss, b.loss, 1e-5 * b.loss) << "step " << i + 1;
        EXPECT_NEAR(a.grad_norm, b.grad_norm, 1e-3 * b.grad_norm) << "step " << i + 1;
        EXPECT_EQ(a.tokens, b.tokens);
        ASSERT_EQ(a.mtp_losses.size(), b.mtp_losses.size());
        for (size_t k = 0; k < b.mtp_losses.size(); ++k)
          EXPECT_NEAR(a.mtp_losses[k], b.mtp_losses[k], 1e-5 * b.mtp_losses[k]) << "step " << i + 1;
        if (i == 0) expect_near(a.experts, b.experts);  // later, rounding may reorder scores
      }
      EXPECT_LT(test::largest_distance(seen.weights, one.weights), 1e-4);
    }
  }
}

int64_t sent_bytes(const Outcome& of) {
  int64_t bytes = 0;
  for (const auto& group : of.summary.communication)
    bytes += group[static_cast<size_t>(core::CommOp::kSend)].payload_bytes;
  return bytes;
}

// What a ring keeps for its backward changes no bit, in whichever layers, also of layers that run again; it sends less,
// for more memory.
TEST(ContextParallel, KeptBlocksOfARingChangeNoBit) {
  const Change again = [](train::TrainerConfig& config) {
    config.training.recompute_granularity = "full";
    config.training.recompute_method = "block";
    config.training.recompute_num_layers = 2;
  };
  const auto activations = [](const Outcome& of) {
    return of.summary.steps.back().peak_bytes[static_cast<size_t>(core::MemoryTag::kAct)];
  };
  for (const TinyLayout& layout :
       {TinyLayout{2, 1, 1, 1, true, 1, "", "", 2, "p2p"}, TinyLayout{1, 1, 1, 0, false, 1, "", "", 4, "p2p w2"},
        TinyLayout{1, 1, 1, 0, false, 1, "", "", 4, "a2a+p2p"},
        TinyLayout{1, 1, 1, 0, false, 1, "", "", 4, "p2p,a2a"}}) {
    const auto outcome = [&](const std::string& policy, const Change& change) {
      TinyLayout with_policy = layout;
      with_policy.context += policy;
      return run(with_policy, change);
    };
    const auto plain = [](train::TrainerConfig&) {};
    const Outcome none = outcome("", plain), none_again = outcome("", again);
    for (const auto& [policy, sixths] : {std::pair{" half", 5}, {" full", 4}, {" full i2", 5}}) {
      SCOPED_TRACE(layout.name() + policy);
      const Outcome kept = outcome(policy, plain);
      test::expect_same_bits(kept, none);
      EXPECT_EQ(6 * sent_bytes(kept), sixths * sent_bytes(none));
      EXPECT_GT(activations(kept), activations(none));
      test::expect_same_bits(outcome(policy, again), none_again);
    }
  }
}

// The same with windows and dropout, where other layers gather keys: of these nothing is kept.
TEST(ContextParallel, KeptBlocksOfRingsWithWindowsAmongGathersChangeNoBit) {
  const auto outcome = [](const std::string& policy) {
    return run({1, 1, 1, 0, false, 1, "", "", 4, "p2p" + policy}, [](train::TrainerConfig& config) {
      config.parallel.cp_comm_type = {"p2p", "all_gather", "all_gather", "p2p"};
      config.model.sliding_window = 5;
      config.model.window_attn_skip_freq = "2";
      config.model.attention_dropout = 0.2;
    });
  };
  const Outcome none = outcome("");
  for (const auto& [policy, sixths] : {std::pair{" half", 5}, {" full", 4}, {" full i1", 5}}) {
    SCOPED_TRACE(policy);
    const Outcome kept = outcome(policy);
    test::expect_same_bits(kept, none);
    EXPECT_EQ(6 * sent_bytes(kept), sixths * sent_bytes(none));
  }
}

// One head of keys on each rank, gathered.
TEST(ContextParallel, GatheredKeysOfExchangedHeadsAgreeWithOneRank) {
  const auto with = [](int64_t groups, bool gathers) {
    return [=](train::TrainerConfig& config) {
      config.model.num_query_groups = groups;
      config.parallel.use_ulysses_allgather_kv = gathers;
    };
  };
  for (const auto& [layout, groups] : {std::pair{TinyLayout{1, 1, 1, 1, false, 1, "", "", 4, "a2a"}, 1},
                                       {{2, 1, 1, 1, true, 1, "", "", 2, "a2a"}, 2},
                                       {{2, 1, 1, 0, true, 1, "", "", 2, "a2a"}, 1},
                                       {{1, 1, 1, 0, false, 1, "", "", 4, "a2a+p2p"}, 1},
                                       {{1, 1, 1, 0, false, 1, "", "", 4, "a2a,p2p,a2a+p2p,all_gather"}, 1}}) {
    SCOPED_TRACE(layout.name());
    const Outcome one = run({}, with(groups, false)), seen = run(layout, with(groups, true));
    for (size_t i = 0; i < one.summary.steps.size(); ++i) {
      const auto &a = seen.summary.steps[i], &b = one.summary.steps[i];
      EXPECT_NEAR(a.loss, b.loss, 1e-5 * b.loss) << "step " << i + 1;
    }
    EXPECT_LT(test::largest_distance(seen.weights, one.weights), 1e-4);
  }
}

// The auxiliary loss of all tokens so far in a step counts each of them once, however many ranks share their sequence.
TEST(ContextParallel, ExpertsCountTheTokensOfAStepOnce) {
  const Change change = [](train::TrainerConfig& config) {
    choose_two_of_four(config);
    config.training.moe_router_load_balancing_type = {"global_aux_loss"};
    config.training.moe_aux_loss_coeff = {0.5};
  };
  const Outcome one = run({}, change);
  for (const TinyLayout& layout :
       {TinyLayout{1, 1, 1, 0, false, 1, "", "", 2, "a2a"}, TinyLayout{2, 1, 1, 1, true, 1, "", "", 2, "p2p"}}) {
    SCOPED_TRACE(layout.name());
    const Outcome seen = run(layout, change);
    for (const auto& [layer, load] : one.summary.steps[0].experts) {
      const double loss = load.losses.global_aux;
      EXPECT_NEAR(seen.summary.steps[0].experts.at(layer).losses.global_aux, loss, 1e-5 * loss) << "layer " << layer;
    }
    EXPECT_NEAR(seen.summary.steps[0].grad_norm, one.summary.steps[0].grad_norm, 1e-4 * one.summary.steps[0].grad_norm);
    EXPECT_LT(test::largest_distance(seen.weights, one.weights), 1e-4);
  }
}

TEST(ContextParallel, AgreesInBf16ToItsRounding) {
  const Change bf16 = [](train::TrainerConfig& config) { config.training.bf16 = true; };
  const Outcome one = run({}, bf16);
  for (const char* context : {"a2a", "all_gather", "p2p", "adaptive", "p2p,a2a,all_gather"}) {
    SCOPED_TRACE(context);
    const Outcome seen = run({2, 1, 1, 1, true, 1, "", "", 2, context}, bf16);
    EXPECT_NEAR(seen.summary.steps[0].loss, one.summary.steps[0].loss, 1e-4 * one.summary.steps[0].loss);
    EXPECT_NEAR(seen.summary.steps[0].grad_norm, one.summary.steps[0].grad_norm, 3e-3 * one.summary.steps[0].grad_norm);
    EXPECT_NEAR(seen.summary.steps.back().loss, one.summary.steps.back().loss, 3e-3 * one.summary.steps.back().loss);
  }
}

// --parallel-mode data_parallel adds the means of replicas: of those that read different samples.
TEST(ContextParallel, SumsOfReplicasAreOfThoseWithOtherSamples) {
  const Change sums = [](train::TrainerConfig& config) { config.parallel.parallel_mode = "data_parallel"; };
  const Outcome two = run({1, 1, 2}, sums), shared = run({1, 1, 2, 0, false, 1, "", "", 2, "a2a"}, sums);
  EXPECT_NEAR(shared.summary.steps[0].grad_norm, two.summary.steps[0].grad_norm, 1e-4 * two.summary.steps[0].grad_norm);
}

TEST(ContextParallel, EvaluationAndGenerationAreThoseOfOneRank) {
  const test::TemporaryFolder folder;
  const auto configured = [&](const TinyLayout& layout) {
    train::TrainerConfig config = test::tiny_config(folder.path(), layout);
    config.training.train_iters = 5;
    config.checkpoint.save = folder / "save";
    return config;
  };
  test::run_on_threads(configured({}), 1);
  const auto evaluated = [&](const TinyLayout& layout) {
    train::TrainerConfig config = configured(layout);
    config.checkpoint.save.clear();
    config.checkpoint.load = folder / "save";
    config.training.skip_train = true;
    config.training.eval_iters = 2;
    config.data.split = "80,20,0";
    return test::run_on_threads(config, layout.ranks()).validation_loss;
  };
  const auto generated = [&](const TinyLayout& layout) {
    train::TrainerConfig config = configured(layout);
    config.checkpoint.save.clear();
    config.checkpoint.load = folder / "save";
    config.generate.generate = "ab";
    config.generate.num_tokens_to_generate = 24;  // longer than the context of 16, so the window slides
    config.generate.temperature = 0;
    return test::run_on_threads(config, layout.ranks()).generated;
  };
  const double loss = evaluated({});
  EXPECT_GT(loss, 0);
  const std::string text = generated({});
  EXPECT_GE(text.size(), 3U);
  for (const TinyLayout& layout :
       {TinyLayout{1, 1, 1, 0, false, 1, "", "", 4, "a2a"}, TinyLayout{2, 2, 1, 0, true, 1, "", "", 2, "a2a"},
        TinyLayout{1, 1, 2, 0, false, 1, "", "", 2, "all_gather"}, TinyLayout{2, 1, 1, 0, true, 1, "", "", 2, "p2p"},
        TinyLayout{1, 1, 1, 0, false, 1, "", "", 4, "adaptive"},
        TinyLayout{1, 2, 1, 0, false, 1, "", "", 2, "a2a,p2p,all_gather"}}) {
    SCOPED_TRACE(layout.name());
    EXPECT_NEAR(evaluated(layout), loss, 1e-5 * loss);
    EXPECT_EQ(generated(layout), text);
  }
}

// The ranks that share sequences are replicas of the weights: any number of them continues any other's run.
TEST(ContextParallel, RunsContinueOnOtherNumbersOfRanks) {
  const test::TemporaryFolder folder;
  const auto run_until = [&](const TinyLayout& layout, int64_t until, const std::string& load,
                             const std::string& save) {
    train::TrainerConfig config = test::tiny_config(folder.path(), layout);
    config.training.train_iters = until;
    config.checkpoint.save = folder / save;
    if (!load.empty()) config.checkpoint.load = folder / load;
    return test::run_on_threads(config, layout.ranks());
  };
  const auto whole = run_until({}, 10, "", "whole");
  const TinyLayout layouts[] = {{1, 1, 2, 1, false, 1, "", "", 2, "a2a"},
                                {2, 1, 1, 1, true, 1, "", "", 2, "all_gather"},
                                {1, 1, 1, 1, false, 1, "", "", 4, "p2p"},
                                {},
                                {1, 2, 1, 0, false, 1, "", "", 2, "a2a,p2p"}};
  std::string from;
  int64_t until = 0;
  for (const TinyLayout& layout : layouts) {
    SCOPED_TRACE(layout.name());
    const std::string to = core::cat("after_", until);
    const auto part = run_until(layout, until + 2, from, to);
    ASSERT_EQ(part.steps.size(), 2U);
    for (size_t i = 0; i < 2; ++i) {
      const double loss = whole.steps[static_cast<size_t>(until) + i].loss;
      EXPECT_NEAR(part.steps[i].loss, loss, 1e-5 * loss) << "step " << until + static_cast<int64_t>(i) + 1;
    }
    const nlohmann::json saved = ckpt::open_native(part.checkpoint)->info().layout;
    EXPECT_EQ(saved.at("cp"), layout.cp);
    EXPECT_EQ(saved.at("dp"), layout.dp);
    from = to;
    until += 2;
  }
}

// A run of the same layout continues bit for bit.
TEST(ContextParallel, ContinuedRunsAreUnbrokenOnes) {
  for (const char* context : {"a2a", "all_gather", "p2p", "adaptive", "p2p,a2a,all_gather"}) {
    SCOPED_TRACE(context);
    const test::TemporaryFolder folder;
    const auto run_until = [&](int64_t until, const std::string& load, const std::string& save) {
      train::TrainerConfig config = test::tiny_config(folder.path(), {1, 1, 1, 1, false, 1, "", "", 2, context});
      config.training.train_iters = until;
      config.checkpoint.save = folder / save;
      if (!load.empty()) config.checkpoint.load = folder / load;
      return test::run_on_threads(config, 2);
    };
    const auto whole = run_until(8, "", "whole");
    run_until(4, "", "parts");
    const auto rest = run_until(8, "parts", "rest");
    ASSERT_EQ(rest.steps.size(), 4U);
    for (size_t i = 0; i < 4; ++i) EXPECT_EQ(rest.steps[i].loss, whole.steps[4 + i].loss) << "step " << 5 + i;
  }
}

}  // namespace
}  // namespace ms
