// The block of experts against its definition in float64 (tests/reference/moe_layer.h): the result, and each element of
// each gradient against central differences of that definition.
#include "train/model/moe_layer.h"

#include <gtest/gtest.h>

#include "core/layout/slot_policy.h"
#include "core/rng.h"
#include "tests/reference/moe_layer.h"
#include "tests/support/random_values.h"
#include "tests/train/model/rank.h"
#include "train/features/mixture_of_experts.h"
#include "train/model/routing_statistics.h"
#include "train/ops/elementwise.h"
#include "train/ops/token_noise.h"

namespace ms::train {
namespace {

using reference::Array;
using reference::MoeBlock;

constexpr int64_t kSeq = 5, kBatch = 2, kLayer = 1;
constexpr double kScale = 3;  // of auxiliary losses
const std::string kPrefix = "decoder.layers.1.";

struct Case {
  const char* name;
  void (*change)(TrainerConfig&);
};
const Case kCases[] = {
    {"softmax of the chosen", [](TrainerConfig&) {}},
    {"one of one", [](TrainerConfig& c) { c.model.num_experts = c.model.moe_router_topk = 1; }},
    {"softmax of all, scaled",
     [](TrainerConfig& c) {
       c.model.moe_router_pre_softmax = true;
       c.model.moe_router_topk_scaling_factor = 1.5;
     }},
    {"one expert, softmax of all",
     [](TrainerConfig& c) {
       c.model.moe_router_pre_softmax = true;
       c.model.moe_router_topk = 1;
     }},
    {"sigmoids in groups",
     [](TrainerConfig& c) {
       c.model.moe_router_score_function = "sigmoid";
       c.model.moe_router_topk = 3;
       c.model.moe_router_num_groups = 2;
       c.model.moe_router_group_topk = 1;
       c.model.moe_router_topk_scaling_factor = 2.5;
     }},
    {"one expert by its sigmoid",
     [](TrainerConfig& c) {
       c.model.moe_router_score_function = "sigmoid";
       c.model.moe_router_topk = 1;
     }},
    {"Sinkhorn", [](TrainerConfig& c) { c.training.moe_router_load_balancing_type = {std::string(kSinkhorn)}; }},
    {"summed in fp64", [](TrainerConfig& c) { c.training.moe_router_dtype = "fp64"; }},
    {"shared experts", [](TrainerConfig& c) { c.model.moe_shared_expert_intermediate_size = 7; }},
    {"shared experts with a gate, nothing kept",
     [](TrainerConfig& c) {
       c.model.moe_shared_expert_intermediate_size = 7;
       c.model.moe_shared_expert_gate = true;
       c.training.recompute_norm = c.training.recompute_activation_function = true;
     }},
    {"dropped by probs", [](TrainerConfig& c) { c.training.moe_expert_capacity_factor = 0.6; }},
    {"dropped by position, plain operators",
     [](TrainerConfig& c) {
       c.training.moe_expert_capacity_factor = 0.6;
       c.training.moe_token_drop_policy = "position";
       c.training.optimization_level = 0;
     }},
    {"auxiliary losses",
     [](TrainerConfig& c) {
       c.training.moe_router_load_balancing_type = {std::string(kAuxLoss), std::string(kSeqAuxLoss)};
       c.training.moe_aux_loss_coeff = {0.5, 0.7};
       c.training.moe_z_loss_coeff = 0.1;
     }},
    {"an auxiliary loss of sigmoids",
     [](TrainerConfig& c) {
       c.model.moe_router_score_function = "sigmoid";
       c.training.moe_aux_loss_coeff = {0.5};
     }},
    {"roots of softplus and their auxiliary loss",
     [](TrainerConfig& c) {
       c.model.moe_router_score_function = "sqrtsoftplus";
       c.model.moe_router_topk_scaling_factor = 1.5;
       c.training.moe_aux_loss_coeff = {0.5};
     }},
    {"the groups of the best experts, whose choice the loss counts",
     [](TrainerConfig& c) {
       c.training.moe_router_load_balancing_type = {std::string(kGroupLimited)};
       c.training.moe_aux_loss_coeff = {0.5};
       c.model.moe_router_num_groups = 3;
       c.model.moe_router_group_topk = 1;
       c.model.moe_router_topk_scaling_factor = 1.5;
     }},
    {"the same of sequences, weights that add up to 1",
     [](TrainerConfig& c) {
       c.training.moe_router_load_balancing_type = {std::string(kGroupLimited)};
       c.training.moe_aux_loss_coeff = {0.5};
       c.training.seq_aux = c.training.norm_topk_prob = true;
       c.model.moe_router_num_groups = 2;
       c.model.moe_router_group_topk = 1;
       c.model.moe_router_topk_scaling_factor = 1.5;
     }},
    {"MindSpeed-LLM's pai_megatron_aux_loss, without groups and factor",
     [](TrainerConfig& c) {
       c.training.moe_router_load_balancing_type = {std::string(kPaiAuxLoss)};
       c.training.moe_aux_loss_coeff = {0.5};
       c.model.moe_router_num_groups = 3;
       c.model.moe_router_group_topk = 1;
       c.model.moe_router_topk_scaling_factor = 1.5;
     }},
    {"a norm behind it", [](TrainerConfig& c) { c.model.post_norm = true; }},
    {"a norm behind it and shared experts, nothing kept",
     [](TrainerConfig& c) {
       c.model.post_norm = c.training.recompute_norm = c.training.recompute_activation_function = true;
       c.model.moe_shared_expert_intermediate_size = 7;
     }},
    {"a norm behind it, all run again",
     [](TrainerConfig& c) { c.model.post_norm = c.training.moe_layer_recompute = true; }},
    {"jitter", [](TrainerConfig& c) { c.training.moe_input_jitter_eps = 0.3; }},
    {"gradients rounded first", [](TrainerConfig& c) { c.training.gradient_accumulation_fusion = false; }},
};

TrainerConfig config_of(const std::filesystem::path& folder, const Case& one) {
  TrainerConfig config = test::tiny_config(folder);
  config.model.num_layers = 2;
  config.model.hidden_size = 16;
  config.model.num_attention_heads = config.model.num_query_groups = 2;
  config.model.num_experts = 6;
  config.model.moe_ffn_hidden_size = 5;  // experts are padded in the buffers
  config.model.moe_router_topk = 2;
  one.change(config);
  return config;
}

// Weights of the block as the rank has them.
std::span<float> weight(Rank& rank, const std::string& name) {
  return rank.parameters->at(kPrefix + name).weight.elements<float>();
}

// What the router multiplies each element with: the jitter of ones.
Array jitter_of(Rank& rank) {
  core::Tensor ones(rank.arena, core::DType::kFp32, {kSeq * kBatch, rank.config.model.hidden_size},
                    core::MemoryTag::kTmp);
  std::ranges::fill(ones.elements<float>(), 1.0F);
  const std::vector<int64_t> samples = {0, 1};
  const core::Rng rng(static_cast<uint64_t>(rank.config.rng.seed), "jitter " + kPrefix + "mlp.router.");
  ops::jitter_inplace(rank.ops, ones, *rank.config.training.moe_input_jitter_eps, {rng.key(), 0, samples});
  const auto factors = ones.elements<float>();
  return {factors.begin(), factors.end()};
}

MoeBlock block_of(Rank& rank) {
  const core::TransformerConfig& model = rank.config.model;
  const MixtureOfExpertsConfig& moe = rank.config.training;
  MoeBlock block;
  block.hidden = model.hidden_size;
  block.topk = model.moe_router_topk;
  block.epsilon = model.norm_epsilon;
  if (model.moe_router_pre_softmax) block.scores = "softmax";
  if (model.moe_router_score_function != "softmax") block.scores = model.moe_router_score_function;
  if (has_balancing(moe, kSinkhorn)) block.scores = "sinkhorn";
  if (!has_balancing(moe, kPaiAuxLoss)) {
    block.num_groups = model.moe_router_num_groups;
    block.group_topk = model.moe_router_group_topk;
    block.scaling_factor = model.moe_router_topk_scaling_factor;
  }
  if (has_balancing(moe, kGroupLimited)) {
    block.groups_by_best = block.counts_choices = true;
    if (moe.norm_topk_prob) block.scaling_factor = 1;
  }
  if (moe.moe_input_jitter_eps) block.jitter = jitter_of(rank);
  block.capacity_factor = moe.moe_expert_capacity_factor.value_or(0);
  block.by_position = moe.moe_token_drop_policy == "position";
  block.aux_coeff = balancing_coefficient(moe, kAuxLoss);
  block.seq_aux_coeff = balancing_coefficient(moe, kSeqAuxLoss);
  block.z_coeff = moe.moe_z_loss_coeff.value_or(0);
  block.auxiliary_scale = kScale;
  block.batch = kBatch;
  const auto array = [&](const std::string& name) {
    const auto values = weight(rank, name);
    return Array(values.begin(), values.end());
  };
  block.norm = array("pre_mlp_layernorm.weight");
  block.router = array("mlp.router.weight");
  if (model.post_norm) block.post_norm = array("post_mlp_layernorm.weight");
  for (int64_t expert = 0; expert < model.num_experts; ++expert) {
    block.fc1.push_back(array(core::cat("mlp.experts.local_experts.", expert, ".linear_fc1.weight")));
    block.fc2.push_back(array(core::cat("mlp.experts.local_experts.", expert, ".linear_fc2.weight")));
  }
  if (model.moe_shared_expert_intermediate_size == 0) return block;
  block.shared_fc1 = array("mlp.shared_experts.linear_fc1.weight");
  block.shared_fc2 = array("mlp.shared_experts.linear_fc2.weight");
  if (model.moe_shared_expert_gate) block.shared_gate = array("mlp.shared_experts.gate_weight");
  return block;
}

// Each array of the block's weights, with the parameter that it is.
std::vector<std::pair<std::string, Array*>> arrays_of(MoeBlock& block) {
  std::vector<std::pair<std::string, Array*>> all = {{"pre_mlp_layernorm.weight", &block.norm},
                                                     {"mlp.router.weight", &block.router}};
  if (!block.post_norm.empty()) all.emplace_back("post_mlp_layernorm.weight", &block.post_norm);
  for (size_t expert = 0; expert < block.experts(); ++expert) {
    const std::string name = core::cat("mlp.experts.local_experts.", expert, ".");
    all.emplace_back(name + "linear_fc1.weight", &block.fc1[expert]);
    all.emplace_back(name + "linear_fc2.weight", &block.fc2[expert]);
  }
  if (!block.shared_fc1.empty()) all.emplace_back("mlp.shared_experts.linear_fc1.weight", &block.shared_fc1);
  if (!block.shared_fc2.empty()) all.emplace_back("mlp.shared_experts.linear_fc2.weight", &block.shared_fc2);
  if (!block.shared_gate.empty()) all.emplace_back("mlp.shared_experts.gate_weight", &block.shared_gate);
  return all;
}

class MoeLayerCheck {
 public:
  explicit MoeLayerCheck(Rank& rank)
      : rank_(rank),
        layer_(*rank.state, *rank.parameters, kLayer),
        slots_(layout::layer_slots(rank.config.recompute_plan(), {}, kLayer, /*has_experts=*/true)) {
    rank_.state->routing = &statistics_;
    for (Parameter& parameter : rank.parameters->all()) {
      const bool is_norm = parameter.spec.key.find("norm") != std::string::npos;
      fill(parameter.weight, is_norm ? 0.2F : 0.4F, 7 + static_cast<uint64_t>(parameter.offset_elems));
      for (float& value : parameter.weight.elements<float>()) value += is_norm ? 1 : 0;
    }
    x_ = core::Tensor(rank.arena, core::DType::kFp32, {kSeq, kBatch, rank.config.model.hidden_size},
                      core::MemoryTag::kTmp);
    fill(x_, 1, 1);
    dy_ = core::Tensor(rank.arena, core::DType::kFp32, x_.shape(), core::MemoryTag::kTmp);
    fill(dy_, 1, 2);
  }

  void run(bool refilled) {
    MoeBlock block = block_of(rank_);
    const Array x(x_.elements<float>().begin(), x_.elements<float>().end());
    const reference::MoeResult want = reference::moe_block(block, x);
    ASSERT_GT(want.least_margin, 1e-5) << "rounding could change a choice";
    FeedForwardActivations saved;
    const core::Tensor y = layer_.forward(x_, saved, slots_, &x_.view(), sequence_);
    for (size_t i = 0; i < want.y.size(); ++i) ASSERT_NEAR(y.elements<float>()[i], want.y[i], 2e-5) << "y at " << i;
    if (refilled) {
      saved = {};
      layer_.refill(x_, saved, slots_, sequence_);
    }
    rank_.parameters->zero_grads();
    WeightGradients weights;
    const core::Tensor dx = layer_.backward(dy_, x_, saved, dy_, sequence_, weights);
    Array moved(x);
    compare("x", dx, moved, [&] { return loss(block, moved); });
    for (const auto& [name, array] : arrays_of(block))
      compare(name, rank_.parameters->at(kPrefix + name).main_grad, *array, [&] { return loss(block, x); });
    check_statistics(want);
  }

 private:
  void fill(const core::TensorView& target, float scale, uint64_t salt) {
    const auto values = test::RandomValues(salt).make<float>(target.size(), scale);
    std::ranges::copy(values, target.data<float>());
  }
  double loss(const MoeBlock& block, const Array& x) const {
    const reference::MoeResult result = reference::moe_block(block, x);
    double sum = result.auxiliary;
    for (size_t i = 0; i < result.y.size(); ++i) sum += result.y[i] * double{dy_.elements<float>()[i]};
    return sum;
  }
  // values: what `moved_loss` reads; each of them is moved in turn.
  template <class Loss>
  void compare(const std::string& name, const core::TensorView& gradient, Array& values, const Loss& moved_loss) {
    constexpr double kStep = 1e-5;
    Array want;
    double largest = 0;
    for (double& value : values) {
      const double kept = value;
      value = kept + kStep;
      const double above = moved_loss();
      value = kept - kStep;
      want.push_back((above - moved_loss()) / (2 * kStep));
      value = kept;
      largest = std::max(largest, std::abs(want.back()));
    }
    for (size_t i = 0; i < want.size(); ++i)
      ASSERT_NEAR(gradient.elements<float>()[i], want[i], 3e-5 * std::max(largest, 0.1)) << name << " at " << i;
  }
  void check_statistics(const reference::MoeResult& want) {
    const LayerLoad& load = statistics_.layers().at(kLayer);
    int64_t sent = 0;
    for (const int64_t tokens : load.tokens) sent += tokens;
    const bool drops = rank_.config.training.moe_expert_capacity_factor.has_value();
    EXPECT_EQ(sent + load.dropped, kSeq * kBatch * rank_.config.model.moe_router_topk);
    EXPECT_EQ(load.dropped > 0, drops);
    const MixtureOfExpertsConfig& moe = rank_.config.training;
    const double all = balancing_coefficient(moe, kAuxLoss) * load.losses.aux +
                       balancing_coefficient(moe, kSeqAuxLoss) * load.losses.seq_aux +
                       moe.moe_z_loss_coeff.value_or(0) * load.losses.z;
    EXPECT_NEAR(kScale * all, want.auxiliary, 1e-5 * std::max(1.0, want.auxiliary));
  }

  Rank& rank_;
  RoutingStatistics statistics_;
  MoeLayer layer_;
  layout::LayerSlots slots_;
  std::vector<int64_t> samples_ = {0, 1};
  SequenceContext sequence_{.samples = samples_, .auxiliary_scale = kScale};
  core::Tensor x_, dy_;
};

void check_all(bool refilled) {
  for (const Case& one : kCases) {
    SCOPED_TRACE(one.name);
    const test::TemporaryFolder folder;
    const TrainerConfig config = config_of(folder.path(), one);
    test::run_thread_ranks(1, [&](core::Endpoint& endpoint) {
      Rank rank(endpoint, config);
      MoeLayerCheck(rank).run(refilled);
    });
  }
}

TEST(MoeLayer, ResultAndGradientsAreThoseOfTheDefinition) { check_all(false); }
TEST(MoeLayer, GradientsAfterRefillAreThoseOfTheDefinition) { check_all(true); }

// Outside training nothing is balanced: the choice is by the scores.
TEST(MoeLayer, SinkhornChoosesInTrainingOnly) {
  const test::TemporaryFolder folder;
  TrainerConfig config = config_of(folder.path(), kCases[0]);
  config.training.moe_router_load_balancing_type = {std::string(kSinkhorn)};
  config.model.moe_router_topk = 1;
  test::run_thread_ranks(1, [&](core::Endpoint& endpoint) {
    Rank rank(endpoint, config);
    Parameter& router = rank.parameters->at(kPrefix + "mlp.router.weight");
    const int64_t hidden = rank.config.model.hidden_size;
    for (int64_t i = 0; i < hidden; ++i) router.weight.data<float>()[i] = 1;  // all tokens prefer expert 0
    for (Parameter& parameter : rank.parameters->all())
      if (parameter.spec.key.find("norm") != std::string::npos)
        for (float& value : parameter.weight.elements<float>()) value = 1;
    MoeLayer layer(*rank.state, *rank.parameters, kLayer);
    core::Tensor x(rank.arena, core::DType::kFp32, {6, 2, hidden}, core::MemoryTag::kTmp);
    const auto values = test::RandomValues(5).make<float>(x.size(), 0.5F);
    for (size_t i = 0; i < values.size(); ++i) x.elements<float>()[i] = 1 + values[i];
    const std::vector<int64_t> samples = {0, 1};
    for (const bool training : {true, false}) {
      FeedForwardActivations saved;
      SequenceContext sequence;
      if (training) sequence.samples = samples;
      layer.forward(x, saved, {}, nullptr, sequence);
      const std::vector<int64_t>& ends = saved.moe.ends;
      EXPECT_EQ(ends[0] == 12, !training) << ends[0] << " tokens of expert 0";
    }
  });
}

// Of 8 experts two have nearly all tokens, whose directions differ little; the auxiliary loss alone moves the router.
TEST(MoeLayer, AuxiliaryLossEvensTheLoad) {
  const test::TemporaryFolder folder;
  TrainerConfig config = config_of(folder.path(), kCases[0]);
  config.model.num_experts = 8;
  config.training.moe_aux_loss_coeff = {1};
  test::run_thread_ranks(1, [&](core::Endpoint& endpoint) {
    Rank rank(endpoint, config);
    for (Parameter& parameter : rank.parameters->all()) {
      const bool is_norm = parameter.spec.key.find("norm") != std::string::npos;
      const auto values =
          test::RandomValues(static_cast<uint64_t>(parameter.offset_elems)).make<float>(parameter.size(), 0.1F);
      for (size_t i = 0; i < values.size(); ++i) parameter.weight.elements<float>()[i] = is_norm ? 1 : values[i];
    }
    Parameter& router = rank.parameters->at(kPrefix + "mlp.router.weight");
    const int64_t hidden = rank.config.model.hidden_size;
    for (int64_t i = 0; i < 2 * hidden; ++i) router.weight.data<float>()[i] += 0.1F;
    core::Tensor x(rank.arena, core::DType::kFp32, {64, 2, hidden}, core::MemoryTag::kTmp);
    const auto values = test::RandomValues(3).make<float>(x.size(), 1);
    for (size_t i = 0; i < values.size(); ++i) x.elements<float>()[i] = 1 + values[i];
    core::Tensor dy = core::Tensor::zeros(rank.arena, core::DType::kFp32, x.shape(), core::MemoryTag::kTmp);
    RoutingStatistics statistics;
    rank.state->routing = &statistics;
    MoeLayer layer(*rank.state, *rank.parameters, kLayer);
    const std::vector<int64_t> samples = {0, 1};
    const SequenceContext sequence{.samples = samples, .auxiliary_scale = 1};
    std::vector<double> shares;  // of the busiest expert, as a multiple of the mean
    for (int step = 0; step < 200; ++step) {
      FeedForwardActivations saved;
      WeightGradients weights;
      rank.parameters->zero_grads();
      statistics.clear();
      layer.forward(x, saved, {}, nullptr, sequence);
      layer.backward(dy, x, saved, dy, sequence, weights);
      const std::vector<int64_t>& tokens = statistics.layers().at(kLayer).tokens;
      shares.push_back(static_cast<double>(*std::ranges::max_element(tokens)) / (64 * 2 * 2 / 8.0));
      for (int64_t i = 0; i < router.size(); ++i)
        router.weight.data<float>()[i] -= 0.1F * router.main_grad.data<float>()[i];
    }
    EXPECT_GT(shares.front(), 3);
    EXPECT_LT(shares.back(), 1.5);
  });
}

}  // namespace
}  // namespace ms::train
