// The order in which optimizers store their state.
#include "convert/megatron/optimizer_order.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ms::convert {
namespace {

using ::testing::ElementsAre;

// A tied model of one layer with norms of q and k, whose second stage has a copy of the embeddings.
class OptimizerOrderTest : public ::testing::Test {
 protected:
  OptimizerOrderTest() {
    const std::pair<const char*, core::Dims> parameters[] = {
        {"embedding.word_embeddings.weight", {16, 4}},
        {"decoder.layers.0.self_attention.linear_qkv.bias", {12}},
        {"decoder.layers.0.self_attention.q_layernorm.weight", {4}},
        {"decoder.layers.0.mlp.linear_fc2.weight", {4, 8}},
    };
    for (const auto& [key, shape] : parameters) {
      MegatronParameter parameter{model_.specs.size(), key, {}, false};
      parameter.tensor.dtype = SafetensorsDType::kBF16;
      parameter.tensor.shape.assign(shape.begin(), shape.end());
      chunks_[0].push_back(std::move(parameter));
      model_.specs.push_back({key, shape});
    }
    model_.specs[0].is_tied_embedding = true;
    chunks_[1] = {chunks_[0][3], chunks_[0][0]};
    chunks_[1][1].is_tied_copy = true;
  }
  static std::vector<std::string> names(const MegatronParameters& parameters) {
    std::vector<std::string> names;
    for (const MegatronParameter* parameter : parameters)
      names.push_back(parameter->name.substr(parameter->name.rfind('.', parameter->name.rfind('.') - 1) + 1));
    return names;
  }

  MegatronModel model_;
  std::vector<MegatronChunk> chunks_{2};
};

TEST_F(OptimizerOrderTest, GroupsSpanAllChunks) {
  const auto groups = optimizer_groups(model_, chunks_, {}, OptimizerPart::kAll);
  ASSERT_EQ(groups.size(), 2u);
  EXPECT_THAT(names(groups[0]), ElementsAre("word_embeddings.weight", "linear_fc2.weight", "linear_fc2.weight",
                                            "word_embeddings.weight"));
  EXPECT_THAT(names(groups[1]), ElementsAre("linear_qkv.bias", "q_layernorm.weight"));
}

TEST_F(OptimizerOrderTest, QkNormsMayDecay) {
  const auto groups =
      optimizer_groups(model_, std::span(chunks_).first(1), {.qk_norms_decay = true}, OptimizerPart::kAll);
  ASSERT_EQ(groups.size(), 2u);
  EXPECT_THAT(names(groups[0]), ElementsAre("word_embeddings.weight", "q_layernorm.weight", "linear_fc2.weight"));
}

TEST_F(OptimizerOrderTest, DecoupledLrSeparatesEmbeddings) {
  const auto groups =
      optimizer_groups(model_, std::span(chunks_).first(1), {.decoupled_lr = true}, OptimizerPart::kAll);
  ASSERT_EQ(groups.size(), 3u);
  EXPECT_THAT(names(groups[2]), ElementsAre("word_embeddings.weight"));
}

TEST_F(OptimizerOrderTest, OneBufferPerTypeInOrderOfFirstUse) {
  chunks_[0][1].tensor.dtype = SafetensorsDType::kF32;
  const auto buffers = optimizer_buffers(model_, chunks_[0], OptimizerPart::kAll);
  ASSERT_EQ(buffers.size(), 2u);
  EXPECT_THAT(names(buffers[0]), ElementsAre("word_embeddings.weight", "q_layernorm.weight", "linear_fc2.weight"));
  EXPECT_THAT(names(buffers[1]), ElementsAre("linear_qkv.bias"));
}

TEST_F(OptimizerOrderTest, TiedEmbeddingsOfTwoStagesAreShared) {
  EXPECT_FALSE(
      flat_parameters(model_, optimizer_buffers(model_, chunks_[0], OptimizerPart::kAll)[0])[0].is_shared_embedding);
  model_.layout.pipeline_model_parallel_size = 2;
  const auto first = flat_parameters(model_, optimizer_buffers(model_, chunks_[0], OptimizerPart::kAll)[0]);
  EXPECT_TRUE(first[0].is_shared_embedding);
  EXPECT_EQ(first[0].elements, 64);
  EXPECT_FALSE(first[3].is_shared_embedding);
  EXPECT_TRUE(
      flat_parameters(model_, optimizer_buffers(model_, chunks_[1], OptimizerPart::kAll)[0])[1].is_shared_embedding);
}

}  // namespace
}  // namespace ms::convert
