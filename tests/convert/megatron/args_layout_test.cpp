#include "convert/megatron/args_layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "convert/torch/pickle_writer.h"
#include "core/error.h"
#include "tests/support/thrown.h"

namespace ms::convert {
namespace {

using core::ErrorCode;
using test::thrown_by;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

core::TransformerConfig model_of(int64_t layers) {
  core::TransformerConfig model;
  model.num_layers = layers;
  model.hidden_size = 8;
  model.num_attention_heads = 2;
  model.vocab_size = 29;
  model.resolve(8);
  return model;
}

std::vector<int64_t> layers_of(int64_t layers, const std::vector<std::pair<std::string, int64_t>>& members) {
  const Pickle pickle(make_pickle([&](PickleWriter& writer) {
                        writer.dict([&] {
                          for (const auto& [name, value] : members) {
                            writer.text(name);
                            writer.integer(value);
                          }
                        });
                      }),
                      "a.pt");
  const MegatronArgs args(pickle.root(), "a.pt");
  return megatron_model_of_args(args, model_of(layers), 32, MegatronNaming::kLocal).layout.num_layer_list;
}

TEST(ArgsLayoutTest, LayersAreSplitAsArgsSay) {
  EXPECT_THAT(layers_of(8, {{"pipeline_model_parallel_size", 4}}), IsEmpty());
  EXPECT_THAT(layers_of(8, {{"pipeline_model_parallel_size", 4}, {"decoder_first_pipeline_num_layers", 2}}),
              ElementsAre(2, 2, 2, 2));
  EXPECT_THAT(layers_of(9, {{"pipeline_model_parallel_size", 4},
                            {"decoder_first_pipeline_num_layers", 3},
                            {"decoder_last_pipeline_num_layers", 2}}),
              ElementsAre(3, 2, 2, 2));
  EXPECT_THAT(layers_of(12, {{"pipeline_model_parallel_size", 2},
                             {"virtual_pipeline_model_parallel_size", 2},
                             {"decoder_first_pipeline_num_layers", 4}}),
              ElementsAre(2, 4, 2, 4));
  EXPECT_THAT(layers_of(6, {{"pipeline_model_parallel_size", 4},
                            {"account_for_embedding_in_pipeline_split", 1},
                            {"account_for_loss_in_pipeline_split", 1}}),
              ElementsAre(1, 2, 2, 1));
}

TEST(ArgsLayoutTest, ImpossibleLayoutsAreRefused) {
  for (const auto& [name, value] :
       {std::pair("decoder_first_pipeline_num_layers", 9), std::pair("account_for_loss_in_pipeline_split", 1),
        std::pair("decoder_last_pipeline_num_layers", 1)}) {
    const auto thrown = thrown_by([&, name = name, value = value] {
      layers_of(6, {{"pipeline_model_parallel_size", 3}, {name, value}});
    });
    EXPECT_EQ(thrown.code, ErrorCode::kCorruptData) << name;
    EXPECT_THAT(thrown.text, HasSubstr("a.pt: args: "));
  }
  EXPECT_EQ(thrown_by([] { layers_of(6, {{"pipeline_model_parallel_size", 4}}); }).code, ErrorCode::kCorruptData);
  for (const auto& [name, value] :  // of which no list is allocated
       {std::pair("account_for_embedding_in_pipeline_split", 1),
        std::pair("decoder_first_pipeline_num_layers", 65536)}) {
    const auto thrown = thrown_by([&, name = name, value = value] {
      layers_of(
          65536,
          {{"pipeline_model_parallel_size", 1 << 20}, {"virtual_pipeline_model_parallel_size", 65536}, {name, value}});
    });
    EXPECT_EQ(thrown.code, ErrorCode::kCorruptData) << thrown.text;
    EXPECT_THAT(thrown.text, HasSubstr("65536 layers do not fill 1048576 stages of 65536 chunks"));
  }
  const auto thrown = thrown_by([] { layers_of(6, {{"pipeline_model_parallel_layout", 1}}); });
  EXPECT_EQ(thrown.code, ErrorCode::kUnsupported);
  EXPECT_THAT(thrown.text, HasSubstr("args.pipeline_model_parallel_layout is set"));
}

}  // namespace
}  // namespace ms::convert
