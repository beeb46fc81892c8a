// The trace of a step whose pairs are interleaved: sums over TP, or exchanges with experts, of one micro-batch are
// under way while the other computes.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "profile/ingest/load.h"
#include "tests/train/loop/interleaved_pairs.h"
#include "train/loop/random_batch.h"

namespace ms::train {
namespace {

// An action, or a part of one.
struct Part {
  int64_t start, end;
  bool is_forward;
  int64_t microbatch;
};
struct Interval {
  int64_t start, end;
};
struct Traced {
  std::vector<Part> parts;                // by start
  std::vector<Interval> sums, computing;  // of groups of TP, or exchanges; and kernels
  double seconds = 0;                     // of the step

  // The part within which something begins; null: none.
  const Part* part_of(const Interval& interval) const {
    for (const Part& part : parts) {
      if (part.start <= interval.start && interval.start < part.end) return &part;
    }
    return nullptr;
  }
  // Sums that are under way when something of another micro-batch begins: its part of a pair, or a kernel of it.
  int64_t beside(const std::vector<Interval>& others) const {
    return std::ranges::count_if(sums, [&](const Interval& sum) {
      const Part* const own = part_of(sum);
      return own != nullptr && std::ranges::any_of(others, [&](const Interval& other) {
               const Part* const part = sum.start < other.start && other.start < sum.end ? part_of(other) : nullptr;
               return part != nullptr && part->microbatch != own->microbatch;
             });
    });
  }
  int64_t beside_parts() const {
    std::vector<Interval> others;
    for (const Part& part : parts) others.push_back({part.start, part.end});
    return beside(others);
  }
};

Traced traced(const profile::RankTrace& trace) {
  Traced result;
  for (size_t i = 0; i < trace.events.size(); ++i) {
    const Interval interval{trace.events.ts[i], trace.events.end(i)};
    const std::string& name = trace.names[trace.events.name[i]];
    if (trace.events.comm[i] != 0) {
      const profile::CommArgs& comm = trace.comms[trace.events.comm[i]];
      const std::string& op = trace.names[comm.op];
      const bool is_sum = trace.names[comm.group] == "tp" && (op == "allreduce" || op == "reduce_scatter");
      if (is_sum || op == "alltoall") result.sums.push_back(interval);
    } else if (trace.side(i) == profile::Side::kDevice) {
      result.computing.push_back(interval);
    } else if (trace.side(i) == profile::Side::kAnnotation && name.ends_with("-microbatch")) {
      const profile::Details& details = trace.details[trace.events.details[i]];
      EXPECT_GE(details.microbatch, 0);
      EXPECT_GE(details.chunk, 0);
      result.parts.push_back({interval.start, interval.end, name.starts_with("forward"), details.microbatch});
    }
  }
  return result;
}

// Of each rank, in a step whose messages take a while, as in a network, and less than a block computes.
std::vector<Traced> traced_step(const TrainerConfig& config, const layout::ScheduleSettings& settings,
                                const test::TemporaryFolder& folder, const char* name) {
  std::vector<core::trace::Recorder> recorders(kRanks);
  std::vector<double> seconds(kRanks);
  const std::string path = (folder.path() / name).string();
  test::run_thread_ranks(
      kRanks,
      [&](core::Endpoint& endpoint) {
        const auto own = static_cast<size_t>(endpoint.rank());
        PipelineRank rank(endpoint, config, kMicrobatches);
        rank.batch = random_batch(rank.config, 1, kMicrobatches, 0);
        rank.ops.recorder = &recorders[own];
        rank.runner.set_schedule(settings);
        rank.step();  // the first one allocates
        rank.groups->world.barrier();
        recorders[own].start({.rank = endpoint.rank(), .world_size = kRanks, .save_path = path});
        const int64_t start_ns = core::trace::now_ns();
        rank.step();
        seconds[own] = static_cast<double>(core::trace::now_ns() - start_ns) * 1e-9;
        recorders[own].stop();
      },
      60, {.latency_s = 0.5e-3}, {}, recorders);
  const profile::Store store = profile::load({path}, {});
  std::vector<Traced> result;
  for (const auto& trace : store.ranks) {
    result.push_back(traced(*trace));
    result.back().seconds = seconds[result.size() - 1];
  }
  return result;
}

// On a busy machine a rank may lose its CPU between posting a sum and beginning the other micro-batch's part: a few
// sums have ended then. More than 7 of 8 are required, so that none of a layer's four sums or six exchanges is without
// overlap in all layers. Two sums can also end together, when the first is waited for: then only that one has a kernel
// beside.
void expect_beside(const Traced& trace, int64_t expected) {
  EXPECT_LE(trace.beside_parts(), expected);
  EXPECT_GT(trace.beside_parts(), expected * 7 / 8);
  EXPECT_GE(trace.beside(trace.computing), expected / 4);
}

class InterleavedTrace : public testing::TestWithParam<bool> {};  // with sequence parallelism

TEST_P(InterleavedTrace, HasTheSumsOfEachMicrobatchBesideTheOthersKernels) {
  const test::TemporaryFolder folder;
  TrainerConfig config = pipeline_config(folder, GetParam(), /*detached=*/false);
  config.training.seq_length = config.model.max_position_embeddings = 128;
  config.model.hidden_size = 128;
  config.model.ffn_hidden_size = 512;
  layout::ScheduleSettings settings = config.schedule_settings();
  ASSERT_TRUE(settings.pairs);
  const auto schedule = schedule_of(settings, kStages, 2, kMicrobatches);
  const std::vector<Traced> on = traced_step(config, settings, folder, "on");
  settings.pairs = false;
  const std::vector<Traced> off = traced_step(config, settings, folder, "off");
  ASSERT_EQ(on.size(), size_t{kRanks});
  ASSERT_EQ(off.size(), size_t{kRanks});
  for (size_t rank = 0; rank < on.size(); ++rank) {
    const auto& actions = schedule.actions[rank / 2];
    int64_t pairs = 0;
    for (size_t i = 0; i < actions.size(); ++i)
      pairs += layout::begins_pair(schedule.placement.order(), actions, i) ? 1 : 0;
    constexpr int64_t kSumsOfPair = 2 * 2 * kLayers / (2 * kStages);  // two a layer, in forward and in backward
    SCOPED_TRACE("rank " + std::to_string(rank) + ", " + std::to_string(pairs) + " pairs");
    expect_beside(on[rank], pairs * kSumsOfPair);
    EXPECT_EQ(off[rank].beside_parts(), 0);
    EXPECT_EQ(off[rank].beside(off[rank].computing), 0);
    EXPECT_EQ(on[rank].sums.size(), off[rank].sums.size());
    EXPECT_GT(on[rank].parts.size(), off[rank].parts.size());
    EXPECT_EQ(off[rank].parts.size(), actions.size());
    std::printf(
        "rank %zu: of %zu sums %ld beside the other micro-batch, %ld beside kernels of it; step %.4f s, not "
        "interleaved %.4f s\n",
        rank, on[rank].sums.size(), static_cast<long>(on[rank].beside_parts()),
        static_cast<long>(on[rank].beside(on[rank].computing)), on[rank].seconds, off[rank].seconds);
  }
}

// Each exchange of a pair: of tokens and back, of their gradients and back, these with those of the rows' weights.
TEST(InterleavedTraceOfExperts, HasTheExchangesOfEachMicrobatchBesideTheOthersParts) {
  for (const bool runs_in_a_v : {true, false}) {
    SCOPED_TRACE(runs_in_a_v ? "DualPipeV" : "virtual stages");
    const test::TemporaryFolder folder;
    TrainerConfig config = test::tiny_config(
        folder.path(), {1, kStages, 2, false, false, runs_in_a_v ? 1 : 2, runs_in_a_v ? "dualpipev" : ""});
    config.model.num_layers = kLayers;
    config.model.num_experts = 4;
    config.model.moe_router_topk = 2;
    config.model.moe_ffn_hidden_size = 128;
    config.training.fix_router = true;
    config.training.global_batch_size = 2 * kMicrobatches;
    config.parallel.expert_model_parallel_size = 2;
    config.parallel.moe_fb_overlap = true;
    layout::ScheduleSettings settings = config.schedule_settings();
    ASSERT_TRUE(settings.pairs);
    const auto schedule = schedule_of(settings, kStages, 2, kMicrobatches);
    const std::vector<Traced> on = traced_step(config, settings, folder, "on");
    settings.pairs = false;
    const std::vector<Traced> off = traced_step(config, settings, folder, "off");
    for (size_t rank = 0; rank < on.size(); ++rank) {
      const auto& actions = schedule.actions[rank / 2];
      int64_t pairs = 0;
      for (size_t i = 0; i < actions.size(); ++i)
        pairs += layout::begins_pair(schedule.placement.order(), actions, i) ? 1 : 0;
      constexpr int64_t kExchangesOfPair = 6 * kLayers / (2 * kStages);
      SCOPED_TRACE("rank " + std::to_string(rank) + ", " + std::to_string(pairs) + " pairs");
      expect_beside(on[rank], pairs * kExchangesOfPair);
      EXPECT_EQ(off[rank].beside_parts(), 0);
      EXPECT_EQ(on[rank].sums.size(), off[rank].sums.size());
      EXPECT_EQ(on[rank].sums.size(), size_t{6 * kLayers / kStages * kMicrobatches});
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Sums, InterleavedTrace, testing::Bool(),
                         [](const auto& test) { return test.param ? "reduce_scatter" : "allreduce"; });

}  // namespace
}  // namespace ms::train
