#include "train/model/embedding.h"

#include <gtest/gtest.h>

#include "tests/train/model/gradient_check.h"

namespace ms::train {
namespace {

constexpr int64_t kSeq = 8, kBatch = 2;

const std::vector<ModuleCase> kCases = {
    {"words", [](TrainerConfig&) {}},
    {"learned positions and dropout",
     [](TrainerConfig& config) {
       config.model.position_embedding_type = "learned_absolute";
       config.model.max_position_embeddings = 16;
       config.model.hidden_dropout = 0.3;
     }},
    {"learned positions of packed documents",
     [](TrainerConfig& config) {
       config.model.position_embedding_type = "learned_absolute";
       config.model.max_position_embeddings = 16;
       config.training.reset_position_ids = true;
     }},
    {"multiplied words", [](TrainerConfig& config) { config.model.input_embeds_norm = true; }},
    {"tied words", [](TrainerConfig& config) { config.model.untie_embeddings_and_output_weights = false; }},
};

TEST(Embedding, GradientsAreThoseOfItsForward) {
  for_each_case(kCases, [&](Rank& rank) {
    Microbatch microbatch;
    microbatch.batch = kBatch, microbatch.seq = kSeq;
    for (int32_t i = 0; i < kSeq * kBatch; ++i) microbatch.tokens.push_back(i * 61 % 257);
    microbatch.tokens[3] = microbatch.tokens[9];  // a word that comes twice
    if (rank.config.training.reset_position_ids)
      microbatch.positions = {0, 0, 1, 1, 2, 2, 0, 3, 1, 4, 2, 5, 3, 0, 4, 1};
    const std::vector<int64_t> samples = {2, 8};
    Embedding embedding(*rank.state, *rank.parameters);
    GradientCheck check(rank,
                        {.forward = [&](const core::TensorView&) { return embedding.forward(microbatch, samples); },
                         .backward =
                             [&](core::Tensor dy) {
                               embedding.backward(microbatch, std::move(dy), samples);
                               embedding.fold_tied_gradient();
                               return core::Tensor();
                             }},
                        "embedding.");
    check.run({});
  });
}

}  // namespace
}  // namespace ms::train
