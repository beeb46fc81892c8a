#include "train/model/transformer_layer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

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
    const auto rope = make_rope_table(rank.arena, rank.config.model, {{0, kSeq}}, kSeq);
    const std::vector<int64_t> samples = {5, 9};
    TransformerLayer layer(*rank.state, *rank.parameters, rope ? &*rope : nullptr, /*layer=*/1);
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

// A module's slots are the micro-batch's own: forwards and backwards of all kinds alternate in one layer.
TEST(TransformerLayer, MicrobatchesWithOtherSlotsHaveTheSameGradients) {
  std::vector<layout::LayerSlots> kinds(1);  // the first keeps all
  for (const layout::RecomputedParts parts :
       {layout::kRecomputedNorms, layout::kRecomputedActivation, layout::kRecomputedMlp})
    kinds.emplace_back().recompute(parts);
  kinds.emplace_back().run_again(/*keeps_input=*/true);
  for_each_case(kCases, [&](Rank& rank) {
    const auto rope = make_rope_table(rank.arena, rank.config.model, {{0, kSeq}}, kSeq);
    const std::vector<int64_t> samples = {5, 9};
    TransformerLayer layer(*rank.state, *rank.parameters, rope ? &*rope : nullptr, /*layer=*/1);
    core::Tensor x(rank.arena, core::DType::kFp32, hidden_shape(rank, kSeq, kBatch), core::MemoryTag::kAct);
    core::Tensor dy(rank.arena, core::DType::kFp32, x.shape(), core::MemoryTag::kAct);
    for (int64_t i = 0; i < x.size(); ++i) {
      x.data<float>()[i] = std::sin(static_cast<float>(i));
      dy.data<float>()[i] = std::cos(static_cast<float>(3 * i));
    }
    for (Parameter& parameter : rank.parameters->all()) {
      int64_t i = parameter.offset_elems;
      for (float& value : parameter.weight.elements<float>()) value = 0.3F * std::sin(static_cast<float>(7 * i++));
    }
    rank.parameters->note_weight_change();
    const auto bytes_of = [](const core::TensorView& tensor) {
      return std::string(reinterpret_cast<const char*>(tensor.bytes()), static_cast<size_t>(tensor.size_bytes()));
    };
    std::vector<LayerActivations> saved(kinds.size());
    std::vector<std::string> outputs, gradients, weights;
    for (size_t i = 0; i < kinds.size(); ++i) {
      saved[i].input = ops::cast(rank.ops, x, x.dtype());
      saved[i].slots = kinds[i];
      outputs.push_back(bytes_of(layer.forward(saved[i], {.samples = samples})));
      for (const layout::SavedSlotProperties& of : layout::kSavedSlots) {
        const core::Tensor* tensor = saved[i].tensor(of.slot);
        EXPECT_FALSE(tensor != nullptr && tensor->defined() && kinds[i].module_drops(of.slot)) << i << ", " << of.name;
      }
      if (kinds[i].runs_again()) saved[i].drop();
    }
    for (size_t i = kinds.size(); i-- > 0;) {
      rank.parameters->zero_grads();
      if (!saved[i].complete) layer.refill(saved[i], {.samples = samples});
      WeightGradients at_once;
      gradients.push_back(
          bytes_of(layer.backward(ops::cast(rank.ops, dy, dy.dtype()), saved[i], {.samples = samples}, at_once)));
      weights.push_back(bytes_of(rank.parameters->grads()));
    }
    for (size_t i = 0; i < kinds.size(); ++i) {
      EXPECT_EQ(outputs[i], outputs[0]) << i;
      EXPECT_EQ(gradients[i], gradients[0]) << i;
      EXPECT_EQ(weights[i], weights[0]) << i;
    }
  });
}

TEST(TransformerLayer, RefusesABackwardOfDroppedActivations) {
  for_each_case({kCases[0]}, [&](Rank& rank) {
    TransformerLayer layer(*rank.state, *rank.parameters, nullptr, /*layer=*/1);
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
