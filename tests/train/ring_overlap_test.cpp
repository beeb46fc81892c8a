// Keys and values of a ring are on their way while others are attended, as the trace of a slow link shows.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "core/trace/recorder.h"
#include "profile/ingest/load.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/thread_comm.h"
#include "train/model/ring_attention.h"
#include "train/parallel/process_groups.h"

namespace ms::train {
namespace {

constexpr int kRanks = 4;
constexpr int64_t kRows = 64, kHeads = 2, kD = 8;

struct Interval {
  int64_t begin, end;
};
struct Traced {
  std::vector<Interval> messages;             // that rank 0 receives
  std::vector<Interval> forwards, backwards;  // kernels
};

core::Tensor values_of(core::Arena& arena) {
  core::Tensor x(arena, core::DType::kFp32, {kRows, 1, kHeads, kD}, core::MemoryTag::kAct);
  for (int64_t i = 0; i < x.size(); ++i) x.data<float>()[i] = static_cast<float>(i * 37 % 101) * 0.01F;
  return x;
}

// Forward and backward of rank 0, on a link that takes 2 ms for each message.
Traced traced(bool overlaps) {
  const test::TemporaryFolder folder;
  std::vector<core::trace::Recorder> recorders(kRanks);
  test::run_thread_ranks(
      kRanks,
      [&](core::Endpoint& endpoint) {
        core::trace::Recorder& recorder = recorders[static_cast<size_t>(endpoint.rank())];
        core::ThreadPool pool(1);
        core::Arena arena;
        ops::Context ops{pool, arena};
        ops.recorder = &recorder;
        core::Communicator ranks = open_group(endpoint, {.cp = kRanks}, layout::Group::kCp);
        RingAttention attention(ops, ranks, {.scale = 0.3}, {.overlaps = overlaps});
        const SequenceContext sequence{
            .share = {layout::ContextAlgorithm::kRing, kRows * kRanks, kRanks, ranks.rank()}};
        recorder.start({.rank = endpoint.rank(), .world_size = kRanks, .save_path = folder / "trace"});
        CoreAttentionActivations saved;
        attention.forward({values_of(arena), values_of(arena), values_of(arena)}, saved, sequence);
        attention.backward(values_of(arena), saved, sequence);
        recorder.stop();
      },
      60, {.latency_s = 2e-3}, {}, recorders);
  Traced result;
  const profile::Store store = profile::load({folder / "trace"}, {.ranks = {0}});
  const profile::RankTrace& trace = *store.ranks.at(0);
  for (size_t i = 0; i < trace.events.size(); ++i) {
    const Interval interval{trace.events.ts[i], trace.events.end(i)};
    const std::string& name = trace.names[trace.events.name[i]];
    if (trace.events.comm[i] != 0) {
      if (trace.names[trace.comms[trace.events.comm[i]].op] == "recv") result.messages.push_back(interval);
    } else if (trace.side(i) == profile::Side::kDevice) {
      if (name == "range_attention") result.forwards.push_back(interval);
      if (name == "range_attention_backward") result.backwards.push_back(interval);
    }
  }
  return result;
}

// How many of `messages` are under way when one of `kernels` begins.
int64_t beside(const std::vector<Interval>& messages, const std::vector<Interval>& kernels) {
  return std::ranges::count_if(messages, [&](const Interval& message) {
    return std::ranges::any_of(
        kernels, [&](const Interval& kernel) { return message.begin < kernel.begin && kernel.begin < message.end; });
  });
}

TEST(RingOverlap, MessagesAreBesideBlocks) {
  const Traced seen = traced(true);
  constexpr int64_t kHops = kRanks - 1;
  EXPECT_EQ(seen.forwards.size(), static_cast<size_t>(kRanks));
  EXPECT_EQ(seen.backwards.size(), static_cast<size_t>(kRanks));
  EXPECT_EQ(seen.messages.size(), static_cast<size_t>(2 * kHops * 3));  // keys and values; again; their gradients
  // A neighbour that is ahead has sent before this rank asks, so that on a busy machine some arrive at once.
  EXPECT_GE(beside(seen.messages, seen.forwards), kHops);
  EXPECT_GE(beside(seen.messages, seen.backwards), kHops);
}

TEST(RingOverlap, WithoutItMessagesAreBeforeBlocks) {
  const Traced seen = traced(false);
  EXPECT_EQ(seen.messages.size(), static_cast<size_t>(2 * (kRanks - 1) * 3));
  EXPECT_EQ(beside(seen.messages, seen.forwards), 0);
  EXPECT_EQ(beside(seen.messages, seen.backwards), 0);
}

}  // namespace
}  // namespace ms::train
