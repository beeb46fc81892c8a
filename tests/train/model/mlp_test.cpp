#include "train/model/mlp.h"

#include <gtest/gtest.h>

#include "core/layout/slot_policy.h"
#include "tests/train/model/gradient_check.h"
#include "train/ops/elementwise.h"

namespace ms::train {
namespace {

constexpr int64_t kSeq = 8, kBatch = 2;

const std::vector<ModuleCase> kCases = {
    {"SwiGLU", [](TrainerConfig&) {}},
    {"GELU with biases and LayerNorm",
     [](TrainerConfig& config) {
       config.model.swiglu = false;
       config.model.add_bias_linear = true;
       config.model.normalization = "LayerNorm";
     }},
    {"squared ReLU",
     [](TrainerConfig& config) {
       config.model.swiglu = false;
       config.model.squared_relu = true;
     }},
    {"a norm behind it", [](TrainerConfig& config) { config.model.post_norm = true; }},
    {"plain operators", [](TrainerConfig& config) { config.training.optimization_level = 0; }},
    {"dropped norms and activations",
     [](TrainerConfig& config) {
       config.training.recompute_norm = config.training.recompute_activation_function = true;
     }},
    {"dropped linear_fc1",
     [](TrainerConfig& config) {
       config.training.recompute_granularity = "selective";
       config.training.recompute_modules = {"mlp"};
     }},
};

// deferred: the weights' gradients are computed after the backward. refilled: what forward left is dropped and made
// once more.
void check_gradients(bool deferred, bool refilled) {
  for_each_case(kCases, [&](Rank& rank) {
    Mlp mlp(*rank.state, *rank.parameters, /*layer=*/1);
    const layout::LayerSlots slots = layout::layer_slots(rank.config.recompute_plan(), {}, 1);
    FeedForwardActivations saved;
    core::Tensor input;
    GradientCheck check(rank,
                        {.forward =
                             [&](const core::TensorView& x) {
                               saved = {};
                               input = ops::cast(rank.ops, x, x.dtype());
                               return mlp.forward(x, saved, slots, &x, {});
                             },
                         .backward =
                             [&](core::Tensor dy) {
                               if (refilled) {
                                 saved = {};
                                 mlp.refill(input, saved, slots, {});
                               }
                               WeightGradients weights;
                               if (deferred) weights.defer();
                               core::Tensor dx = mlp.backward(dy, input, saved, dy, {}, weights);
                               dy.reset();
                               weights.run();
                               return dx;
                             }},
                        "decoder.layers.1.mlp.");
    check.run(hidden_shape(rank, kSeq, kBatch));
  });
}

TEST(Mlp, GradientsAreThoseOfItsForward) { check_gradients(false, false); }
TEST(Mlp, DeferredGradientsOfWeightsAreThoseOfItsForward) { check_gradients(true, false); }
TEST(Mlp, GradientsAfterRefillAreThoseOfItsForward) { check_gradients(false, true); }

}  // namespace
}  // namespace ms::train
