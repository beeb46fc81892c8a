#include "train/model/transformer_layer.h"

#include <gtest/gtest.h>

#include "core/error.h"
#include "tests/train/model/gradient_check.h"
#include "train/model/rotary_embedding.h"
#include "train/ops/elementwise.h"

namespace ms::train {
namespace {

constexpr int64_t kSeq = 8, kBatch = 2;

const std::vector<ModuleCase> kCases = {
    {"Llama", [](TrainerConfig&) {}},
    {"GPT with dropout",
     [](TrainerConfig& config) {
       config.model.swiglu = false;
       config.model.add_bias_linear = true;
       config.model.normalization = "LayerNorm";
       config.model.position_embedding_type = "learned_absolute";
       config.model.hidden_dropout = 0.3;
     }},
    {"norms behind attention and MLP", [](TrainerConfig& config) { config.model.post_norm = true; }},
};

enum class Way { kPlain, kDeferred, kRefilled };

void check_gradients(Way way) {
  for_each_case(kCases, [&](Rank& rank) {
    const auto rope = make_rope_table(rank.arena, rank.config.model, kSeq, kSeq);
    const std::vector<int64_t> samples = {5, 9};
    TransformerLayer layer(*rank.state, *rank.parameters, rope ? &*rope : nullptr, /*layer=*/1,
                           rank.config.recompute_plan().recomputed_outputs(1));
    LayerActivations saved;
    GradientCheck check(rank,
                        {.forward =
                             [&](const core::TensorView& x) {
                               saved = {};
                               saved.input = ops::cast(rank.ops, x, x.dtype());
                               return layer.forward(saved, {.samples = samples});
                             },
                         .backward =
                             [&](core::Tensor dy) {
                               if (way == Way::kRefilled) {
                                 saved.drop();
                                 layer.refill(saved, {.samples = samples});
                               }
                               WeightGradients weights;
                               if (way == Way::kDeferred) weights.defer();
                               core::Tensor dx = layer.backward(std::move(dy), saved, {.samples = samples}, weights);
                               weights.run();
                               return dx;
                             }},
                        "decoder.layers.1.");
    check.run(hidden_shape(rank, kSeq, kBatch));
  });
}

TEST(TransformerLayer, GradientsAreThoseOfItsForward) { check_gradients(Way::kPlain); }
TEST(TransformerLayer, DeferredGradientsOfWeightsAreThoseOfItsForward) { check_gradients(Way::kDeferred); }
TEST(TransformerLayer, GradientsAfterRefillAreThoseOfItsForward) { check_gradients(Way::kRefilled); }

TEST(TransformerLayer, RefusesABackwardOfDroppedActivations) {
  for_each_case({kCases[0]}, [&](Rank& rank) {
    TransformerLayer layer(*rank.state, *rank.parameters, nullptr, /*layer=*/1, {});
    LayerActivations saved;
    saved.input =
        core::Tensor::zeros(rank.arena, core::DType::kFp32, hidden_shape(rank, kSeq, kBatch), core::MemoryTag::kAct);
    core::Tensor dy = layer.forward(saved, {});
    saved.drop();
    WeightGradients weights;
    EXPECT_THROW(layer.backward(std::move(dy), saved, {}, weights), core::Error);
  });
}

}  // namespace
}  // namespace ms::train
