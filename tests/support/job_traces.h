// Jobs of a few ranks with known times, written as traces and matched: for tests of analyses across ranks.
#pragma once

#include <gtest/gtest.h>

#include <span>
#include <string>
#include <vector>

#include "profile/analysis/cross_rank.h"
#include "profile/ingest/load.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/trace_maker.h"

namespace ms::profile {

inline constexpr int64_t kUnit = 100'000;  // ns: far more than alignment treats as equal

class JobTest : public testing::Test {
 protected:
  struct Rank {
    Rank(const std::filesystem::path& folder, int rank, int ranks) : maker(folder, rank, ranks) {
      maker.clock(0, 0, 10);
      maker.clock(1000 * kUnit, 0, 10);
    }
    void kernel(const char* name, int64_t from, int64_t to) { maker.kernel(name, from * kUnit, to * kUnit); }
    void host(const char* name, int64_t from, int64_t to) { maker.host(name, from * kUnit, to * kUnit); }
    void allreduce(std::vector<int> ranks, int64_t from, int64_t to) {
      maker.comm("allreduce", "dp", ranks, from * kUnit, to * kUnit);
    }
    void send(int to, int64_t from, int64_t until) { message("send", to, from, until); }
    void receive(int sender, int64_t from, int64_t until) { message("recv", sender, from, until); }
    void message(const char* what, int peer, int64_t from, int64_t until) {
      maker.comm(what, "pp", {0, 1, 2}, from * kUnit, until * kUnit, 1000, peer);
    }
    test::TraceMaker maker;
  };
  Rank rank(int rank, int ranks) { return {folder_.path(), rank, ranks}; }

  void load_all(std::span<const int64_t> step_numbers = {}) {
    store_ = load({folder_.path().string()}, {});
    views_.clear();
    devices_.clear();
    for (const auto& trace : store_.ranks) views_.push_back(view_devices(*trace, step_numbers));
    for (size_t r = 0; r < views_.size(); ++r) devices_.push_back({store_.ranks[r].get(), &views_[r]});
    comms_ = match_comms(devices_);
    cross_ = cross_rank(devices_, comms_, AlignMode::kAuto);
    ASSERT_TRUE(cross_.clocks.reliable) << cross_.clocks.why;
  }

  // Rank 0 loads data until 20 and sends; rank 1 waits for it, computes and sends; rank 2 waits for rank 1.
  void load_chain() {
    {
      Rank zero = rank(0, 3), one = rank(1, 3), two = rank(2, 3);
      for (Rank* r : {&zero, &one, &two}) r->kernel("gemm", 0, 2);
      zero.host("ProfilerStep#1", 0, 22);
      one.host("ProfilerStep#1", 0, 33);
      two.host("ProfilerStep#1", 0, 40);
      zero.host("data", 2, 20);
      zero.send(1, 20, 22);
      one.receive(0, 2, 22);
      one.kernel("gemm", 22, 30);
      one.send(2, 30, 33);
      two.receive(1, 2, 33);
      two.kernel("gemm", 33, 40);
      for (Rank* r : {&zero, &one, &two}) r->maker.finish();
    }
    load_all();
  }

  // 200 rounds of two ranks with random lengths, each followed by an all-reduce.
  void load_random() {
    {
      Rank zero = rank(0, 2), one = rank(1, 2);
      int64_t now[2] = {0, 3};
      uint64_t random = 7;
      for (int i = 0; i < 200; ++i) {
        for (int r = 0; r < 2; ++r) {
          random = random * 6364136223846793005 + 1442695040888963407;
          const auto length = static_cast<int64_t>(random >> 60) + 1;
          (r == 0 ? zero : one).kernel("gemm", now[r], now[r] + length);
          now[r] += length + static_cast<int64_t>(random >> 40 & 3);
        }
        const int64_t end = std::max(now[0], now[1]) + 2;
        zero.allreduce({0, 1}, now[0], end);
        one.allreduce({0, 1}, now[1], end);
        now[0] = now[1] = end;
      }
      zero.maker.finish();
      one.maker.finish();
    }
    load_all();
  }

  test::TemporaryFolder folder_;
  Store store_;
  std::vector<DeviceView> views_;
  std::vector<RankDevices> devices_;
  MatchedComms comms_;
  CrossRank cross_;
};

}  // namespace ms::profile
