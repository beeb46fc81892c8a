// Slices on tracks: whatever overlaps, those of one track nest, none is lost, and what nests anyway stays on one.
#include "profile/report/track_nesting.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "tests/support/random_values.h"

namespace ms::profile {
namespace {

using Slice = std::pair<uint64_t, uint64_t>;  // start, end

TEST(TrackNesting, WhatNestsStaysTogether) {
  TrackNesting nesting;
  for (const auto& [start, end] : {Slice(0, 100), Slice(0, 50), Slice(10, 50), Slice(50, 100), Slice(60, 60),
                                   Slice(100, 100), Slice(100, 110), Slice(200, 300)}) {
    EXPECT_EQ(nesting.place(start, end), 0u) << start << ".." << end;
  }
}

TEST(TrackNesting, WhatOverlapsGetsAnotherTrack) {
  TrackNesting nesting;
  EXPECT_EQ(nesting.place(0, 10), 0u);
  EXPECT_EQ(nesting.place(5, 15), 1u);
  EXPECT_EQ(nesting.place(6, 9), 0u) << "within the shortest that holds it";
  EXPECT_EQ(nesting.place(8, 14), 1u);
  EXPECT_EQ(nesting.place(9, 20), 2u);
  EXPECT_EQ(nesting.place(15, 30), 0u) << "idle again";
}

TEST(TrackNesting, RandomSlicesNestOnTheirTracks) {
  test::RandomValues random;
  for (int round = 0; round < 200; ++round) {
    const int32_t range = random.integers(1, 1, 100)[0], count = random.integers(1, 1, 60)[0];
    const std::vector<int32_t> starts = random.integers(count, 0, range), lengths = random.integers(count, 0, range);
    std::vector<Slice> slices;
    for (size_t i = 0; i < starts.size(); ++i) slices.emplace_back(starts[i], starts[i] + lengths[i]);
    std::sort(slices.begin(), slices.end(), [](const Slice& a, const Slice& b) {
      return a.first != b.first ? a.first < b.first : a.second > b.second;
    });
    TrackNesting nesting;
    std::vector<std::vector<Slice>> tracks;
    for (const Slice& slice : slices) {
      const size_t track = nesting.place(slice.first, slice.second);
      ASSERT_LE(track, tracks.size()) << "tracks are counted from 0";
      if (track == tracks.size()) tracks.emplace_back();
      for (const Slice& other : tracks[track]) {
        const bool apart = other.second <= slice.first;
        ASSERT_TRUE(apart || slice.second <= other.second)
            << slice.first << ".." << slice.second << " and " << other.first << ".." << other.second;
      }
      tracks[track].push_back(slice);
    }
    // No more tracks than slices that run at one time.
    size_t most = 0;
    for (const Slice& at : slices) {
      most = std::max<size_t>(most, std::count_if(slices.begin(), slices.end(), [&](const Slice& other) {
                                return other.first <= at.first && (at.first < other.second || other == at);
                              }));
    }
    EXPECT_LE(tracks.size(), most);
  }
}

}  // namespace
}  // namespace ms::profile
