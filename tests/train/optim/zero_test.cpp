// ZeRO-2 against ZeRO-1: the same sums, of each micro-batch apart, and fewer gradients in memory. ZeRO-3 against
// ZeRO-2: the same bits, of weights that are there only while they are read.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "tests/support/thread_comm.h"
#include "tests/support/tiny_run.h"
#include "tests/train/model/rank.h"
#include "train/loop/step.h"
#include "train/optim/optimizer.h"

namespace ms::train {
namespace {

using test::Outcome;
using test::TinyLayout;

Outcome run(TrainerConfig config, int ranks, const std::string& save) {
  config.training.train_iters = 5;
  return test::outcome_of(std::move(config), ranks, save);
}

TinyLayout with_stage(TinyLayout layout, int zero) {
  layout.zero = zero;
  return layout;
}

// What one micro-batch leaves is the sum over the replicas in both, and the owners are the same.
TEST(ZeroTwo, OfOneMicrobatchHasTheBitsOfZeroOne) {
  for (const TinyLayout& layout : {TinyLayout{1, 1, 2}, TinyLayout{1, 1, 4}, TinyLayout{2, 1, 2, 0, true},
                                   TinyLayout{1, 2, 2}, TinyLayout{2, 2, 2, 0, true}}) {
    for (const bool bf16 : {false, true}) {
      for (const bool shares_memory : {false, true}) {
        SCOPED_TRACE(core::cat(layout.name(), bf16 ? " bf16" : " fp32", shares_memory ? " shared" : ""));
        const test::TemporaryFolder folder;
        const auto of_stage = [&](int zero) {
          TrainerConfig config = test::tiny_config(folder.path(), with_stage(layout, zero));
          config.training.global_batch_size = layout.dp;
          config.training.bf16 = bf16;
          config.parallel.shared_memory = shares_memory;
          return run(config, layout.ranks(), folder / core::cat("zero", zero));
        };
        const Outcome one = of_stage(1), two = of_stage(2);
        test::expect_same_bits(two, one);
      }
    }
  }
}

struct Change {
  const char* name;
  void (*set)(TrainerConfig&);
};

const Change kChanges[] = {
    {"plain", [](TrainerConfig&) {}},
    {"tied", [](TrainerConfig& config) { config.model.untie_embeddings_and_output_weights = false; }},
    {"GPT",
     [](TrainerConfig& config) {
       config.model.normalization = "LayerNorm";
       config.model.position_embedding_type = "learned_absolute";
       config.model.swiglu = false;
       config.model.add_bias_linear = true;
       config.model.untie_embeddings_and_output_weights = false;
     }},
    {"experts",
     [](TrainerConfig& config) {
       config.model.num_experts = 5;
       config.model.moe_ffn_hidden_size = 24;
       config.model.moe_router_topk = 3;
     }},
    {"frozen parts",
     [](TrainerConfig& config) { config.optimizer.freeze_parameters = "layers.1|linear_qkv|final_layernorm"; }},
    {"recomputed",
     [](TrainerConfig& config) {
       config.training.recompute_granularity = "full";
       config.training.recompute_method = "uniform";
       config.training.recompute_num_layers = 2;
     }},
    {"gathers overlapped", [](TrainerConfig& config) { config.parallel.overlap_param_gather = true; }},
    {"norms and zeros in the log",
     [](TrainerConfig& config) { config.logger.log_num_zeros_in_grad = config.logger.log_params_norm = true; }},
};

// Several micro-batches are added up in another order: replicas first.
TEST(ZeroTwo, OfSeveralMicrobatchesAgreesWithZeroOneToTheRoundingOfSums) {
  for (const Change& change : kChanges) {
    for (const TinyLayout& layout : {TinyLayout{1, 1, 4}, TinyLayout{1, 2, 2}}) {
      SCOPED_TRACE(core::cat(change.name, ", ", layout.name()));
      const test::TemporaryFolder folder;
      const auto of_stage = [&](int zero) {
        TrainerConfig config = test::tiny_config(folder.path(), with_stage(layout, zero));
        config.training.global_batch_size = 12;
        config.optimizer.optimizer =
            "sgd";  // AdamW makes steps of the roundoff in gradients that are 0, as of key biases
        config.optimizer.lr = 0.1;
        change.set(config);
        if (zero == 1) config.parallel.overlap_grad_reduce = config.parallel.overlap_param_gather;
        return run(config, layout.ranks(), folder / core::cat("zero", zero));
      };
      const Outcome one = of_stage(1), two = of_stage(2);
      for (size_t i = 0; i < one.summary.steps.size(); ++i) {
        EXPECT_NEAR(two.summary.steps[i].loss, one.summary.steps[i].loss, 1e-5 * one.summary.steps[i].loss)
            << "step " << i + 1;
        EXPECT_NEAR(two.summary.steps[i].grad_norm, one.summary.steps[i].grad_norm,
                    1e-4 * one.summary.steps[i].grad_norm);
        if (std::isnan(one.summary.steps[i].params_norm)) continue;
        EXPECT_NEAR(two.summary.steps[i].params_norm, one.summary.steps[i].params_norm,
                    1e-6 * one.summary.steps[i].params_norm);
        EXPECT_EQ(two.summary.steps[i].num_zeros, one.summary.steps[i].num_zeros);
      }
      EXPECT_LT(test::largest_distance(two.weights, one.weights), 1e-5);
    }
  }
}

// ZeRO-3 only moves weights.
TEST(ZeroThree, HasTheBitsOfZeroTwo) {
  for (const Change& change : kChanges) {
    for (const TinyLayout& layout : {TinyLayout{1, 1, 4}, TinyLayout{1, 2, 2}, TinyLayout{2, 1, 2, 0, true}}) {
      if (std::string(change.name) == "experts" && layout.tp > 1) continue;
      for (const bool bf16 : {false, true}) {
        SCOPED_TRACE(core::cat(change.name, ", ", layout.name(), bf16 ? " bf16" : " fp32"));
        const test::TemporaryFolder folder;
        const auto of_stage = [&](int zero) {
          TrainerConfig config = test::tiny_config(folder.path(), with_stage(layout, zero));
          config.training.global_batch_size = 12;
          config.training.bf16 = bf16;
          config.parallel.shared_memory = !bf16;
          change.set(config);
          return run(config, layout.ranks(), folder / core::cat("zero", zero));
        };
        const Outcome two = of_stage(2), three = of_stage(3);
        test::expect_same_bits(three, two);
      }
    }
  }
}

// With --reuse-fp32-param the bf16 weights that a rank owns are one half of its master weights.
TEST(ZeroThree, SharesMasterWeightsBitForBit) {
  const test::TemporaryFolder folder;
  const auto with = [&](bool reuses, int zero) {
    TrainerConfig config = test::tiny_config(folder.path(), {1, 1, 2, zero});
    config.training.bf16 = true;
    config.optimizer.reuse_fp32_param = reuses;
    return run(config, 2, folder / core::cat("zero", zero, reuses));
  };
  const Outcome plain = with(false, 3), shared = with(true, 3), two = with(true, 2);
  EXPECT_EQ(shared.summary.steps.back().loss, plain.summary.steps.back().loss);
  EXPECT_EQ(test::largest_distance(shared.weights, plain.weights), 0);
  EXPECT_EQ(test::largest_distance(two.weights, plain.weights), 0);
}

// Passes on what a stage says, but for one gradients_are_added, or instead of one acquire_weights gives the unit other
// weights, as memory would have that nothing was gathered into.
class Forgetful : public ParameterObserver {
 public:
  struct Fault {
    int64_t unit = ParameterObserver::kNone;
    int number = 0;        // of the unit's calls in a step that fails
    bool weights = false;  // acquire_weights, else gradients_are_added
  };
  Forgetful(ParameterObserver& target, ParameterStore& parameters, const Fault& fault)
      : target_(target), parameters_(parameters), fault_(fault), other_weights_(1 << 16, 0.01F) {}
  void acquire_gradients(int64_t unit) override { target_.acquire_gradients(unit); }
  void gradients_are_added(int64_t unit) override {
    if (!fails(unit, /*weights=*/false)) target_.gradients_are_added(unit);
  }
  void gradients_are_final(int64_t unit) override { target_.gradients_are_final(unit); }
  void acquire_weights(int64_t unit, int64_t next) override {
    target_.acquire_weights(unit, next);  // all ranks communicate alike
    if (fails(unit, /*weights=*/true))
      parameters_.place_weights(number_of(unit), reinterpret_cast<std::byte*>(other_weights_.data()));
  }
  void release_weights(int64_t unit) override { target_.release_weights(unit); }

 private:
  size_t number_of(int64_t unit) const {
    const std::vector<layout::BufferCut::Unit>& units = parameters_.cut().units();
    return static_cast<size_t>(std::ranges::find(units, unit, &layout::BufferCut::Unit::id) - units.begin());
  }
  bool fails(int64_t unit, bool weights) {
    return unit == fault_.unit && weights == fault_.weights && fault_.number-- == 0;
  }

  ParameterObserver& target_;
  ParameterStore& parameters_;
  Fault fault_;
  std::vector<float> other_weights_;
};

struct Reduced {
  std::vector<int64_t> reductions;  // that rank 0 has posted as each action ends
  std::vector<int64_t> gathers;     // the same
  std::vector<float> gradients;     // of rank 0, those that it owns
};

// A step of three micro-batches on two replicas, forward and backward of each.
Reduced reduce(int zero, const Forgetful::Fault& fault = {}) {
  Reduced seen;
  const test::TemporaryFolder folder;
  TrainerConfig config = test::tiny_config(folder.path(), {1, 1, 2, zero});
  config.training.global_batch_size = 6;
  test::run_thread_ranks(2, [&](core::Endpoint& endpoint) {
    Rank rank(endpoint, config);
    Buckets buckets(*rank.state, *rank.parameters);
    buckets.follow_stage();
    Forgetful observer(buckets, *rank.parameters, fault);
    GptStage stage(*rank.state, *rank.parameters);
    stage.set_parameter_observer(&observer);
    StepRunner runner(*rank.state, stage);
    rank.parameters->initialize(1, [](const Parameter&, const core::TensorView&) {});
    class Ends : public ActionObserver {
     public:
      explicit Ends(const core::Communicator& replicas) : replicas_(replicas) {}
      void begins(std::span<const layout::ScheduleAction> /*actions*/) override {}
      void ends(std::span<const layout::ScheduleAction> /*actions*/) override {
        reductions.push_back(replicas_.counter(core::CommOp::kReduceScatter).calls);
        gathers.push_back(replicas_.counter(core::CommOp::kAllgather).calls);
      }
      std::vector<int64_t> reductions, gathers;

     private:
      const core::Communicator& replicas_;
    } ends(rank.groups->dp_cp);
    runner.set_observer(&ends);
    runner.train(test::drawn_microbatches(3, 1 + endpoint.rank()), 1);
    buckets.finish_reduction();
    if (endpoint.rank() != 0) return;
    const std::span<float> owned = rank.parameters->grads().elements<float>();
    seen = {ends.reductions, ends.gathers, {owned.begin(), owned.end()}};
  });
  return seen;
}

// Four layers, the embedding and the output layer.
TEST(ZeroTwo, ReducesEveryUnitBehindEachBackward) {
  EXPECT_EQ(reduce(2).reductions, (std::vector<int64_t>{0, 6, 6, 12, 12, 18}));
  EXPECT_EQ(reduce(2).gathers, std::vector<int64_t>(6, 0)) << "after the update";
}

TEST(ZeroThree, GathersEveryUnitBeforeEachForwardAndBackward) {
  const Reduced three = reduce(3), two = reduce(2);
  EXPECT_EQ(three.reductions, (std::vector<int64_t>{0, 6, 6, 12, 12, 18}));
  EXPECT_EQ(three.gathers, (std::vector<int64_t>{6, 11, 17, 22, 28, 33})) << "an embedding's backward reads no weights";
  EXPECT_EQ(three.gradients, two.gradients);
}

// What a unit's reduction leaves out goes with the next micro-batch; of the last one it would be lost.
TEST(ZeroTwo, SaysThatAReductionWasLeftOut) {
  for (const int64_t unit : {-1, 2, 4}) {
    try {
      reduce(2, {.unit = unit, .number = 2});
      FAIL() << "unit " << unit;
    } catch (const core::Error& error) {
      EXPECT_NE(std::string(error.what()).find(core::cat("unit ", unit)), std::string::npos) << error.what();
    }
  }
}

// Of a forward, or a backward: the second of each micro-batch, but of the embedding.
TEST(ZeroThree, WeightsThatWereNotGatheredChangeTheGradients) {
  const Reduced whole = reduce(3);
  for (const int64_t unit : {0, 3, 4}) {
    for (const int number : {0, 1, 4, 5}) {
      const Reduced other = reduce(3, {.unit = unit, .number = number, .weights = true});
      EXPECT_NE(other.gradients, whole.gradients) << "unit " << unit << ", use " << number;
    }
  }
}

}  // namespace
}  // namespace ms::train
