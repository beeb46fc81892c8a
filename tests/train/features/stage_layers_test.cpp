// The layers of stages, as Megatron's get_num_layers_to_build gives them.
#include "train/features/stage_layers.h"

#include <gtest/gtest.h>

#include "train/config.h"

namespace ms::train {
namespace {

using Layers = std::vector<int64_t>;

Layers layers(int64_t num_layers, int pp, const std::vector<std::string>& flags) {
  TrainerConfig config;
  core::ConfigFields fields = config.fields();
  fields.parse_flags(flags);
  config.model.num_layers = num_layers;
  config.parallel.pipeline_model_parallel_size = pp;
  return layer_list(config);
}

TEST(StageLayers, AreThoseOfTheFlags) {
  EXPECT_EQ(layers(8, 4, {}), Layers());
  EXPECT_EQ(layers(8, 4, {"--num-layer-list", "1,3,3,1"}), (Layers{1, 3, 3, 1}));
  EXPECT_EQ(layers(8, 4, {"--num-layer-list", "2,2,2,2"}), Layers()) << "even, and the layout says so";
  EXPECT_EQ(layers(8, 2, {"--num-layer-list", "2,2"}), (Layers{2, 2})) << "too few, which the layout's check says";
  EXPECT_EQ(layers(8, 2, {"--pipeline-model-parallel-layout", "Et|ttt|tttt|L"}), (Layers{1, 3, 4, 0}));
  EXPECT_EQ(layers(8, 4, {"--decoder-first-pipeline-num-layers", "3", "--decoder-last-pipeline-num-layers", "1"}),
            (Layers{3, 2, 2, 1}));
  EXPECT_EQ(layers(6, 4, {"--account-for-embedding-in-pipeline-split", "--account-for-loss-in-pipeline-split"}),
            (Layers{1, 2, 2, 1}));
  EXPECT_EQ(layers(7, 4, {"--account-for-loss-in-pipeline-split"}), (Layers{2, 2, 2, 1}));
  EXPECT_EQ(layers(6, 4, {"--standalone-embedding-stage"}), (Layers{0, 2, 2, 2}));
}

TEST(StageLayers, VirtualStagesShareThemEvenly) {
  const std::vector<std::string> chunks = {"--num-virtual-stages-per-pipeline-rank", "2"};
  const auto with = [&](std::vector<std::string> flags) {
    flags.insert(flags.end(), chunks.begin(), chunks.end());
    return flags;
  };
  EXPECT_EQ(layers(10, 3, with({"--decoder-first-pipeline-num-layers", "2"})), (Layers{1, 2, 2, 1, 2, 2}));
  EXPECT_EQ(layers(14, 4, with({"--account-for-embedding-in-pipeline-split", "--account-for-loss-in-pipeline-split"})),
            (Layers{1, 2, 2, 2, 2, 2, 2, 1}));
}

TEST(StageLayers, LayoutStringsSayHowManyChunksAStageHas) {
  TrainerConfig config;
  config.parallel.pipeline_model_parallel_size = 2;
  EXPECT_EQ(chunks_per_stage(config), std::nullopt);
  config.parallel.pipeline_model_parallel_layout = "Et|(t|)*4tL";
  EXPECT_EQ(chunks_per_stage(config), 3);
}

}  // namespace
}  // namespace ms::train
