// Measures what the flight recorder costs an operation: post, begin and end of its wait, completion.
//
//   bench.core.comm.flight [flags of Google Benchmark]
//
// Cases: record/<ring> (without clock reads, which a communicator makes anyway), allreduce/<on or off>: a whole
// all-reduce of 8 bytes in a group of one rank. The file is in /dev/shm, as mstrain's by default, or on the disk of the
// temporary folder. Each case checks the file afterwards.
#include <unistd.h>

#include <filesystem>
#include <string>

#include "bench/bench_support.h"
#include "core/comm/communicator.h"
#include "core/comm/flight_dump.h"
#include "core/comm/flight_recorder.h"
#include "core/comm/single_transport.h"
#include "core/error.h"

namespace ms::core {
namespace {

namespace fs = std::filesystem;

constexpr int kBatch = 1000;

class Folder {
 public:
  explicit Folder(const fs::path& root) : path_(root / cat("ms_flight_bench.", ::getpid())) {
    fs::create_directories(path_);
  }
  ~Folder() { fs::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

void report(benchmark::State& state) {
  state.counters["ns"] =
      benchmark::Counter(kBatch * 1e-9, benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
}

void check_last(const fs::path& folder, int64_t sequence) {
  const FlightDump dump = read_flight_file(folder / flight_file_name(0));
  MS_CHECK(!dump.entries.empty() && dump.entries.back().sequence == sequence && dump.entries.back().completed(),
           "the file lacks the last operation");
}

void record(benchmark::State& state, const fs::path& root) {
  const Folder folder(root);
  FlightRecorder recorder;
  recorder.open({.folder = folder.path(), .capacity = state.range(0)});
  const int32_t group = recorder.group("dp_cp", 2, {0});
  const FlightPhase phase(&recorder, "backward-microbatch", 7);
  int64_t sequence = 0;
  for (auto _ : state) {
    for (int i = 0; i < kBatch; ++i) {
      ++sequence;
      const uint64_t number = recorder.post({.group = group, .sequence = sequence, .posted_ns = sequence});
      recorder.wait_begins(number, sequence);
      recorder.wait_ends(sequence);
      recorder.complete(number, sequence, sequence);
    }
  }
  check_last(folder.path(), sequence);
  report(state);
}

void allreduce(benchmark::State& state, bool on) {
  const Folder folder("/dev/shm");
  FlightRecorder recorder;
  if (on) recorder.open({.folder = folder.path()});
  Endpoint endpoint(std::make_unique<SingleTransport>(), {.flight = &recorder});
  Communicator world(endpoint, "world", {0}, 0);
  int64_t sequence = -1;
  for (auto _ : state) {
    for (int i = 0; i < kBatch; ++i) benchmark::DoNotOptimize(world.allreduce(1.0));
    sequence += kBatch;
  }
  if (on) check_last(folder.path(), sequence);
  report(state);
}

BENCHMARK_CAPTURE(record, dev_shm, "/dev/shm")->Name("record/dev_shm")->Arg(2000)->Arg(1 << 20);
BENCHMARK_CAPTURE(record, tmp, fs::temp_directory_path())->Name("record/tmp")->Arg(2000);
BENCHMARK_CAPTURE(allreduce, off, false)->Name("allreduce/off");
BENCHMARK_CAPTURE(allreduce, on, true)->Name("allreduce/on");

}  // namespace
}  // namespace ms::core

BENCHMARK_MAIN();
