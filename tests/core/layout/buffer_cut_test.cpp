#include "core/layout/buffer_cut.h"

#include <gtest/gtest.h>

#include "core/error.h"

namespace ms::layout {
namespace {

// Parameters of sizes that are no multiple of anything: of unit -1, two of 0, three of 1, and of 2.
struct Placed {
  int64_t unit, numel;
};
constexpr Placed kParameters[] = {{-1, 1000}, {0, 1}, {0, 700}, {1, 64}, {1, 65}, {1, 3}, {2, 1}};

ParameterSpec of_layer(int64_t layer) { return {.key = "a", .layer = layer}; }
ParameterSpec of_expert() { return {.key = "b", .layer = 0, .expert = 0, .num_experts = 4}; }

BufferCut cut_of(int zero_stage, int dp) {
  BufferCut cut({.zero_stage = zero_stage, .data_parallel_size = dp}, {.dp = dp});
  for (const Placed& parameter : kParameters) cut.add(of_layer(parameter.unit), parameter.numel);
  cut.finish();
  return cut;
}

TEST(BufferCut, IsOneUnitWithoutZero) {
  const BufferCut cut = cut_of(0, 3);
  ASSERT_EQ(cut.units().size(), 1U);
  EXPECT_FALSE(cut.cuts_layers());
  EXPECT_EQ(cut.size(), 2304) << "1024 + 64 + 704 + 64 + 128 + 64 + 64 to a multiple of 384";
  EXPECT_EQ(cut.owned_size(), 2304);
  EXPECT_EQ(cut.owned_block(cut.units()[0], 2).begin, 0);
}

TEST(BufferCut, OfZeroHasAUnitForEachLayerThatIsCutEvenly) {
  for (const int stage : {1, 2, 3}) {
    const BufferCut cut = cut_of(stage, 3);
    ASSERT_EQ(cut.units().size(), 4U);
    EXPECT_TRUE(cut.cuts_layers());
    const int64_t ends[] = {1152, 1920, 2304, 2688};
    for (size_t i = 0; i < 4; ++i) {
      EXPECT_EQ(cut.units()[i].id, static_cast<int64_t>(i) - 1);
      EXPECT_EQ(cut.units()[i].range.end, ends[i]);
      const std::vector<int64_t> counts = cut.owned_counts(cut.units()[i].range);
      EXPECT_EQ(counts, std::vector<int64_t>(3, (ends[i] - (i > 0 ? ends[i - 1] : 0)) / 3));
    }
    EXPECT_EQ(cut.largest_unit(), 1152);
    EXPECT_EQ(cut.owned_size(), 896);
  }
}

TEST(BufferCut, ParametersBeginBehindOneAnotherAndAtTheirUnit) {
  BufferCut cut({.zero_stage = 2, .data_parallel_size = 2}, {.dp = 2});
  const int64_t begins[] = {0, 1024, 1088, 1792, 1856, 1984, 2048};
  std::vector<BufferCut::Place> places;
  for (const Placed& parameter : kParameters) places.push_back(cut.add(of_layer(parameter.unit), parameter.numel));
  cut.finish();
  for (size_t i = 0; i < places.size(); ++i) EXPECT_EQ(cut.begin_of(places[i]), begins[i]) << i;
}

// Every element of a parameter has one owner, and each rank's are numbered from 0 on in the order of the buffer.
TEST(BufferCut, EveryElementHasOneOwnerAndAPlace) {
  for (const int stage : {1, 2, 3}) {
    for (const int dp : {1, 2, 3, 8}) {
      SCOPED_TRACE(dp);
      BufferCut cut({.zero_stage = stage, .data_parallel_size = dp}, {.dp = dp});
      std::vector<BufferCut::Place> places;
      for (const Placed& parameter : kParameters) places.push_back(cut.add(of_layer(parameter.unit), parameter.numel));
      cut.finish();
      std::vector<FlatRange> parameters;
      for (size_t i = 0; i < places.size(); ++i)
        parameters.push_back({cut.begin_of(places[i]), cut.begin_of(places[i]) + kParameters[i].numel});
      std::vector<int> owners(static_cast<size_t>(cut.size()));
      for (int rank = 0; rank < dp; ++rank) {
        int64_t last = -1;
        for (const FlatRange& parameter : parameters) {
          const FlatRange part = cut.owned_part(parameter, rank);
          if (part.begin >= part.end) continue;
          const FlatRange place = cut.owned_place(part, rank);
          EXPECT_GT(place.begin, last);
          EXPECT_EQ(place.end - place.begin, part.end - part.begin);
          EXPECT_LE(place.end, cut.owned_size());
          last = place.end - 1;
          for (int64_t i = part.begin; i < part.end; ++i) ++owners[static_cast<size_t>(i)];
        }
      }
      for (const FlatRange& parameter : parameters) {
        for (int64_t i = parameter.begin; i < parameter.end; ++i) ASSERT_EQ(owners[static_cast<size_t>(i)], 1) << i;
      }
    }
  }
}

TEST(BufferCut, OfNothingIsEmpty) {
  BufferCut cut({.zero_stage = 2, .data_parallel_size = 2}, {.dp = 2});
  cut.finish();
  EXPECT_EQ(cut.size(), 0);
  EXPECT_EQ(cut.owned_size(), 0);
  EXPECT_EQ(cut.owned_counts({0, 0}), std::vector<int64_t>(2, 0));
}

TEST(BufferCut, ExpertsAreAmongTheRestWhereTheSameRanksHoldThem) {
  BufferCut cut({.zero_stage = 1, .data_parallel_size = 2}, {.tp = 2, .dp = 2, .etp = 2});
  EXPECT_EQ(cut.add(of_layer(0), 100).offset, 0);
  EXPECT_EQ(cut.add(of_expert(), 100).offset, 128);
  cut.finish();
  ASSERT_EQ(cut.units().size(), 1U);
  EXPECT_EQ(cut.size(), 256);
  EXPECT_EQ(cut.units()[0].replicas, Group::kDpCp);
}

TEST(BufferCut, ExpertsOfOtherRanksAreApartAndPaddedToTheirOwnReplicas) {
  BufferCut cut({.zero_stage = 1, .data_parallel_size = 6}, {.dp = 6, .ep = 2});
  EXPECT_EQ(cut.add(of_layer(0), 1).unit, 0U);
  EXPECT_EQ(cut.add(of_expert(), 64).unit, 1U);
  EXPECT_EQ(cut.add(of_layer(0), 1).offset, 64) << "behind what is not an expert";
  EXPECT_EQ(cut.add(of_expert(), 1).offset, 64) << "behind the first expert, whatever came between them";
  EXPECT_EQ(cut.add(of_layer(1), 1).unit, 2U);
  cut.finish();
  const BufferCut::Unit &dense = cut.units()[0], &experts = cut.units()[1];
  EXPECT_EQ(dense.range.end, 6 * 128);
  EXPECT_EQ(experts.range.begin, 6 * 128);
  EXPECT_EQ(experts.range.end - experts.range.begin, 3 * 128);
  EXPECT_EQ(experts.replicas, Group::kExpertDp);
  EXPECT_EQ(experts.num_replicas, 3);
  EXPECT_EQ(cut.owned_size(), 128 + 128 + 128);
  EXPECT_EQ(cut.owned_place({6 * 128 + 130, 6 * 128 + 140}, 1).begin, 128 + 128 + 2)
      << "behind what the rank owns of the rest, of all layers";
  EXPECT_EQ(cut.owned_counts(experts.range), std::vector<int64_t>(3, 128));
}

// A layer and its experts are acquired together, but where one rank alone has the experts, nothing of them is divided.
TEST(BufferCut, ExpertsOfOtherRanksHaveTheIdOfTheirLayer) {
  for (const auto& [ep, largest] : {std::pair{2, 6 * 128 + 3 * 128}, std::pair{6, 6 * 128}}) {
    BufferCut cut({.zero_stage = 2, .data_parallel_size = 6}, {.dp = 6, .ep = ep});
    cut.add(of_layer(0), 1);
    cut.add(of_expert(), 64);
    cut.add(of_layer(1), 1);
    cut.finish();
    ASSERT_EQ(cut.units().size(), 3U);
    EXPECT_EQ(cut.units()[1].id, 0);
    EXPECT_EQ(cut.num_owners(cut.units()[1]), 6 / ep);
    EXPECT_EQ(cut.largest_unit(), largest) << "EP " << ep;
    EXPECT_EQ(cut.num_divided_ids(), 2);
    EXPECT_EQ(cut.owned_size(), 128 + 128 + 128) << "EP " << ep;
  }
}

// Instances divide the state of what the same ranks of each own: dense parameters, and experts apart.
TEST(BufferCut, InstancesDivideTheStateOfWhatTheyOwn) {
  BufferCut cut({.zero_stage = 3, .data_parallel_size = 8, .num_instances = 2, .state_over_instances = true},
                {.dp = 8, .dp_replica = 2, .ep = 2});
  cut.add(of_layer(0), 1000);
  cut.add(of_expert(), 600);
  cut.add(of_layer(1), 1000);
  cut.finish();
  const BufferCut::Unit &dense = cut.units()[0], &experts = cut.units()[1];
  EXPECT_EQ(dense.owners, Group::kDpShard);
  EXPECT_EQ(experts.owners, Group::kExpertDpShard);
  EXPECT_EQ(experts.instances, Group::kExpertDpReplica);
  EXPECT_EQ(cut.num_owners(dense), 4);
  EXPECT_EQ(cut.num_owners(experts), 2);
  const int64_t of_dense = 2 * 1024 / 4, of_experts = 1024 / 2;
  EXPECT_EQ(cut.owned_by_instances(Group::kDpCp).end, of_dense);
  EXPECT_EQ(cut.owned_by_instances(Group::kExpertDp).begin, of_dense);
  EXPECT_EQ(cut.owned_size(), of_dense + of_experts);
  EXPECT_EQ(cut.state_size(), (of_dense + of_experts) / 2);
  for (const int instance : {0, 1}) {
    const FlatRange of_rest = cut.state_block(dense, instance), block = cut.state_block(experts, instance);
    EXPECT_EQ(of_rest.begin, instance * of_dense / 2);
    EXPECT_EQ(of_rest.end - of_rest.begin, of_dense / 2);
    EXPECT_EQ(block.begin, of_dense + instance * of_experts / 2);
    EXPECT_EQ(cut.state_place(dense, of_rest, instance).begin, 0);
    EXPECT_EQ(cut.state_place(experts, block, instance).begin, of_dense / 2);
    EXPECT_EQ(cut.state_place(experts, {block.begin + 3, block.begin + 5}, instance).end, of_dense / 2 + 5);
  }
}

TEST(BufferCut, SmallParametersStayWhole) {
  for (const int stage : {1, 2, 3}) {
    BufferCut cut({.zero_stage = stage, .data_parallel_size = 2, .least_divided_elems = 65}, {.dp = 2});
    std::vector<BufferCut::Place> places;
    for (const Placed& parameter : kParameters) places.push_back(cut.add(of_layer(parameter.unit), parameter.numel));
    cut.finish();
    const bool is_whole[] = {false, true, false, true, false, true, true};
    for (size_t i = 0; i < places.size(); ++i) {
      const BufferCut::Unit& unit = cut.units()[places[i].unit];
      EXPECT_EQ(unit.whole, is_whole[i]) << i;
      EXPECT_EQ(cut.num_owners(unit), is_whole[i] ? 1 : 2) << i;
      if (is_whole[i]) {
        EXPECT_EQ(unit.id, kWholeUnit);
      }
    }
    EXPECT_EQ(cut.units().size(), 4U) << "one of all layers";
    EXPECT_EQ(cut.owned_size(), 1024 / 2 + 768 / 2 + 256 / 2 + 256);
    EXPECT_EQ(cut.state_size(), cut.owned_size());
  }
}

TEST(BufferCut, ExpertsThatTensorParallelRanksHoldWholeHaveMoreReplicas) {
  BufferCut cut({.zero_stage = 1, .data_parallel_size = 2}, {.tp = 2, .dp = 2});  // etp 1
  EXPECT_EQ(cut.add(of_expert(), 1).unit, 0U);
  EXPECT_EQ(cut.units()[0].num_replicas, 4);
}

TEST(BufferCut, DividesNothingForOneReplica) {
  EXPECT_FALSE((Sharding{2, 1}).gradients());
  EXPECT_TRUE((Sharding{2, 2}).gradients());
  EXPECT_FALSE((Sharding{2, 2}).weights());
  EXPECT_EQ(cut_of(2, 1).units().size(), 1U);
}

}  // namespace
}  // namespace ms::layout
