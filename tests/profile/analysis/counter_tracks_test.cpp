// Counter tracks of queues and copies, compared with values counted by hand.
#include "profile/analysis/counter_tracks.h"

#include <gtest/gtest.h>

#include <map>

#include "profile/ingest/load.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/trace_maker.h"

namespace ms::profile {
namespace {

TEST(CounterTracks, QueuesAndBandwidths) {
  const test::TemporaryFolder folder;
  test::TraceMaker maker(folder.path(), 0, 1);
  maker.launch(1, 0, 5);
  maker.launch(2, 10, 15);
  maker.kernel("gemm", 20, 30, 1);
  maker.kernel("gemm", 30, 40, 2);
  maker.copy("Memcpy HtoD (Host -> Device)", 100, 200, 400);  // 4 bytes a ns
  maker.copy("Memcpy HtoD (Host -> Device)", 150, 250, 100);  // 1
  maker.copy("Memcpy DtoH (Device -> Host)", 150, 250);       // of unknown size
  Store store = load({maker.finish()}, {});
  RankTrace& trace = *store.ranks[0];
  add_counter_tracks(trace, view_devices(trace));
  std::map<std::string, std::vector<std::pair<int64_t, double>>> tracks;
  for (const CounterSample& sample : trace.counters) {
    tracks[trace.names[sample.name]].emplace_back(sample.ts, sample.value);
  }
  using Track = std::vector<std::pair<int64_t, double>>;
  ASSERT_EQ(tracks.size(), 2U);
  EXPECT_EQ(tracks["queue length, stream 7"], (Track{{0, 1}, {10, 2}, {20, 1}, {30, 0}}));
  EXPECT_EQ(tracks["HtoD GB/s"], (Track{{100, 4}, {150, 5}, {200, 1}, {250, 0}}));
}

}  // namespace
}  // namespace ms::profile
