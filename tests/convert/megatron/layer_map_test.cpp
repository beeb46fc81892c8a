// Every layer has one place, the same as in the diagrams of Megatron's and MindSpeed-LLM's sources.
#include "convert/megatron/layer_map.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "core/error.h"
#include "core/layout/model_layout.h"
#include "tests/support/thrown.h"

namespace ms::convert {
namespace {

using test::thrown_by;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Layers = std::vector<int64_t>;

MegatronLayerMap make(int64_t layers, int pp, int vpp, Layers noops = {}, bool dualpipev = false) {
  layout::ModelLayout layout;
  layout.pipeline_model_parallel_size = pp;
  layout.virtual_pipeline_model_parallel_size = vpp;
  return MegatronLayerMap(layers, layout, {std::move(noops), dualpipev});
}

Layers slots(const MegatronLayerMap& map, int pp, int chunk) {
  Layers layers;
  for (const std::optional<int64_t>& layer : map.slots(pp, chunk)) layers.push_back(layer.value_or(-1));
  return layers;
}

TEST(MegatronLayerMapTest, MatchesTheDiagramsInTheSources) {
  const MegatronLayerMap even = make(8, 2, 2);
  EXPECT_THAT(slots(even, 0, 0), ElementsAre(0, 1));
  EXPECT_THAT(slots(even, 1, 0), ElementsAre(2, 3));
  EXPECT_THAT(slots(even, 0, 1), ElementsAre(4, 5));
  EXPECT_TRUE(even.is_last_chunk(1, 1));
  EXPECT_FALSE(even.is_last_chunk(0, 1));
  const MegatronLayerMap v2 = make(8, 2, 2, {}, true);  // [0 1 6 7 | 2 3 4 5]
  EXPECT_THAT(slots(v2, 0, 0), ElementsAre(0, 1));
  EXPECT_THAT(slots(v2, 0, 1), ElementsAre(6, 7));
  EXPECT_THAT(slots(v2, 1, 0), ElementsAre(2, 3));
  EXPECT_THAT(slots(v2, 1, 1), ElementsAre(4, 5));
  EXPECT_TRUE(v2.is_last_chunk(0, 1));
  EXPECT_FALSE(v2.is_last_chunk(1, 1));
  const MegatronLayerMap v4 = make(8, 4, 2, {}, true);  // [0 7 | 1 6 | 2 5 | 3 4]
  for (int pp = 0; pp < 4; ++pp) {
    EXPECT_THAT(slots(v4, pp, 0), ElementsAre(pp));
    EXPECT_THAT(slots(v4, pp, 1), ElementsAre(7 - pp));
  }
  const MegatronLayerMap noops = make(6, 2, 2, {4, 5});  // an empty chunk
  EXPECT_THAT(slots(noops, 0, 1), ElementsAre(-1, -1));
  EXPECT_THAT(slots(noops, 1, 1), ElementsAre(4, 5));
  EXPECT_EQ(noops.num_slots(), 8);
  layout::ModelLayout uneven;
  uneven.pipeline_model_parallel_size = 3;
  uneven.num_layer_list = {1, 3, 2};
  EXPECT_THAT(slots(MegatronLayerMap(6, uneven, {}), 1, 0), ElementsAre(1, 2, 3));
}

// Slots are taken alternately from both ends of the list, as in the converter.
TEST(MegatronLayerMapTest, DualpipeVWithNoOpLayersMatchesTheConverter) {
  for (const int pp : {2, 3, 4}) {
    for (const int64_t each : {1, 2, 3}) {
      const int64_t total = 2 * pp * each;
      for (int64_t first = 0; first < total; ++first) {
        for (const Layers& noops : {Layers{}, Layers{first}, Layers{std::min(first, total - 1 - first), total - 1}}) {
          if (std::adjacent_find(noops.begin(), noops.end()) != noops.end()) continue;
          const MegatronLayerMap map = make(total - static_cast<int64_t>(noops.size()), pp, 2, noops, true);
          Layers left(static_cast<size_t>(total));
          for (int64_t layer = 0, slot = 0; slot < total; ++slot) {
            left[static_cast<size_t>(slot)] = std::count(noops.begin(), noops.end(), slot) > 0 ? -1 : layer++;
          }
          for (int stage = 0; stage < pp; ++stage) {
            EXPECT_EQ(slots(map, stage, 0), Layers(left.begin(), left.begin() + each));
            EXPECT_EQ(slots(map, stage, 1), Layers(left.end() - each, left.end()));
            left = Layers(left.begin() + each, left.end() - each);
          }
        }
      }
    }
  }
}

TEST(MegatronLayerMapTest, PlacesInvertSlots) {
  for (const bool in_a_v : {false, true}) {
    const MegatronLayerMap map = make(9, 2, 2, {0, 5, 11}, in_a_v);
    for (int64_t layer = 0; layer < 9; ++layer) {
      const layout::Placement::Slot at = map.slot_of(layer);
      EXPECT_EQ(map.slots(at.place.stage, at.place.chunk)[static_cast<size_t>(at.index)], layer);
    }
  }
}

TEST(MegatronLayerMapTest, ImpossibleLayoutsAreRefused) {
  const auto text = [](auto&&... args) { return thrown_by([&] { make(args...); }).text; };
  EXPECT_THAT(text(7, 2, 1), HasSubstr("7 layers are not a multiple of the 2 pipeline stages"));
  EXPECT_THAT(text(7, 2, 2, Layers{1, 2, 3}), HasSubstr("10 layers, including no-op layers, are not a multiple of 2"));
  EXPECT_THAT(text(7, 2, 1, Layers{8}), HasSubstr("--noop-layers: 8 is not one of 8 layers"));
  EXPECT_THAT(text(6, 2, 1, Layers{3, 3}), HasSubstr("3 occurs twice"));
  EXPECT_THAT(text(8, 1, 2, Layers{}, true), HasSubstr("--schedules-method dualpipev needs"));
  EXPECT_THAT(text(8, 2, 1, Layers{}, true), HasSubstr("--schedules-method dualpipev needs"));
  layout::ModelLayout uneven;
  uneven.pipeline_model_parallel_size = 2;
  uneven.num_layer_list = {1, 3};
  EXPECT_THAT(thrown_by([&] {
                MegatronLayerMap(3, uneven, {{0}, false});
              }).text,
              HasSubstr("--num-layer-list cannot be combined"));
}

}  // namespace
}  // namespace ms::convert
