// The recorder writes what its options request and nothing else; the files are read back with profile's reader.
#include "core/trace/recorder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <filesystem>
#include <set>
#include <thread>

#include "core/error.h"
#include "core/trace/span.h"
#include "profile/analysis/device.h"
#include "profile/ingest/load.h"
#include "tests/support/temporary_folder.h"

namespace ms::core::trace {
namespace {

using profile::RankTrace;
using testing::ElementsAre;
using testing::UnorderedElementsAre;

const std::vector<int> kRanks = {0, 3};

// Reports one event of every kind that a training step reports.
void report_a_step(Recorder& recorder, Arena& arena) {
  Span step(&recorder, Category::kUserAnnotation, "ProfilerStep#10");
  {
    Span phase(&recorder, Category::kUserAnnotation, "forward-microbatch");
    Span op(&recorder, Category::kCpuOp, "rms_norm");
    if (op.wants_shapes()) op.set_inputs({{4, 8}, {8}}, "bf16");
    Span kernel(&recorder, Category::kKernel, "rms_norm_forward", 640, 128);
  }
  CommEvent event;
  event.op = "allreduce";
  event.group = "tp";
  event.ranks = &kRanks;
  event.sequence = 41;
  event.in_elements = event.out_elements = 1000;
  event.dtype = DType::kBf16;
  event.start_ns = now_ns();
  event.end_ns = event.start_ns + 5000;
  event.wait_ns = 2000;
  recorder.comm(event);
  event.op = "send";
  event.group = "pp";
  event.peer = 3;
  recorder.comm(event);
  recorder.span(Category::kMemcpy, "Memcpy DtoH (Device -> Pinned)", now_ns(), now_ns() + 100, -1, 4096);
  const Buffer buffer = arena.allocate(1000, MemoryTag::kAct);
}

class RecorderTest : public testing::Test {
 protected:
  // Records one step and reads it back.
  const RankTrace& record(Options options) {
    options.save_path = folder_ / "traces";
    Recorder recorder;
    Arena arena;
    arena.set_observer(&recorder);
    recorder.start(options);
    report_a_step(recorder, arena);
    recorder.stop();
    arena.set_observer(nullptr);
    store_ = profile::load({recorder.path()}, {});
    EXPECT_FALSE(store_.stats.data_loss());
    return *store_.ranks.at(0);
  }
  static std::multiset<std::string> names(const RankTrace& trace, std::string_view category) {
    std::multiset<std::string> out;
    for (size_t i = 0; i < trace.events.size(); ++i) {
      if (trace.names[trace.categories[trace.events.category[i]].name] == category) {
        out.insert(trace.names[trace.events.name[i]]);
      }
    }
    return out;
  }
  static size_t find(const RankTrace& trace, std::string_view name) {
    for (size_t i = 0; i < trace.events.size(); ++i) {
      if (trace.names[trace.events.name[i]] == name) return i;
    }
    ADD_FAILURE() << "no event " << name;
    return 0;
  }
  static const profile::Details& details(const RankTrace& trace, std::string_view name) {
    return trace.details[trace.events.details[find(trace, name)]];
  }

  test::TemporaryFolder folder_;
  profile::Store store_;
};

TEST_F(RecorderTest, LevelZeroRecordsPhasesKernelsAndCommunication) {
  Options options;
  options.rank = 3;
  options.world_size = 4;
  const RankTrace& trace = record(options);
  EXPECT_EQ(trace.rank, 3);
  EXPECT_EQ(trace.world_size, 4);
  EXPECT_EQ(trace.level, "level0");
  EXPECT_THAT(names(trace, "user_annotation"), UnorderedElementsAre("ProfilerStep#10", "forward-microbatch"));
  EXPECT_THAT(names(trace, "kernel"), UnorderedElementsAre("rms_norm_forward", "allreduce(tp)", "send(pp)"));
  EXPECT_THAT(names(trace, "gpu_memcpy"), UnorderedElementsAre("Memcpy DtoH (Device -> Pinned)"));
  EXPECT_TRUE(names(trace, "cpu_op").empty());
  EXPECT_TRUE(names(trace, "cuda_runtime").empty());
  EXPECT_TRUE(names(trace, "gpu_user_annotation").empty());
  EXPECT_TRUE(trace.memory.empty());
  EXPECT_TRUE(trace.counters.empty());
  EXPECT_EQ(details(trace, "rms_norm_forward").flops, -1);
  EXPECT_EQ(details(trace, "Memcpy DtoH (Device -> Pinned)").bytes, 4096);
}

TEST_F(RecorderTest, CommunicationStoresItsArguments) {
  Options options;
  options.rank = 0;
  const RankTrace& trace = record(options);
  const profile::CommArgs& all = trace.comms[trace.events.comm[find(trace, "allreduce(tp)")]];
  EXPECT_EQ(trace.names[all.op], "allreduce");
  EXPECT_EQ(trace.names[all.group], "tp");
  EXPECT_EQ(trace.names[all.ranks], "[0, 3]");
  EXPECT_EQ(trace.names[all.dtype], "bf16");
  EXPECT_EQ(all.sequence, 41);
  EXPECT_EQ(all.in_elements, 1000);
  EXPECT_EQ(all.out_elements, 1000);
  EXPECT_EQ(all.source, -1);
  EXPECT_NEAR(static_cast<double>(trace.events.dur[find(trace, "allreduce(tp)")]), 5000, kResolution_ns);
  const profile::CommArgs& send = trace.comms[trace.events.comm[find(trace, "send(pp)")]];
  EXPECT_EQ(send.source, 0);
  EXPECT_EQ(send.destination, 3);
}

TEST_F(RecorderTest, EachCategoryHasItsLane) {
  const RankTrace& trace = record({});
  const auto lane = [&](std::string_view name) { return trace.lanes[trace.events.lane[find(trace, name)]]; };
  EXPECT_FALSE(lane("ProfilerStep#10").device);
  EXPECT_EQ(lane("ProfilerStep#10").id, ::gettid());
  EXPECT_EQ(lane("rms_norm_forward").id, 7);
  EXPECT_TRUE(lane("rms_norm_forward").device);
  EXPECT_EQ(lane("allreduce(tp)").id, 20);
  EXPECT_EQ(lane("send(pp)").id, 22);
  EXPECT_EQ(lane("Memcpy DtoH (Device -> Pinned)").id, 21);
}

TEST_F(RecorderTest, LevelOneAddsFlopsBytesAndCommunicationParts) {
  Options options;
  options.level = Level::kLevel1;
  const RankTrace& trace = record(options);
  EXPECT_EQ(details(trace, "rms_norm_forward").flops, 640);
  EXPECT_EQ(details(trace, "rms_norm_forward").bytes, 128);
  EXPECT_THAT(names(trace, "gpu_user_annotation"), UnorderedElementsAre("wait", "transfer", "wait", "transfer"));
  EXPECT_NEAR(static_cast<double>(trace.events.dur[find(trace, "wait")]), 2000, kResolution_ns);
  EXPECT_NEAR(static_cast<double>(trace.events.dur[find(trace, "transfer")]), 3000, kResolution_ns);
  EXPECT_TRUE(trace.counters.empty());
  // The parts are not work on a device of their own.
  EXPECT_EQ(profile::view_devices(trace).devices.size(), 4u);
}

TEST_F(RecorderTest, LevelTwoAddsCounters) {
  Options options;
  options.level = Level::kLevel2;
  const RankTrace& trace = record(options);
  std::set<std::string> series;
  for (const auto& sample : trace.counters) {
    series.insert(trace.names[sample.name]);
    EXPECT_GE(sample.value, 0);
  }
  EXPECT_THAT(series, testing::IsSupersetOf({"page faults", "context switches"}));
  EXPECT_THAT(series, testing::Contains(testing::StartsWith("runqueue wait ns ")));
}

// Makes perf_event_open fail for this thread and those it starts, as containers do.
void forbid_perf() {
  sock_filter program[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_perf_event_open, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EACCES),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog filter = {static_cast<unsigned short>(std::size(program)), program};
  ASSERT_EQ(::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
  ASSERT_EQ(::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter), 0) << std::strerror(errno);
}

TEST_F(RecorderTest, ForbiddenCountersAreNamedOnceAndOthersRecorded) {
  Options options;
  options.level = Level::kLevel2;
  options.save_path = folder_ / "traces";
  std::string notice;
  std::thread([&] {
    forbid_perf();
    Recorder recorder;
    Arena arena;
    recorder.start(options);
    notice = recorder.notice();
    report_a_step(recorder, arena);
    recorder.stop();
    options.level = Level::kLevel1;  // the next window requests no counters
    options.save_path = folder_ / "next";
    recorder.start(options);
    EXPECT_EQ(recorder.notice(), "");
  }).join();
  EXPECT_EQ(notice, "not counted, the kernel refuses: cycles (Permission denied), LLC misses (Permission denied)");
  store_ = profile::load({folder_ / "traces"}, {});
  const RankTrace& trace = *store_.ranks.at(0);
  EXPECT_EQ(names(trace, "kernel").size(), 3u);
  std::set<std::string> series;
  for (const auto& sample : trace.counters) series.insert(trace.names[sample.name]);
  EXPECT_THAT(series, testing::IsSupersetOf({"page faults", "context switches"}));
  EXPECT_THAT(series, testing::Not(testing::Contains("cycles")));
}

TEST_F(RecorderTest, WithCpuAddsOperatorsAndLaunches) {
  Options options;
  options.with_cpu = true;
  const RankTrace& trace = record(options);
  EXPECT_THAT(names(trace, "cpu_op"), UnorderedElementsAre("rms_norm"));
  EXPECT_EQ(names(trace, "cuda_runtime").count("cudaLaunchKernel"), 4u);
  const profile::DeviceView view = profile::view_devices(trace);
  ASSERT_EQ(view.devices.size(), 4u);
  for (const auto& device : view.devices) {
    ASSERT_NE(device.launch, profile::kNoLaunch);
    EXPECT_LE(trace.events.end(device.launch), trace.events.ts[device.event]);
  }
  EXPECT_EQ(trace.details[trace.events.details[find(trace, "rms_norm")]].dims, 0u);
}

TEST_F(RecorderTest, CallersLaunchIsNotDuplicated) {
  Recorder recorder;
  Options options;
  options.with_cpu = true;
  options.save_path = folder_ / "traces";
  recorder.start(options);
  recorder.span(Category::kRuntime, "submit", 96, 112);
  recorder.span(Category::kKernel, "gemm", 128, 144);
  recorder.stop();
  store_ = profile::load({recorder.path()}, {});
  const RankTrace& trace = *store_.ranks.at(0);
  EXPECT_THAT(names(trace, "cuda_runtime"), UnorderedElementsAre("submit"));
  const profile::DeviceView view = profile::view_devices(trace);
  EXPECT_EQ(trace.events.ts[view.devices.at(0).launch], 96);
}

TEST_F(RecorderTest, TimesAreMultiplesOfTheResolution) {
  Options options;
  options.with_cpu = options.with_memory = true;
  options.level = Level::kLevel2;
  const RankTrace& trace = record(options);
  ASSERT_GT(trace.events.size(), 0u);
  for (size_t i = 0; i < trace.events.size(); ++i) {
    EXPECT_EQ(trace.events.ts[i] % kResolution_ns, 0) << i;
    EXPECT_EQ(trace.events.dur[i] % kResolution_ns, 0) << i;
  }
}

TEST_F(RecorderTest, WithMemoryAddsArenaEvents) {
  Options options;
  options.with_cpu = options.with_memory = true;
  const RankTrace& trace = record(options);
  ASSERT_EQ(trace.memory.size(), 2u);
  EXPECT_GE(trace.memory[0].bytes, 1000);
  EXPECT_EQ(trace.memory[0].bytes, -trace.memory[1].bytes);
  EXPECT_EQ(trace.memory[0].address, trace.memory[1].address);
  EXPECT_EQ(trace.memory[0].total, trace.memory[0].bytes);
  EXPECT_EQ(trace.memory[1].total, 0);
  EXPECT_EQ(trace.names[trace.memory[0].tag], "act");
}

TEST_F(RecorderTest, WithMemoryRequiresWithCpu) {
  Recorder recorder;
  Options options;
  options.with_memory = true;
  options.save_path = folder_ / "traces";
  try {
    recorder.start(options);
    FAIL() << "must be refused";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::kInvalidArgument);
    EXPECT_THAT(e.what(),
                testing::AllOf(testing::HasSubstr("--profile-with-memory"), testing::HasSubstr("--profile-with-cpu")));
  }
  EXPECT_FALSE(std::filesystem::exists(options.save_path));
}

TEST_F(RecorderTest, WithStackStoresTheEnclosingSpans) {
  Options options;
  options.with_stack = true;
  const RankTrace& trace = record(options);
  const auto stack = [&](std::string_view name) {
    std::vector<std::string> frames;
    for (uint32_t f = details(trace, name).stack; f != 0; f = trace.stacks[f].parent) {
      frames.push_back(trace.names[trace.stacks[f].name]);
    }
    return frames;
  };
  EXPECT_THAT(stack("rms_norm_forward"), ElementsAre("rms_norm", "forward-microbatch", "ProfilerStep#10"));
  EXPECT_THAT(stack("allreduce(tp)"), ElementsAre("ProfilerStep#10"));
  EXPECT_THAT(stack("ProfilerStep#10"), ElementsAre());
  EXPECT_EQ(details(record({}), "rms_norm_forward").stack, 0u);
}

TEST_F(RecorderTest, RecordShapesAddsShapes) {
  Options options;
  options.with_cpu = options.record_shapes = true;
  const RankTrace& trace = record(options);
  EXPECT_EQ(trace.names[details(trace, "rms_norm").dims], "[[4, 8], [8]]");
  EXPECT_EQ(trace.names[details(trace, "rms_norm").types], "[\"bf16\", \"bf16\"]");
}

TEST_F(RecorderTest, MutedThreadRecordsNoCommunication) {
  Options options;
  options.save_path = folder_ / "traces";
  Recorder recorder;
  Arena arena;
  recorder.start(options);
  recorder.mute_this_thread(true);
  report_a_step(recorder, arena);
  recorder.mute_this_thread(false);
  recorder.stop();
  store_ = profile::load({recorder.path()}, {});
  EXPECT_THAT(names(*store_.ranks.at(0), "kernel"), UnorderedElementsAre("rms_norm_forward"));
}

TEST_F(RecorderTest, InactiveRecorderWritesNothing) {
  const std::filesystem::path here = folder_.path();
  Recorder recorder;
  Arena arena;
  report_a_step(recorder, arena);
  EXPECT_FALSE(recorder.active());
  EXPECT_TRUE(std::filesystem::is_empty(here));
  recorder.stop();  // does nothing
}

TEST_F(RecorderTest, WindowsAreSeparateFiles) {
  Recorder recorder;
  Arena arena;
  Options options;
  for (const char* window : {"a", "b"}) {
    options.save_path = folder_ / window;
    recorder.start(options);
    report_a_step(recorder, arena);
    recorder.stop();
    report_a_step(recorder, arena);  // outside a window: dropped
    store_ = profile::load({recorder.path()}, {});
    EXPECT_EQ(store_.files.at(0).events, 6) << window;
  }
}

TEST_F(RecorderTest, ConcurrentThreadsLoseNoEvents) {
  Options options;
  options.save_path = folder_ / "traces";
  Recorder recorder;
  recorder.start(options);
  constexpr int kThreads = 4, kSpans = 20000;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&recorder, t] {
      for (int i = 0; i < kSpans; ++i) {
        recorder.span(Category::kKernel, cat("kernel ", t, " ", i % 50), (1000 + 2 * i) * kResolution_ns,
                      (1001 + 2 * i) * kResolution_ns);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  recorder.stop();
  store_ = profile::load({recorder.path()}, {});
  EXPECT_FALSE(store_.stats.data_loss());
  const RankTrace& trace = *store_.ranks.at(0);
  ASSERT_EQ(trace.events.size(), size_t{kThreads} * kSpans);
  std::map<int64_t, int64_t> by_stream;
  for (size_t i = 0; i < trace.events.size(); ++i) {
    ++by_stream[trace.lanes[trace.events.lane[i]].id];
    EXPECT_EQ(trace.events.dur[i], kResolution_ns);
  }
  EXPECT_THAT(by_stream, ElementsAre(std::pair(7, kSpans), std::pair(1007, kSpans), std::pair(2007, kSpans),
                                     std::pair(3007, kSpans)));
}

TEST_F(RecorderTest, UncreatableFolderIsReported) {
  Options options;
  options.save_path = "/proc/no/such/folder";
  Recorder recorder;
  try {
    recorder.start(options);
    FAIL() << "must be refused";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::kIo);
    EXPECT_THAT(e.what(), testing::HasSubstr("--profile-save-path"));
  }
  EXPECT_FALSE(recorder.active());
}

TEST_F(RecorderTest, SpansLieBetweenSurroundingClockReadings) {
  Options options;
  options.with_cpu = true;
  options.save_path = folder_ / "traces";
  Recorder recorder;
  recorder.start(options);
  std::vector<std::pair<int64_t, int64_t>> around;
  for (int i = 0; i < 200; ++i) {
    const std::string name = cat("outer ", i);
    const int64_t before = now_ns();
    {
      Span outer(&recorder, Category::kUserAnnotation, name);
      Span op(&recorder, Category::kCpuOp, "op");
      Span kernel(&recorder, Category::kKernel, "kernel");
    }
    around.emplace_back(before, now_ns());
    if (i % 50 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(30));  // lets the writer run
  }
  recorder.stop();
  store_ = profile::load({recorder.path()}, {});
  const RankTrace& trace = *store_.ranks.at(0);
  std::vector<profile::Interval> kernels, ops;
  for (size_t i = 0; i < trace.events.size(); ++i) {
    const profile::Interval time{trace.events.ts[i], trace.events.end(i)};
    const std::string name(trace.names[trace.events.name[i]]);
    if (name == "kernel") kernels.push_back(time);
    if (name == "op") ops.push_back(time);
    if (!name.starts_with("outer ")) continue;
    const auto [before, after] = around.at(std::stoul(name.substr(6)));
    EXPECT_GE(time.start, before - 2000) << name;
    EXPECT_LE(time.end, after + 2000) << name;
  }
  ASSERT_EQ(kernels.size(), around.size());
  ASSERT_EQ(ops.size(), around.size());
  for (size_t i = 0; i < ops.size(); ++i) {  // nesting is preserved
    EXPECT_LE(ops[i].start, kernels[i].start);
    EXPECT_GE(ops[i].end, kernels[i].end);
  }
}

// Not a benchmark: the file size per span does not depend on the machine.
TEST_F(RecorderTest, SpanTakesFewerThanFourBytes) {
  Options options;
  options.save_path = folder_ / "traces";
  Recorder recorder;
  recorder.start(options);
  constexpr int kSpans = 100000;
  uint64_t random = 88172645463325252u;
  int64_t now = 1'000'000'000;
  const char* kernels[] = {"gemm", "rms_norm_forward", "rope_forward", "flash_attention_forward", "swiglu_forward"};
  for (int i = 0; i < kSpans; ++i) {  // durations vary by a tenth, gaps by half a microsecond
    random ^= random << 13;
    random ^= random >> 7;
    random ^= random << 17;
    const int64_t dur = 20000 + static_cast<int64_t>(random % 2000);
    now += 200 + static_cast<int64_t>(random >> 32) % 500;
    recorder.span(Category::kKernel, kernels[i % 5], now, now + dur);
    now += dur;
  }
  recorder.stop();
  EXPECT_LT(std::filesystem::file_size(recorder.path()), 4u * kSpans);
}

}  // namespace
}  // namespace ms::core::trace
