// Operations matched across ranks.
#include "profile/analysis/collectives.h"

#include <gtest/gtest.h>

#include <fstream>

#include "core/error.h"
#include "profile/analysis/cross_rank.h"
#include "profile/ingest/load.h"
#include "tests/support/temporary_folder.h"

namespace ms::profile {
namespace {

using core::cat;

// Events of a PyTorch job on CPUs: c10d::NAME at `call` for 10 us, then gloo:NAME from start to end.
std::string gloo_call(const char* op, const char* event, int peer, int64_t call, int64_t start, int64_t end) {
  return cat(R"({"ph":"X","cat":"cpu_op","name":")", op, R"(","pid":1,"tid":1,"ts":)", call, R"(,"dur":10,"args":{)",
             R"("Concrete Inputs":["","",")", peer, R"(","0"]}},)", R"({"ph":"X","cat":"user_annotation","name":")",
             event, R"(","pid":1,"tid":1,"ts":)", start, R"(,"dur":)", end - start, R"(,"args":{}})");
}

class CollectivesTest : public testing::Test {
 protected:
  void write(int rank, const std::string& events) {
    std::ofstream(folder_.path() / cat("rank", rank, ".json"))
        << R"({"distributedInfo":{"rank":)" << rank << R"(,"world_size":2},"baseTimeNanoseconds":1790000000000000000,)"
        << R"("traceEvents":[)" << events << "]}";
  }
  void load_all() {
    store_ = load({folder_.path().string()}, {});
    for (const auto& trace : store_.ranks) views_.push_back(view_devices(*trace));
    for (size_t r = 0; r < views_.size(); ++r) devices_.push_back({store_.ranks[r].get(), &views_[r]});
  }
  test::TemporaryFolder folder_;
  Store store_;
  std::vector<DeviceView> views_;
  std::vector<RankDevices> devices_;
};

// PyTorch posts a message in c10d::send and begins gloo:send afterwards. On a busy machine the receiver may have it
// before that. The times are still right, and the clocks agree.
TEST_F(CollectivesTest, SendBeginsWithItsOperatorNotWithItsEvent) {
  std::string sends, receives;
  for (int64_t i = 0; i < 20; ++i) {
    const int64_t t = 100'000 * (i + 1);
    // Half of the events begin 5 ms after the message was received, and their ends are 20 ms apart.
    const int64_t begins = t + (i % 2 == 0 ? 5 : 6'000);
    sends += cat(i == 0 ? "" : ",", gloo_call("c10d::send", "gloo:send", 1, t, begins, begins + 1'000 * (i + 1)));
    receives += cat(i == 0 ? "" : ",", gloo_call("c10d::recv_", "gloo:recv", 0, t - 50, t - 45, t + 1'000));
  }
  write(0, sends);
  write(1, receives);
  load_all();
  const MatchedComms comms = match_comms(devices_);
  ASSERT_EQ(comms.messages.size(), 20u);
  for (size_t i = 0; i < comms.messages.size(); ++i) {
    const CommPart &send = comms.messages[i].parts[0], &receive = comms.messages[i].parts[1];
    EXPECT_EQ(receive.end - send.start, 1'000'000) << i;
  }
  EXPECT_TRUE(cross_rank(devices_, comms, AlignMode::kAuto).clocks.reliable);
}

}  // namespace
}  // namespace ms::profile
