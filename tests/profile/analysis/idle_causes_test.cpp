// Idle causes compared with planted ones: the host of the job is simulated, so the cause of every idle nanosecond is
// known.
#include "profile/analysis/idle_causes.h"

#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <utility>

#include "core/error.h"
#include "profile/analysis/findings.h"
#include "profile/ingest/load.h"
#include "tests/support/temporary_folder.h"

namespace ms::profile {
namespace {

using core::cat;

// Time in ns planted for each cause and name.
using Planted = std::map<std::pair<std::string, std::string>, int64_t>;

// The host thread and the device of one rank, in Kineto's format. The host waits for the device before each gap, so the
// device is idle from then on until the next kernel starts. Times in us.
class Job {
 public:
  explicit Job(uint64_t seed) : random_(seed) {}

  int64_t between(int64_t low, int64_t high) { return std::uniform_int_distribution<int64_t>(low, high)(random_); }

  void step(const std::function<void()>& body) {
    const int64_t from = now_;
    body();
    host("user_annotation", cat("ProfilerStep#", steps_++), kMain, from, now_ - from);
  }
  // The device works, and the host waits for it.
  void kernel(int64_t us, int stream = 7) {
    device("gemm", stream, now_, us);
    now_ += us;
  }
  // The host runs `name` for `us` in a gap, with `inner` inside, which covers all but 1 us at each end.
  void gap(const char* category, const std::string& name, int64_t us, const std::string& cause,
           const std::string& inner = {}, int thread = kMain) {
    host(category, name, thread, now_, us);
    if (!inner.empty()) host(category, inner, thread, now_ + 1, us - 2);
    plant(cause, inner.empty() ? name : inner, inner.empty() ? us : us - 2);
    if (!inner.empty()) plant(cause, name, 2);
    now_ += us;
  }
  void silence(int64_t us) {
    plant("unknown", "", us);
    now_ += us;
  }
  // A launch ends `delay` before its kernel starts, with nothing else on the device.
  void late_kernel(int64_t launch_us, int64_t delay, int64_t us, const std::string& cause, int thread = kMain) {
    ++correlation_;
    host("cpu_op", "aten::mm", thread, now_, launch_us);
    event("cuda_runtime", "cudaLaunchKernel", kHost, thread, now_ + 1, launch_us - 1,
          cat("\"correlation\":", correlation_));
    plant("host_work", "aten::mm", launch_us);
    now_ += launch_us + delay;
    plant(cause, "late_gemm", delay);
    device("late_gemm", 7, now_, us, correlation_);
    now_ += us;
  }
  void host(const char* category, const std::string& name, int thread, int64_t ts, int64_t us) {
    event(category, name, kHost, thread, ts, us, "");
  }
  // Activity of other threads, which explains nothing while the launching thread is busy itself.
  void noise(int64_t until) {
    for (int64_t ts = 0; ts < until; ts += 37) host("cpu_op", "aten::pin_memory", kOther, ts, 31);
  }
  void plant(const std::string& cause, const std::string& name, int64_t us) { planted_[{cause, name}] += us * 1000; }
  int64_t now() const { return now_; }
  const Planted& planted() const { return planted_; }

  void write(const std::filesystem::path& folder) const {
    std::ofstream(folder / "rank0.json") << R"({"distributedInfo":{"rank":0,"world_size":1},"traceEvents":[)" << events_
                                         << "]}";
  }

  static constexpr int kMain = 1, kBackward = 2, kOther = 3;

 private:
  static constexpr int kHost = 100;

  void device(const char* name, int stream, int64_t ts, int64_t us, int64_t correlation = 0) {
    event("kernel", name, 0, stream, ts, us, cat("\"device\":0,\"stream\":", stream, ",\"correlation\":", correlation));
  }
  void event(const char* category, const std::string& name, int process, int thread, int64_t ts, int64_t us,
             const std::string& args) {
    events_ += cat(events_.empty() ? "" : ",\n", R"({"ph":"X","cat":")", category, R"(","name":")", name, R"(","pid":)",
                   process, R"(,"tid":)", thread, R"(,"ts":)", ts, R"(,"dur":)", us, R"(,"args":{)", args, "}}");
  }

  std::mt19937_64 random_;
  std::string events_;
  Planted planted_;
  int64_t now_ = 1000, steps_ = 0, correlation_ = 0;
};

class IdleCausesTest : public testing::Test {
 protected:
  // Time found for each cause and name; data loading comes from its finding.
  Planted found(const Job& job) {
    job.write(folder_.path());
    const Store store = load({folder_.path().string()}, {});
    const RankTrace& trace = *store.ranks[0];
    const DeviceView view = view_devices(trace);
    const IdleReasons reasons = rank_idle_reasons(trace, view);
    Planted out;
    int64_t sum = 0;
    for (const IdleReason& reason : reasons.reasons) {
      out[{std::string(idle_cause_name(reason.cause)), reason.name}] += reason.ns;
      sum += reason.ns;
    }
    EXPECT_EQ(sum, reasons.idle_ns) << "causes add up to the idle time";
    core::ThreadPool pool(1);
    const std::vector<RankDevices> ranks{{&trace, &view}};
    for (const Finding& finding : find_losses(ranks, {&reasons}, imbalance(ranks, pool), pool).findings) {
      if (finding.kind == FindingKind::kDataLoading) out[{"data_loading", finding.detail}] += finding.lost_ns;
    }
    return out;
  }

  // The share of the planted time that is found with the same cause and name.
  static double agreement(const Planted& planted, const Planted& found) {
    int64_t all = 0, same = 0;
    for (const auto& [key, ns] : planted) {
      all += ns;
      const auto other = found.find(key);
      if (other != found.end()) same += std::min(ns, other->second);
    }
    return static_cast<double>(same) / static_cast<double>(all);
  }

  void expect_found(const Job& job) {
    const Planted seen = found(job);
    std::string text;
    for (const auto& [key, ns] : job.planted()) text += cat("planted ", key.first, " ", key.second, " ", ns, "\n");
    for (const auto& [key, ns] : seen) text += cat("found ", key.first, " ", key.second, " ", ns, "\n");
    EXPECT_GE(agreement(job.planted(), seen), 0.95) << text;
    int64_t planted = 0, all = 0;
    for (const auto& [key, ns] : job.planted()) planted += ns;
    for (const auto& [key, ns] : seen) all += ns;
    EXPECT_EQ(all, planted) << "idle time, no moment twice\n" << text;
  }

  test::TemporaryFolder folder_;
};

constexpr const char* kLoader = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__";

// Every kind of gap; each is one line of a step.
using Gap = void (*)(Job&, int64_t us);
const std::pair<const char*, Gap> kGaps[] = {
    {"DataLoader", [](Job& j, int64_t us) { j.gap("user_annotation", kLoader, us, "data_loading"); }},
    {"HostOperator", [](Job& j, int64_t us) { j.gap("cpu_op", "aten::linear", us, "host_work", "aten::addmm"); }},
    {"Synchronisation",
     [](Job& j, int64_t us) { j.gap("cuda_runtime", "cudaStreamSynchronize", us, "synchronisation"); }},
    {"Allocation", [](Job& j, int64_t us) { j.gap("cuda_runtime", "cudaMalloc", us, "allocation"); }},
    {"PythonFrame",
     [](Job& j, int64_t us) { j.gap("python_function", "train.py(10): main", us, "python", "metrics.py(3): report"); }},
    {"Annotation", [](Job& j, int64_t us) { j.gap("user_annotation", "augment", us, "annotation"); }},
    {"Unknown", [](Job& j, int64_t us) { j.silence(us); }},
    {"LaunchLatency", [](Job& j, int64_t us) { j.late_kernel(5, 20 + us % 60, 50, "launch_latency"); }},
    {"Dependency", [](Job& j, int64_t us) { j.late_kernel(5, 200 + us, 50, "dependency"); }},
    {"BackwardThread", [](Job& j, int64_t us) {
       // the autograd thread launches while the main thread waits for it in a frame
       j.host("python_function", "train.py(12): backward", Job::kMain, j.now(), us + 60);
       j.gap("cpu_op", "autograd::engine::evaluate_function: MmBackward0", us, "host_work", "", Job::kBackward);
       j.late_kernel(4, 6, 50, "launch_latency", Job::kBackward);
     }}};

TEST_F(IdleCausesTest, EachPlantedCauseIsFound) {
  for (const auto& [name, gap] : kGaps) {
    SCOPED_TRACE(name);
    Job job(1);
    for (int step = 0; step < 5; ++step) {
      job.step([&, plant = gap] {
        job.kernel(100);
        plant(job, job.between(50, 500));
        job.kernel(100);
      });
    }
    expect_found(job);
  }
}

TEST_F(IdleCausesTest, CausesInOneStepAreToldApart) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(cat("seed ", seed));
    Job job(seed);
    for (int step = 0; step < 10; ++step) {
      job.step([&] {
        for (int i = 0; i < 8; ++i) {
          // Several consecutive gaps form one gap of the device with several causes.
          for (int64_t row = job.between(1, 3); row > 0; --row) {
            kGaps[static_cast<size_t>(job.between(0, std::size(kGaps) - 1))].second(job, job.between(30, 900));
          }
          job.kernel(job.between(10, 300), static_cast<int>(job.between(7, 9)));
        }
      });
    }
    job.noise(job.now());
    expect_found(job);
  }
}

}  // namespace
}  // namespace ms::profile
