// Training runs with one planted fault each: analyze must report it first, with its share of the time, also if the
// clocks of the ranks differ by 5 ms.
//
// Real runs of the trainer on thread ranks. The planted faults are sleeps, so that a busy machine changes little, and
// their lengths are recorded; the expected shares follow from these. Faults are planted from outside: kernels::gemm and
// build_datasets are wrapped by the linker (--wrap), links by a transport, the disk by core::FileOps.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <stop_token>
#include <thread>

#include "core/comm/delayed_transport.h"
#include "core/io/file.h"
#include "core/trace/recorder.h"
#include "kernels/gemm/gemm.h"
#include "profile/ingest/load.h"
#include "profile/sections.h"
#include "tests/support/thread_comm.h"
#include "tests/support/tiny_run.h"
#include "train/data/build_datasets.h"

namespace ms::test {
namespace {

using profile::Finding;
using profile::FindingKind;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;

constexpr int kFirstStep = 2, kEndStep = 6;  // the profiled window; earlier steps allocate buffers
constexpr double kTolerance = 0.05;          // share of all time, on top of the same cost without the fault

// Sleeps, and records when: [start, end) of CLOCK_MONOTONIC, the clock of traces.
class Planted {
 public:
  struct Nap {
    int rank;
    int64_t start, end;
  };
  void sleep(int rank, nanoseconds time) {
    const int64_t start = now();
    std::this_thread::sleep_for(time);
    const std::lock_guard lock(mutex_);
    naps_.push_back({rank, start, now()});
  }
  void clear() { naps_.clear(); }
  const std::vector<Nap>& naps() const { return naps_; }

 private:
  static int64_t now() {
    return std::chrono::duration_cast<nanoseconds>(std::chrono::steady_clock::now().time_since_epoch()).count();
  }
  std::mutex mutex_;
  std::vector<Nap> naps_;
};

Planted planted;
// State of the wrapped functions.
thread_local int this_rank = 0;
thread_local nanoseconds gemm_nap{0};    // before every product of this rank
std::map<int, nanoseconds> sample_naps;  // before every sample, by rank

class SlowSource final : public train::SampleSource {
 public:
  explicit SlowSource(std::unique_ptr<train::SampleSource> inner) : inner_(std::move(inner)) {}
  int64_t size() const override { return inner_->size(); }
  int64_t seq_length() const override { return inner_->seq_length(); }
  void sample(int64_t index, std::span<int32_t> out) const override {
    const auto nap = sample_naps.find(this_rank);
    if (nap != sample_naps.end()) planted.sleep(this_rank, nap->second);
    inner_->sample(index, out);
  }

 private:
  std::unique_ptr<train::SampleSource> inner_;
};

// A disk with slow fsync.
class SlowDisk final : public core::FileOps {
 public:
  explicit SlowDisk(nanoseconds nap) : nap_(nap) { core::set_file_ops_for_test(this); }
  ~SlowDisk() override { core::set_file_ops_for_test(nullptr); }
  int fsync(int fd) override {
    if (nap_.count() > 0) planted.sleep(this_rank, nap_);
    return core::FileOps::fsync(fd);
  }

 private:
  nanoseconds nap_;
};

// Limits the bandwidth of one link of this rank; the others are unchanged.
class OneSlowLink final : public core::Transport {
 public:
  OneSlowLink(std::unique_ptr<core::Transport> inner, int peer, double bytes_per_s) : peer_(peer), plain_(inner.get()) {
    slow_ = core::make_delayed_transport(std::move(inner), {0, bytes_per_s});
  }
  int rank() const override { return plain_->rank(); }
  int size() const override { return plain_->size(); }
  std::unique_ptr<core::TransferRequest> isend(const void* data, int64_t bytes, int peer, int32_t tag) override {
    return link(peer).isend(data, bytes, peer, tag);
  }
  std::unique_ptr<core::TransferRequest> irecv(void* data, int64_t bytes, int peer, int32_t tag) override {
    return plain_->irecv(data, bytes, peer, tag);
  }
  // The other ranks share memory with this one as without the wrapper.
  void share(const std::optional<core::SharedRange>& own) override { plain_->share(own); }
  bool shares_with(int peer) const override { return plain_->shares_with(peer); }
  int64_t shared_offset(const void* data, int64_t bytes) const override { return plain_->shared_offset(data, bytes); }
  std::byte* shared_address(int peer, int64_t offset) const override { return plain_->shared_address(peer, offset); }
  std::byte* mailbox_memory(int of_rank) const override { return plain_->mailbox_memory(of_rank); }
  void charge(int peer, int64_t bytes) override { link(peer).charge(peer, bytes); }
  int64_t arrival_ns(int peer, int64_t bytes) override { return link(peer).arrival_ns(peer, bytes); }

 private:
  core::Transport& link(int peer) { return peer == peer_ ? *slow_ : *plain_; }

  int peer_;
  core::Transport* plain_;
  std::unique_ptr<core::Transport> slow_;  // owns plain_
};

// The share of the ranks' time in which they were runnable but not running, or the process was stopped. It shows as
// idle time, which is correct and not caused by the fault.
class TakenTime {
 public:
  TakenTime() : watch_([this](const std::stop_token& stop) { watch(stop); }) {}
  // Call at the end of the calling rank.
  void add_this_thread() {
    int64_t ran = 0, waited = 0;
    std::ifstream("/proc/thread-self/schedstat") >> ran >> waited;
    const std::lock_guard lock(mutex_);
    ready_ += waited;
    ++ranks_;
  }
  double share() {
    watch_.request_stop();
    watch_.join();
    const auto all = static_cast<double>((std::chrono::steady_clock::now() - start_).count());
    return static_cast<double>(stopped_) / all + static_cast<double>(ready_) / (all * std::max(ranks_, 1));
  }

 private:
  void watch(const std::stop_token& stop) {
    constexpr milliseconds kNap(5), kStopped(50);
    while (!stop.stop_requested()) {
      const auto from = std::chrono::steady_clock::now();
      std::this_thread::sleep_for(kNap);
      const nanoseconds late = std::chrono::steady_clock::now() - from - kNap;
      if (late > kStopped) stopped_ += late.count();
    }
  }
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::mutex mutex_;
  int64_t ready_ = 0, stopped_ = 0;  // ns
  int ranks_ = 0;
  std::jthread watch_;
};

struct Fault {
  TinyLayout layout;
  std::map<int, nanoseconds> gemm_naps;    // by rank
  std::map<int, nanoseconds> sample_naps;  // by rank
  bool saves = false;
  nanoseconds fsync_nap{0};
  WrapTransport wrap;
  core::LinkDelay every_link;
};

int64_t all_time(const profile::Results& results) {
  int64_t sum = 0;
  for (const profile::RankResults& rank : results.ranks) sum += rank.at<profile::Breakdown>().span;
  return sum;
}

class PlantedFaults : public testing::Test {
 protected:
  // Records a run and loads its trace; before it, records the same run without the fault.
  profile::Store record(const Fault& fault) {
    const profile::Store healthy = run({fault.layout, {}, {}, fault.saves, {}, {}, {}}, "healthy");
    healthy_ = static_cast<double>(all_time(profile::analyze(healthy, {&profile::sections::kBreakdown})));
    return run(fault, "traces");
  }

  profile::Store run(const Fault& fault, const std::string& name) {
    train::TrainerConfig config = tiny_config(folder_.path(), fault.layout);
    config.training.train_iters = kEndStep;
    config.profiling.profile = true;
    config.profiling.profile_step_start = kFirstStep;
    config.profiling.profile_step_end = kEndStep;
    config.profiling.profile_ranks = {-1};
    config.profiling.profile_save_path = (folder_.path() / name).string();
    const SlowDisk disk(fault.fsync_nap);
    if (fault.saves) {
      config.checkpoint.save = (folder_.path() / (name + " checkpoints")).string();
      config.checkpoint.save_interval = 3;
      config.checkpoint.async_save = false;
    }
    planted.clear();
    sample_naps = fault.sample_naps;
    std::vector<core::trace::Recorder> recorders(static_cast<size_t>(fault.layout.ranks()));
    TakenTime taken;
    run_thread_ranks(
        fault.layout.ranks(),
        [&](core::Endpoint& endpoint) {
          this_rank = endpoint.rank();
          const auto nap = fault.gemm_naps.find(this_rank);
          gemm_nap = nap == fault.gemm_naps.end() ? nanoseconds(0) : nap->second;
          core::ThreadPool pool(1);
          core::trace::Recorder* recorder = &recorders[static_cast<size_t>(this_rank)];
          train::Trainer(config, endpoint, pool, recorder, {}).run();
          taken.add_this_thread();
        },
        60, fault.every_link, fault.wrap, recorders);
    taken_ = taken.share();
    return profile::load({config.profiling.profile_save_path}, {.ranks = {}, .threads = 1, .force = false});
  }

  // Nanoseconds that `rank` slept inside its profiled steps.
  static int64_t slept(const profile::Store& store, int rank) {
    const profile::RankTrace& trace = *store.ranks[static_cast<size_t>(rank)];
    int64_t sum = 0;
    for (const profile::Step& step : profile::view_devices(trace).steps) {
      for (const Planted::Nap& nap : planted.naps()) {
        if (nap.rank == rank)
          sum += std::max<int64_t>(0, std::min(nap.end, step.end) - std::max(nap.start, step.start));
      }
    }
    return sum;
  }

  // Time in which any thread slept, between the first start and the last end on rank 0's devices.
  static int64_t slept_anywhere(const profile::Store& store) {
    const profile::RankTrace& trace = *store.ranks[0];
    profile::Interval span{INT64_MAX, INT64_MIN};
    for (const profile::DeviceEvent& device : profile::view_devices(trace).devices) {
      span.start = std::min(span.start, trace.events.ts[device.event]);
      span.end = std::max(span.end, trace.events.end(device.event));
    }
    std::vector<profile::Interval> naps;
    for (const Planted::Nap& nap : planted.naps()) naps.push_back({nap.start, nap.end});
    return intersect(profile::IntervalSet(std::move(naps)), profile::IntervalSet({span})).length();
  }

  // Shifts odd ranks' clocks by 5 ms. tables: the clock tables contain the shift; else they are removed.
  static void skew(profile::Store& store, bool tables) {
    constexpr int64_t kSkew = 5'000'000;
    for (const auto& trace : store.ranks) {
      const int64_t by = trace->rank % 2 == 1 ? kSkew : 0;
      for (int64_t& ts : trace->events.ts) ts += by;
      trace->first_ts += by;
      trace->last_end += by;
      for (profile::ClockPoint& point : trace->clocks) {
        point.at += by;
        point.offset += by;
      }
      if (!tables) trace->clocks.clear();
    }
  }

  // Calls check(findings, time of all ranks) three times: with the recorded clocks, skewed, and skewed without tables.
  template <class Check>
  void expect_with_any_clocks(profile::Store& store, Check&& check) {
    for (const std::string clocks : {"as recorded", "skewed", "skewed, without their table"}) {
      SCOPED_TRACE(clocks);
      if (clocks == "skewed") skew(store, true);
      if (clocks == "skewed, without their table") {
        for (const auto& trace : store.ranks) trace->clocks.clear();
      }
      const profile::Results results = profile::analyze(store, profile::sections::every());
      ASSERT_FALSE(results.at<profile::Findings>().empty());
      const Finding& largest = results.at<profile::Findings>()[0];
      if (largest.kind == FindingKind::kIdle && largest.share <= taken_ + kTolerance) {
        GTEST_SKIP() << "the machine gave " << 100 * taken_ << " % of the run's time to others: the largest loss";
      }
      if (!results.at<profile::CrossRank>().clocks.reliable) {
        // On a busy machine ranks leave operations at different times; the analysis must then report the clocks as
        // unreliable.
        EXPECT_EQ(clocks, "skewed, without their table") << results.at<profile::CrossRank>().clocks.why;
        EXPECT_THAT(results.at<profile::CrossRank>().clocks.why, testing::HasSubstr("differ"));
        EXPECT_TRUE(results.at<profile::CrossRank>().by_rank.empty());
        return;
      }
      const auto span = static_cast<double>(all_time(results));
      std::string all = core::cat("the same without the fault takes ", 100 * healthy_ / span, " %\n");
      for (const Finding& f : results.at<profile::Findings>()) {
        all += core::cat(profile::finding_name(f.kind), " ", f.lost_ns / 1000, " us ", 100 * f.share, " % rank ",
                         f.worst_rank, " ", f.detail, "\n");
      }
      SCOPED_TRACE(all);
      check(results, span);
    }
  }

  // The products of one rank of four sleep; the other three must wait as long.
  void expect_slow_rank(const Fault& fault, FindingKind kind, const std::string& detail) {
    profile::Store store = record(fault);
    const int rank = fault.gemm_naps.begin()->first;
    const int64_t slow = slept(store, rank);
    ASSERT_GT(slow, 0);
    expect_with_any_clocks(store, [&](const profile::Results& results, double span) {
      const Finding& first = results.at<profile::Findings>()[0];
      EXPECT_EQ(first.kind, kind);
      EXPECT_EQ(first.worst_rank, rank);
      EXPECT_THAT(first.detail, testing::HasSubstr(detail));
      EXPECT_NEAR(first.share, static_cast<double>(3 * slow) / span, kTolerance + healthy_ / span);
    });
  }

  TemporaryFolder folder_;
  double healthy_ = 0;  // all ranks' time without the fault
  double taken_ = 0;    // TakenTime's share of the last run
};

TEST_F(PlantedFaults, ASlowedRank) {
  Fault fault;
  fault.layout.dp = 4;
  fault.gemm_naps[2] = milliseconds(1);
  expect_slow_rank(fault, FindingKind::kWaiting, "computes");
}

TEST_F(PlantedFaults, AnUnbalancedPipelineStage) {
  Fault fault;
  fault.layout.pp = 4;
  fault.gemm_naps[1] = milliseconds(2);
  expect_slow_rank(fault, FindingKind::kPipelineBubble, "more than the average");
}

TEST_F(PlantedFaults, ASlowLink) {
  const double kBytesPerSecond = 4e4;
  Fault fault;
  fault.layout.pp = 4;
  fault.wrap = [kBytesPerSecond](std::unique_ptr<core::Transport> inner) -> std::unique_ptr<core::Transport> {
    if (inner->rank() != 1) return inner;
    return std::make_unique<OneSlowLink>(std::move(inner), 2, kBytesPerSecond);
  };
  profile::Store store = record(fault);
  expect_with_any_clocks(store, [&](const profile::Results& results, double span) {
    const Finding& first = results.at<profile::Findings>()[0];
    EXPECT_EQ(first.kind, FindingKind::kSlowLink);
    EXPECT_THAT(first.detail, testing::StartsWith("1 to 2 carries"));
    // All ranks wait for the link: the later stages for activations, the earlier ones for gradients.
    const double seconds =
        static_cast<double>(results.at<profile::CrossRank>().links.at({1, 2}).bytes) / kBytesPerSecond;
    EXPECT_NEAR(first.share, 4 * seconds * 1e9 / span, kTolerance + healthy_ / span);
  });
}

TEST_F(PlantedFaults, AnExposedAllreduce) {
  constexpr double kBytesPerSecond = 1e6;
  Fault fault;
  fault.layout.dp = 2;
  fault.every_link = {0, kBytesPerSecond};
  profile::Store store = record(fault);
  expect_with_any_clocks(store, [&](const profile::Results& results, double span) {
    const Finding& first = results.at<profile::Findings>()[0];
    EXPECT_EQ(first.kind, FindingKind::kExposedCommunication);
    EXPECT_THAT(first.detail, testing::HasSubstr("llreduce"));
    // Each of two ranks sends half of every buffer, twice.
    double bytes = 0;
    for (const profile::WaitRow& row : results.at<profile::CrossRank>().rows) bytes += static_cast<double>(row.bytes);
    EXPECT_NEAR(first.share, 2 * bytes / kBytesPerSecond * 1e9 / span, kTolerance + healthy_ / span);
  });
}

TEST_F(PlantedFaults, AStarvedLoaderOfAllRanksOrOfOne) {
  for (const bool one : {false, true}) {
    Fault fault;
    fault.layout.dp = 2;
    fault.sample_naps[1] = milliseconds(30);
    if (!one) fault.sample_naps[0] = milliseconds(30);
    profile::Store store = record(fault);
    const int64_t starved = one ? 2 * slept(store, 1) : slept(store, 0) + slept(store, 1);
    ASSERT_GT(starved, 0);
    expect_with_any_clocks(store, [&](const profile::Results& results, double span) {
      const Finding& first = results.at<profile::Findings>()[0];
      EXPECT_EQ(first.kind, FindingKind::kDataLoading);
      if (one) {
        EXPECT_EQ(first.worst_rank, 1);
      }
      EXPECT_NEAR(first.share, static_cast<double>(starved) / span, kTolerance + healthy_ / span);
    });
    for (const char* name : {"traces", "healthy"}) std::filesystem::remove_all(folder_.path() / name);
  }
}

TEST_F(PlantedFaults, ALongCheckpointStall) {
  Fault fault;
  fault.layout.dp = 2;
  fault.saves = true;
  fault.fsync_nap = milliseconds(100);
  profile::Store store = record(fault);
  const int64_t stalled = slept_anywhere(store);  // all ranks wait meanwhile
  ASSERT_GT(stalled, 0);
  expect_with_any_clocks(store, [&](const profile::Results& results, double span) {
    const Finding& first = results.at<profile::Findings>()[0];
    EXPECT_EQ(first.kind, FindingKind::kCheckpoint);
    EXPECT_NEAR(first.share, static_cast<double>(2 * stalled) / span, kTolerance + healthy_ / span);
  });
}

}  // namespace
}  // namespace ms::test

// The functions that the linker calls instead (--wrap), and the originals.
#define MS_GEMM "_ZN2ms7kernels4gemmERKNS0_11GemmProblemE"
#define MS_BUILD_DATASETS \
  "_ZN2ms5train14build_datasetsERKNS0_10DataConfigElmlllRKSt8functionIFbvEEPKNS0_9TokenizerENS0_10SampleKindE"

namespace ms {

void real_gemm(const kernels::GemmProblem& problem) __asm__("__real_" MS_GEMM);
void slow_gemm(const kernels::GemmProblem& problem) __asm__("__wrap_" MS_GEMM);
void slow_gemm(const kernels::GemmProblem& problem) {
  if (test::gemm_nap.count() > 0) test::planted.sleep(test::this_rank, test::gemm_nap);
  real_gemm(problem);
}

train::TrainValidTest real_build_datasets(const train::DataConfig& config, int64_t seq_length, uint64_t seed,
                                          int64_t train_samples, int64_t valid_samples, int64_t test_samples,
                                          const std::function<bool()>& stopped, const train::Tokenizer* tokenizer,
                                          train::SampleKind kind) __asm__("__real_" MS_BUILD_DATASETS);
train::TrainValidTest slow_build_datasets(const train::DataConfig& config, int64_t seq_length, uint64_t seed,
                                          int64_t train_samples, int64_t valid_samples, int64_t test_samples,
                                          const std::function<bool()>& stopped, const train::Tokenizer* tokenizer,
                                          train::SampleKind kind) __asm__("__wrap_" MS_BUILD_DATASETS);
train::TrainValidTest slow_build_datasets(const train::DataConfig& config, int64_t seq_length, uint64_t seed,
                                          int64_t train_samples, int64_t valid_samples, int64_t test_samples,
                                          const std::function<bool()>& stopped, const train::Tokenizer* tokenizer,
                                          train::SampleKind kind) {
  train::TrainValidTest data = real_build_datasets(config, seq_length, seed, train_samples, valid_samples, test_samples,
                                                   stopped, tokenizer, kind);
  data.train = std::make_unique<test::SlowSource>(std::move(data.train));
  return data;
}

}  // namespace ms
