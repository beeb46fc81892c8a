#include "convert/megatron/flat_layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ms::convert {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// Embedding, projection, norm, qkv, norm, fc1, fc2, norm, output layer of a model of hidden size 24.
const std::vector<FlatParameter> kModel = {{1200}, {576}, {24}, {1152}, {24}, {1920}, {960}, {24}, {1200}};

TEST(FlatLayoutTest, OneBucketIsAligned) {
  const FlatLayout layout = flat_layout(kModel, {});
  EXPECT_THAT(layout.begin, ElementsAre(6016, 5440, 5376, 4224, 4160, 2240, 1280, 1216, 0));
  EXPECT_EQ(layout.end, 7216);
}

TEST(FlatLayoutTest, BucketClosesAtItsSize) {
  const FlatLayout layout = flat_layout(kModel, {.bucket_size = 1210});
  EXPECT_THAT(layout.begin, ElementsAre(5976, 5400, 5336, 4184, 4120, 2200, 1240, 1216, 0));
  EXPECT_EQ(layout.end, 7176);
}

TEST(FlatLayoutTest, UnalignedLayoutHasNoGaps) {
  const FlatLayout layout = flat_layout(kModel, {.aligned = false});
  EXPECT_THAT(layout.begin, ElementsAre(5880, 5304, 5280, 4128, 4104, 2184, 1224, 1200, 0));
  EXPECT_EQ(layout.end, 7080);
}

TEST(FlatLayoutTest, SharedEmbeddingHasItsOwnBucket) {
  std::vector<FlatParameter> first = {{100, true}, {30}, {50}};
  EXPECT_THAT(flat_layout(first, {}).begin, ElementsAre(128, 64, 0));
  EXPECT_THAT(flat_layout(first, {.shared_multiple = 384}).begin, ElementsAre(384, 64, 0));
  std::vector<FlatParameter> last = {{30}, {50}, {100, true}};  // the next bucket begins at its end, unaligned
  EXPECT_THAT(flat_layout(last, {}).begin, ElementsAre(164, 100, 0));
  EXPECT_EQ(flat_layout(last, {}).end, 194);
}

TEST(FlatLayoutTest, CandidatesHaveTheGivenLength) {
  EXPECT_THAT(possible_flat_layouts(kModel, 7216, 1210, 2), ElementsAre(flat_layout(kModel, {})));
  EXPECT_THAT(possible_flat_layouts(kModel, 7176, 1210, 2), ElementsAre(flat_layout(kModel, {.bucket_size = 1210})));
  EXPECT_THAT(possible_flat_layouts(kModel, 7080, 1210, 2), ElementsAre(flat_layout(kModel, {.aligned = false})));
  EXPECT_THAT(possible_flat_layouts(kModel, 7000, 1210, 2), IsEmpty());
  // Multiples of 64 have the same position under every rule.
  EXPECT_THAT(possible_flat_layouts(std::vector<FlatParameter>{{64}, {128}}, 192, 100, 1), SizeIs(1));
  EXPECT_THAT(possible_flat_layouts({}, 0, 0, 1), SizeIs(1));
}

TEST(FlatLayoutTest, PlacesFitBucketsOfGivenLengths) {
  using Place = BucketPlace;
  const auto places = [](std::vector<FlatParameter> parameters, std::vector<int64_t> lengths, bool aligned = true,
                         int64_t padding = 0) { return places_in_buckets(parameters, lengths, aligned, padding); };
  // As in flat_layout, with buckets of at least 1210.
  EXPECT_EQ(places(kModel, {1240, 2880, 1216, 1840}),
            std::vector<Place>({{3, 640}, {3, 64}, {3, 0}, {2, 64}, {2, 0}, {1, 960}, {1, 0}, {0, 1216}, {0, 0}}));
  EXPECT_EQ(places(kModel, {7216})->front(), (Place{0, 6016}));
  EXPECT_EQ(places(kModel, {7080}, false)->front(), (Place{0, 5880}));
  EXPECT_EQ(places({{100, true}, {30}, {50}}, {128, 100}), std::vector<Place>({{1, 0}, {0, 64}, {0, 0}}));
  EXPECT_EQ(places({{100, true}, {30}, {50}}, {384, 100}), std::vector<Place>({{1, 0}, {0, 64}, {0, 0}}));
  EXPECT_EQ(places({{30}, {50}, {100, true}}, {100, 94}), std::vector<Place>({{1, 64}, {1, 0}, {0, 0}}));
  EXPECT_EQ(places({{30}, {50}}, {82}, false, 2), std::vector<Place>({{0, 50}, {0, 0}}));
  EXPECT_EQ(places({}, {}), std::vector<Place>());
  // Longer, shorter, one too many, too few.
  for (const std::vector<int64_t>& lengths : {std::vector<int64_t>{82}, {79}, {50, 30, 1}, {50}, {}, {20, 60}}) {
    EXPECT_EQ(places({{30}, {50}}, lengths, false), std::nullopt) << lengths.size();
  }
}

}  // namespace
}  // namespace ms::convert
