// Ranks that start communication late, by Holistic Trace Analysis' method, in two steps of three ranks.
#include "profile/analysis/hta_stragglers.h"

#include <gtest/gtest.h>

#include <string>

#include "core/io/file.h"
#include "profile/ingest/load.h"
#include "tests/support/temporary_folder.h"

namespace ms::profile {
namespace {

class HtaStragglersTest : public testing::Test {
 protected:
  // Steps of 1000 us. In each a kernel of `name` starts after `late` us and ends at 900, like a collective.
  void add_rank(int rank, int late, const std::string& name = "ncclKernel_AllReduce") {
    std::string events;
    for (int step = 0; step < 2; ++step) {
      const int start = 1000 * step;
      const auto event = [&](const char* category, const std::string& what, int ts, int dur, const std::string& args) {
        events += std::string(events.empty() ? "" : ",") + R"({"ph": "X", "pid": 1, "tid": 2, "cat": ")" + category +
                  R"(", "name": ")" + what + R"(", "ts": )" + std::to_string(start + ts) + R"(, "dur": )" +
                  std::to_string(dur) + R"(, "args": {)" + args + "}}";
      };
      const std::string correlation = R"("correlation": )" + std::to_string(step + 1);
      event("user_annotation", "ProfilerStep#" + std::to_string(step + 5), 0, 1000, "");
      event("cuda_runtime", "cudaLaunchKernel", 10, 5, correlation);
      event("kernel", name, late, 900 - late, R"("device": 0, "stream": 20, )" + correlation);
    }
    paths_.push_back(folder_ / ("rank" + std::to_string(rank) + ".json"));
    core::write_text_atomically(paths_.back(), R"({"distributedInfo": {"rank": )" + std::to_string(rank) +
                                                   R"(, "world_size": 3}, "traceEvents": [)" + events + "]}");
  }
  std::vector<HtaFrame> frames(bool keep_last_step = true) {
    store_ = load(paths_, {.keep_file_order = true});
    return hta_frames(store_.ranks, keep_last_step);
  }
  test::TemporaryFolder folder_;
  std::vector<std::string> paths_;
  Store store_;
};

TEST_F(HtaStragglersTest, TheLatestTwo) {
  add_rank(0, 100);
  add_rank(1, 400);
  add_rank(2, 200);
  EXPECT_EQ(hta_profiler_steps(frames()), (std::vector<int64_t>{5, 6}));
  EXPECT_EQ(hta_stragglers(frames()), (std::vector<int>{1, 2}));
  EXPECT_EQ(hta_stragglers(frames(), 1), (std::vector<int>{1}));
}

TEST_F(HtaStragglersTest, TheLastStepIsDropped) {
  add_rank(0, 100);
  add_rank(1, 400);
  EXPECT_EQ(hta_profiler_steps(frames(/*keep_last_step=*/false)), (std::vector<int64_t>{5}));
}

TEST_F(HtaStragglersTest, OnlyItsNameOfCommunicationCounts) {
  add_rank(0, 100, "ncclDevKernel_AllReduce");
  add_rank(1, 400, "ncclDevKernel_AllReduce");
  EXPECT_TRUE(hta_stragglers(frames()).empty());
}

TEST_F(HtaStragglersTest, OneRankAloneSaysNothing) {
  add_rank(0, 100);
  EXPECT_TRUE(hta_stragglers(frames()).empty());
}

}  // namespace
}  // namespace ms::profile
