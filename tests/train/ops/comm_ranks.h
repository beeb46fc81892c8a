// Operators that communicate, on thread ranks of one process: their results, and what they have under way while they
// compute.
#pragma once

#include <algorithm>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "core/comm/communicator.h"
#include "core/trace/recorder.h"
#include "profile/ingest/load.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/thread_comm.h"
#include "tests/train/ops/ops_fixture.h"

namespace ms::ops {

using OnRank = std::function<void(Ops& ops, core::Communicator& world)>;

inline core::Communicator world_of(core::Endpoint& endpoint) {
  std::vector<int> all(static_cast<size_t>(endpoint.size()));
  std::iota(all.begin(), all.end(), 0);
  return {endpoint, "world", all, 0};
}

// Runs body on so many ranks; with two threads each.
inline void on_ranks(int ranks, const OnRank& body) {
  test::run_thread_ranks(ranks, [&](core::Endpoint& endpoint) {
    core::Communicator world = world_of(endpoint);
    Ops ops(2);
    ops.context.deterministic = true;
    body(ops, world);
  });
}

// A number for random values of a tensor of each rank.
inline uint64_t salt_of(int rank, uint64_t tensor) { return 100 * static_cast<uint64_t>(rank + 1) + tensor; }

// Messages of an operation that rank 0 has under way while a kernel of a name begins.
struct Beside {
  int64_t messages = 0;
  int64_t completed = 0;  // those that are complete before the kernel ends
};

// The first run of body is not counted.
inline Beside beside_kernels(int ranks, const std::string& operation, const std::string& kernel, const OnRank& body,
                             const core::LinkDelay& link) {
  const test::TemporaryFolder folder;
  std::vector<core::trace::Recorder> recorders(static_cast<size_t>(ranks));
  test::run_thread_ranks(
      ranks,
      [&](core::Endpoint& endpoint) {
        core::Communicator world = world_of(endpoint);
        core::trace::Recorder& recorder = recorders[static_cast<size_t>(endpoint.rank())];
        Ops ops;
        ops.context.recorder = &recorder;
        body(ops, world);
        recorder.start({.rank = endpoint.rank(), .world_size = ranks, .save_path = folder / "trace"});
        body(ops, world);
        recorder.stop();
      },
      60, link, {}, recorders);
  const profile::Store store = profile::load({folder / "trace"}, {.ranks = {0}});
  const profile::RankTrace& trace = *store.ranks.at(0);
  Beside beside;
  for (size_t message = 0; message < trace.events.size(); ++message) {
    const uint32_t comm = trace.events.comm[message];
    if (comm == 0 || trace.names[trace.comms[comm].op] != operation) continue;
    const int64_t begin = trace.events.ts[message], end = trace.events.end(message);
    bool has_kernel = false, is_within = false;
    for (size_t i = 0; i < trace.events.size(); ++i) {
      if (trace.side(i) != profile::Side::kDevice || trace.names[trace.events.name[i]] != kernel) continue;
      const bool begins_beside = begin < trace.events.ts[i] && trace.events.ts[i] < end;
      has_kernel |= begins_beside;
      is_within |= begins_beside && end < trace.events.end(i);
    }
    beside.messages += has_kernel ? 1 : 0;
    beside.completed += is_within ? 1 : 0;
  }
  return beside;
}

// On a link on which a message takes 20 ms, unless another is given.
inline int64_t messages_beside(int ranks, const std::string& operation, const std::string& kernel, const OnRank& body,
                               const core::LinkDelay& link = {.latency_s = 2e-2}) {
  return beside_kernels(ranks, operation, kernel, body, link).messages;
}

}  // namespace ms::ops
