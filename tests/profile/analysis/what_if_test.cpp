// What-if answers compared with closed forms: each job is a program whose times follow from how long its ranks compute,
// so the expected answer comes from running the same program with less computing. Consecutive calls touch, as in traces
// whose times are whole microseconds.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "profile/analysis/job_path.h"
#include "profile/ingest/load.h"
#include "tests/support/temporary_folder.h"

namespace ms::profile {
namespace {

using core::cat;

// Current time of each rank, and its events, in microseconds.
class Program {
 public:
  explicit Program(std::vector<int64_t> computing) : computing_(std::move(computing)), now_(computing_.size()) {
    events_.resize(now_.size());
  }
  size_t ranks() const { return now_.size(); }
  int64_t now(size_t rank) const { return now_[rank]; }
  void go_on(size_t rank, int64_t time) { now_[rank] = std::max(now_[rank], time); }
  int64_t runtime() const { return *std::max_element(now_.begin(), now_.end()); }

  // parts: multiples of the rank's computing time in one round.
  void compute(size_t rank, int64_t parts = 1) { kernel(rank, "gemm", computing_[rank] * parts); }
  void kernel(size_t rank, const char* name, int64_t us) {
    add(rank, name, 7, now_[rank], now_[rank] + us, "");
    now_[rank] += us;
  }
  void all_reduce(int64_t transfer) {
    const int64_t end = runtime() + transfer;
    for (size_t r = 0; r < ranks(); ++r) {
      add(r, "ncclDevKernel_AllReduce_Sum_f32", 20, now_[r], end, R"("Collective name":"allreduce")");
      now_[r] = end;
    }
  }
  void send(size_t from, size_t to, int64_t start, int64_t end) { message(from, "send", from, to, start, end); }
  void receive(size_t from, size_t to, int64_t start, int64_t end) { message(to, "recv", from, to, start, end); }
  // Both ranks wait for each other.
  void rendezvous(size_t from, size_t to, int64_t transfer) {
    const int64_t end = std::max(now_[from], now_[to]) + transfer;
    send(from, to, now_[from], end);
    receive(from, to, now_[to], end);
    now_[from] = now_[to] = end;
  }

  void write(const std::filesystem::path& folder) const {
    for (size_t r = 0; r < ranks(); ++r) {
      std::ofstream file(folder / cat("rank", r, ".json"));
      file << R"({"distributedInfo":{"rank":)" << r << R"(,"world_size":)" << ranks()
           << R"(},"baseTimeNanoseconds":0,"traceEvents":[)" << events_[r] << "]}";
    }
  }

 private:
  void message(size_t rank, const char* what, size_t from, size_t to, int64_t start, int64_t end) {
    add(rank, "ncclDevKernel_SendRecv", 20, start, end,
        cat(R"("Collective name":")", what, R"(","Src Rank":)", from, R"(,"Dst Rank":)", to));
  }
  void add(size_t rank, const char* name, int stream, int64_t start, int64_t end, const std::string& args) {
    std::string& out = events_[rank];
    out += cat(out.empty() ? "" : ",", R"({"ph":"X","cat":"kernel","name":")", name, R"(","pid":)", rank, R"(,"tid":)",
               stream, R"(,"ts":)", start, R"(,"dur":)", end - start, R"(,"args":{"device":0,"stream":)", stream);
    if (!args.empty()) {
      out += cat(",", args, R"(,"In msg nelems":1024,"dtype":"Float","Process Group Name":"0","Process Group Ranks":")",
                 "[0, 1, 2, 3]", R"(")");
    }
    out += "}}";
  }

  std::vector<int64_t> computing_;
  std::vector<int64_t> now_;
  std::vector<std::string> events_;
};

constexpr int kRounds = 20;

void ping_pong(Program& p) {
  for (int i = 0; i < kRounds; ++i) {
    p.compute(0);
    p.compute(1);
    p.rendezvous(0, 1, 10);
    p.rendezvous(1, 0, 10);
  }
}

void two_all_reduces(Program& p) {
  for (int i = 0; i < kRounds; ++i) {
    for (size_t r = 0; r < p.ranks(); ++r) p.compute(r);
    p.all_reduce(10);
    p.all_reduce(20);
  }
}

// Buffered MPI_Send: the sender continues after 1 us, the data arrives after 10.
void buffered_ping_pong(Program& p) {
  for (int i = 0; i < kRounds; ++i) {
    for (const auto& [from, to] : {std::pair<size_t, size_t>(0, 1), {1, 0}}) {
      p.compute(from);
      const int64_t sent = p.now(from), asked = p.now(to);
      p.send(from, to, sent, sent + 1);
      p.receive(from, to, asked, std::max(sent, asked) + 10);
      p.go_on(from, sent + 1);
      p.go_on(to, std::max(sent, asked) + 10);
    }
  }
}

// MPI_Irecv from both neighbours, MPI_Isend to both, MPI_Waitall: ends 10 us after the last of them started.
void halo_exchange(Program& p) {
  const size_t n = p.ranks();
  for (int i = 0; i < kRounds; ++i) {
    for (size_t r = 0; r < n; ++r) p.compute(r);
    std::vector<int64_t> start(n), end(n);
    for (size_t r = 0; r < n; ++r) start[r] = p.now(r);
    for (size_t r = 0; r < n; ++r) {
      for (const size_t other : {r == 0 ? r : r - 1, r, std::min(r + 1, n - 1)})
        end[r] = std::max(end[r], start[other]);
      end[r] += 10;
    }
    for (size_t r = 0; r < n; ++r) {
      for (const bool up : {false, true}) {
        if (up ? r + 1 == n : r == 0) continue;
        const size_t other = up ? r + 1 : r - 1;
        p.send(r, other, start[r], end[r]);
        p.receive(other, r, start[r], end[r]);
      }
      p.go_on(r, end[r]);
    }
  }
}

void one_forward_one_backward(Program& p) {
  const size_t stages = p.ranks();
  constexpr size_t kMicrobatches = 8;
  // Each stage has its own order; a message is exchanged once both of its ends have reached it.
  struct Action {
    char what;  // F, B, s(end forward), r(eceive forward), S(end backward), R(eceive backward)
  };
  std::vector<std::vector<Action>> todo(stages);
  for (size_t s = 0; s < stages; ++s) {
    const auto forward = [&] {
      if (s > 0) todo[s].push_back({'r'});
      todo[s].push_back({'F'});
      if (s + 1 < stages) todo[s].push_back({'s'});
    };
    const auto backward = [&] {
      if (s + 1 < stages) todo[s].push_back({'R'});
      todo[s].push_back({'B'});
      if (s > 0) todo[s].push_back({'S'});
    };
    const size_t warm_up = std::min(stages - s - 1, kMicrobatches);
    for (size_t m = 0; m < warm_up; ++m) forward();
    for (size_t m = warm_up; m < kMicrobatches; ++m) {
      forward();
      backward();
    }
    for (size_t m = 0; m < warm_up; ++m) backward();
  }
  // Sends are buffered, as in batch_isend_irecv: the sender continues, the receiver waits.
  std::map<std::pair<size_t, char>, std::vector<int64_t>> sent;
  std::vector<size_t> next(stages);
  for (bool more = true; more;) {
    more = false;
    for (size_t s = 0; s < stages; ++s) {
      for (; next[s] < todo[s].size(); ++next[s]) {
        const char what = todo[s][next[s]].what;
        if (what == 'F' || what == 'B') {
          p.compute(s, what == 'F' ? 1 : 2);
        } else if (what == 's' || what == 'S') {
          sent[{s, what}].push_back(p.now(s));
          const size_t to = what == 's' ? s + 1 : s - 1;
          p.send(s, to, p.now(s), p.now(s) + 1);
          p.go_on(s, p.now(s) + 1);
        } else {
          const size_t from = what == 'r' ? s - 1 : s + 1;
          auto& queue = sent[{from, what == 'r' ? 's' : 'S'}];
          if (queue.empty()) break;
          const int64_t end = std::max(p.now(s), queue.front()) + 10;
          queue.erase(queue.begin());
          p.receive(from, s, p.now(s), end);
          p.go_on(s, end);
        }
        more = true;
      }
    }
  }
}

// MPI_Sendrecv around a ring: to the next rank, from the previous one.
void ring(Program& p) {
  const size_t n = p.ranks();
  for (int i = 0; i < kRounds; ++i) {
    for (size_t r = 0; r < n; ++r) p.compute(r);
    std::vector<int64_t> start(n);
    for (size_t r = 0; r < n; ++r) start[r] = p.now(r);
    for (size_t r = 0; r < n; ++r) {
      const size_t next = (r + 1) % n, before = (r + n - 1) % n;
      const int64_t end = std::max(start[r], start[before]) + 10;
      p.send(r, next, start[r], end);
      p.receive(before, r, start[r], end);
      p.go_on(r, end);
    }
  }
}

struct Case {
  const char* name;
  std::function<void(Program&)> program;
  std::vector<int64_t> computing;  // of each rank in a round
  size_t slow;
};

class WhatIfTest : public testing::TestWithParam<Case> {
 protected:
  JobPath analyze(const Program& program) {
    program.write(folder_.path());
    const Store store = load({folder_.path().string()}, {});
    std::vector<DeviceView> views;
    std::vector<RankDevices> devices;
    for (const auto& trace : store.ranks) views.push_back(view_devices(*trace));
    for (size_t r = 0; r < views.size(); ++r) devices.push_back({store.ranks[r].get(), &views[r]});
    const MatchedComms comms = match_comms(devices);
    return job_path(devices, comms, cross_rank(devices, comms, AlignMode::kNone));
  }
  test::TemporaryFolder folder_;
};

TEST_P(WhatIfTest, ChangedComputingGivesTheRuntimeOfTheChangedProgram) {
  const Case& c = GetParam();
  const auto runtime = [&](const std::vector<int64_t>& computing) {
    Program program(computing);
    c.program(program);
    return program.runtime() * 1000;
  };
  Program program(c.computing);
  c.program(program);
  const JobPath path = analyze(program);
  ASSERT_EQ(path.problem, "");
  EXPECT_EQ(path.runtime_ns, runtime(c.computing));

  std::map<std::string, int64_t> what_if;
  for (const WhatIf& w : path.what_if) what_if[w.change] = w.runtime_ns;
  std::vector<int64_t> faster = c.computing, even = c.computing, sorted = c.computing;
  for (int64_t& us : faster) us -= us / 10;
  EXPECT_EQ(what_if["gemm 10 % faster"], runtime(faster));
  std::sort(sorted.begin(), sorted.end());
  even[c.slow] = sorted[(sorted.size() - 1) / 2];
  EXPECT_EQ(what_if[cat("rank ", c.slow, " computes like the median rank")], runtime(even));
}

INSTANTIATE_TEST_SUITE_P(
    Jobs, WhatIfTest,
    testing::Values(Case{"PingPong", ping_pong, {100, 300}, 1},
                    Case{"TwoAllReducesInARow", two_all_reduces, {100, 300}, 1},
                    Case{"TwoAllReducesOfFourRanks", two_all_reduces, {100, 120, 300, 110}, 2},
                    Case{"BufferedPingPong", buffered_ping_pong, {100, 300}, 1},
                    Case{"HaloExchange", halo_exchange, {100, 100, 300, 100}, 2},
                    Case{"HaloExchangeOfTwo", halo_exchange, {100, 300}, 1},
                    Case{"OneForwardOneBackward", one_forward_one_backward, {100, 100, 200, 100}, 2},
                    Case{"Ring", ring, {100, 100, 100, 300}, 3}),
    [](const auto& job) { return std::string(job.param.name); });

}  // namespace
}  // namespace ms::profile
