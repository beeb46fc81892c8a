// Buckets of data parallelism: no size and no overlap changes a bit, and what is overlapped is under way while the
// stage computes.
#include "train/optim/bucket.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "core/trace/recorder.h"
#include "profile/ingest/load.h"
#include "tests/support/thread_comm.h"
#include "tests/support/tiny_run.h"
#include "tests/train/model/rank.h"
#include "train/loop/step.h"
#include "train/optim/optimizer.h"

namespace ms::train {
namespace {

using test::Outcome;
using test::TinyLayout;

struct Overlap {
  std::optional<int64_t> bucket_size, num_buckets;
  bool gathers = false;
  bool with_step = false;  // --overlap-param-gather-with-optimizer-step
};

void apply(const Overlap& overlap, TrainerConfig& config) {
  config.parallel.overlap_grad_reduce = true;
  config.parallel.ddp_bucket_size = overlap.bucket_size;
  config.parallel.ddp_num_buckets = overlap.num_buckets;
  config.parallel.overlap_param_gather = overlap.gathers && config.parallel.use_distributed_optimizer;
  config.parallel.overlap_param_gather_with_optimizer_step = overlap.with_step && config.parallel.overlap_param_gather;
}

struct Row {
  TinyLayout layout;
  const char* change = "";  // of the configuration
};

TrainerConfig configured(const test::TemporaryFolder& folder, const Row& row) {
  TrainerConfig config = test::tiny_config(folder.path(), row.layout);
  const std::string change = row.change;
  if (row.layout.pp * row.layout.chunks() > 4) config.model.num_layers = 8;
  config.training.global_batch_size = 8;
  config.training.train_iters = 5;
  config.model.untie_embeddings_and_output_weights = change != "tied";
  config.model.qk_layernorm = change == "norms of heads";
  config.parallel.defer_embedding_wgrad_compute = change == "deferred";
  config.training.loss_chunk_size = change == "loss in chunks" ? 5 : 0;
  if (change == "bf16") config.training.bf16 = config.training.packed_weights = true;
  if (change == "shared master weights") config.training.bf16 = config.optimizer.reuse_fp32_param = true;
  if (change == "reduced in bf16") config.training.bf16 = config.parallel.grad_reduce_in_bf16 = true;
  if (change == "recomputed") {
    config.training.recompute_granularity = "full";
    config.training.recompute_method = "uniform";
    config.training.recompute_num_layers = 2;
  }
  return config;
}

class EveryOverlap : public testing::TestWithParam<Row> {};

TEST_P(EveryOverlap, ChangesNoBit) {
  const Row& row = GetParam();
  const test::TemporaryFolder folder;
  const Outcome plain = test::outcome_of(configured(folder, row), row.layout.ranks(), folder / "plain");
  const Overlap overlaps[] = {{1, {}, false}, {1, {}, true},       {3000, {}, true},    {{}, 3, true},
                              {{}, {}, true}, {1, {}, true, true}, {{}, {}, true, true}};
  for (const Overlap& overlap : overlaps) {
    TrainerConfig config = configured(folder, row);
    apply(overlap, config);
    const std::string name =
        core::cat("size ", overlap.bucket_size.value_or(0), ", number ", overlap.num_buckets.value_or(0), ", gathers ",
                  overlap.gathers, overlap.with_step ? " with the step" : "");
    SCOPED_TRACE(name);
    const Outcome seen = test::outcome_of(config, row.layout.ranks(), folder / name);
    test::expect_same_bits(seen, plain);
  }
}

INSTANTIATE_TEST_SUITE_P(Table, EveryOverlap,
                         testing::Values(Row{{1, 1, 1}}, Row{{1, 1, 2}}, Row{{1, 1, 2, true}}, Row{{1, 1, 4, true}},
                                         Row{{1, 2, 2}}, Row{{1, 2, 2, true}}, Row{{1, 2, 2, true, false, 2}},
                                         Row{{2, 1, 2, true, true}}, Row{{2, 1, 2, false, true}},
                                         Row{{2, 2, 2, true, true}}, Row{{1, 2, 2, true, false, 1, "zb-h1"}},
                                         Row{{2, 2, 2, true, true, 1, "zb-v"}},
                                         Row{{1, 2, 2, true, false, 1, "dualpipev detached"}},
                                         Row{{1, 2, 2, true, false, 2, "nanopipe"}}, Row{{1, 1, 2, true}, "tied"},
                                         Row{{1, 2, 2, true}, "tied"}, Row{{2, 1, 2, true}, "norms of heads"},
                                         Row{{1, 2, 2, true}, "deferred"}, Row{{1, 1, 2, true}, "loss in chunks"},
                                         Row{{1, 1, 2, true}, "bf16"}, Row{{1, 1, 2, true}, "shared master weights"},
                                         Row{{1, 1, 2, true}, "recomputed"}, Row{{1, 1, 4, true}, "reduced in bf16"},
                                         Row{{2, 1, 2, false, true}, "reduced in bf16"}),
                         [](const auto& test) {
                           std::string name = core::cat(test.param.layout.name(), "_", test.param.change);
                           std::ranges::replace(name, ' ', '_');
                           return name;
                         });

// Notes how many reductions are posted as each action begins and ends. Counters count from the post on.
class Posts : public ActionObserver {
 public:
  explicit Posts(const core::Communicator& replicas) : replicas_(replicas) {}
  void begins(std::span<const layout::ScheduleAction> /*actions*/) override { at_begin.push_back(reductions()); }
  void ends(std::span<const layout::ScheduleAction> /*actions*/) override { at_end.push_back(reductions()); }
  int64_t reductions() const {
    return replicas_.counter(core::CommOp::kReduceScatter).calls + replicas_.counter(core::CommOp::kAllreduce).calls;
  }
  std::vector<int64_t> at_begin, at_end;

 private:
  const core::Communicator& replicas_;
};

struct Followed {
  std::vector<int64_t> at_begin, at_end;  // of each action
  int64_t at_last = 0;                    // after the reduction
  size_t buckets = 0;
};

// Of rank 0, in a step of four micro-batches.
Followed follow(const TinyLayout& layout, bool overlapped, std::optional<int64_t> bucket_size = {}) {
  Followed seen;
  const test::TemporaryFolder folder;
  TrainerConfig config = test::tiny_config(folder.path(), layout);
  config.training.global_batch_size = 4 * layout.dp;
  if (overlapped) apply(bucket_size ? Overlap{.bucket_size = bucket_size} : Overlap{.num_buckets = 6}, config);
  test::run_thread_ranks(layout.ranks(), [&](core::Endpoint& endpoint) {
    Rank rank(endpoint, config);
    Optimizer optimizer(*rank.state, *rank.parameters);
    GptStage stage(*rank.state, *rank.parameters);
    optimizer.follow(stage);
    StepRunner runner(*rank.state, stage);
    rank.parameters->initialize(1, [](const Parameter&, const core::TensorView&) {});
    const std::vector<Microbatch> batch = test::drawn_microbatches(4);
    Posts posts(rank.groups->dp_cp);
    runner.set_observer(&posts);
    runner.train(batch, 1);
    optimizer.finish_gradients(1);
    if (endpoint.rank() != 0) return;
    // The last entry of at_end is before the sums of losses, which are a reduction of the same group.
    seen = {posts.at_begin, posts.at_end, posts.reductions(), optimizer.buckets().size()};
  });
  return seen;
}

TEST(Buckets, ArePostedWhileTheLastBackwardRuns) {
  for (const TinyLayout& layout : {TinyLayout{1, 1, 2}, TinyLayout{1, 1, 2, true}, TinyLayout{1, 2, 2, true},
                                   TinyLayout{1, 2, 2, true, false, 1, "zb-h1"}}) {
    SCOPED_TRACE(layout.name());
    const Followed on = follow(layout, true), off = follow(layout, false);
    const size_t units = layout.zero > 0 ? on.buckets : 1;  // with ZeRO-1 each is a message
    EXPECT_EQ(off.buckets, units);
    EXPECT_EQ(off.at_end.back(), 0) << "one message, after the backward";
    EXPECT_GE(on.buckets, 3U);
    EXPECT_EQ(on.at_begin.back(), 0) << "gradients are final in the last action only";
    EXPECT_EQ(on.at_end.back(), static_cast<int64_t>(on.buckets) - 1) << "all but the embedding's, which comes last";
    EXPECT_EQ(on.at_last - off.at_last, static_cast<int64_t>(on.buckets - units)) << "and every bucket once";
  }
}

// Units of 8960, 4 times 12544 and 8960 elements: so many of them as make up a size, or the rest with the embedding.
TEST(Buckets, OfZeroOneArePostedTogetherUpToTheirSize) {
  const TinyLayout layout{1, 1, 2, true};
  const std::pair<int64_t, int64_t> posted[] = {{1, 5}, {20'000, 4}, {25'089, 3}, {1 << 20, 0}};
  for (const auto& [size, units] : posted) {
    const Followed seen = follow(layout, true, size);
    EXPECT_EQ(seen.buckets, 6U);
    EXPECT_EQ(seen.at_end.back(), units) << size;
  }
}

// The output layer is in the first bucket that is posted in the first step; if it is final last, in the last one from
// then on.
TEST(Buckets, WaitForADeferredOutputLayerInTheFirstStepOnly) {
  const TinyLayout last_stage{1, 2, 2, true};
  for (const bool deferred : {false, true}) {
    const test::TemporaryFolder folder;
    std::vector<int64_t> at_end(4), at_second_end(4);
    TrainerConfig config = test::tiny_config(folder.path(), last_stage);
    config.training.global_batch_size = 8;
    config.parallel.defer_embedding_wgrad_compute = deferred;
    apply({.bucket_size = 1}, config);
    test::run_thread_ranks(4, [&](core::Endpoint& endpoint) {
      Rank rank(endpoint, config);
      Optimizer optimizer(*rank.state, *rank.parameters);
      GptStage stage(*rank.state, *rank.parameters);
      optimizer.follow(stage);
      StepRunner runner(*rank.state, stage);
      rank.parameters->initialize(1, [](const Parameter&, const core::TensorView&) {});
      Posts posts(rank.groups->dp_cp);
      runner.set_observer(&posts);
      runner.train(test::drawn_microbatches(4), 1);
      optimizer.finish_gradients(1);
      const auto number = static_cast<size_t>(endpoint.rank());
      at_end[number] = posts.at_end.back();
      const int64_t before = posts.reductions();
      rank.parameters->zero_grads();
      runner.train(test::drawn_microbatches(4), 1);
      at_second_end[number] = posts.at_end.back() - before;
      optimizer.finish_gradients(1);
    });
    EXPECT_GE(at_end[0], 2) << "the first stage has no output layer";
    if (deferred) {
      EXPECT_EQ(at_end[3], 0);
    } else {
      EXPECT_GE(at_end[3], 2);
    }
    EXPECT_GE(at_second_end[0], 2);
    EXPECT_GE(at_second_end[3], 2);
  }
}

struct Traced {
  double hidden = 0;  // of the time in which reductions, or gathers, were under way: the share beside an action
  int64_t begin_inside =
      0;  // reductions that began before the backward's end, or gathers that ended after a forward began
};

// Two ranks on a slow link; what rank 0's trace of the third step and the forward after it shows.
struct Traces {
  Traced reductions, gathers;
  double loss = 0;
};

double shared_ns(int64_t begin, int64_t end, const std::vector<std::pair<int64_t, int64_t>>& spans) {
  double sum = 0;
  for (const auto& [first, last] : spans) {
    const int64_t shared = std::min(end, last) - std::max(begin, first);
    sum += shared > 0 ? static_cast<double>(shared) : 0;
  }
  return sum;
}

Traces trace(bool overlapped) {
  Traces result;
  const test::TemporaryFolder folder;
  TrainerConfig config = test::tiny_config(folder.path(), {1, 1, 2, true});
  config.model.hidden_size = 64;
  config.model.ffn_hidden_size = 128;
  config.training.global_batch_size = 2;
  config.training.seq_length = 128;
  config.model.max_position_embeddings = 128;
  if (overlapped) apply({.num_buckets = 8, .gathers = true}, config);
  std::vector<core::trace::Recorder> recorders(2);
  const core::LinkDelay link{.latency_s = 2e-4, .bytes_per_s = 2e8};
  test::run_thread_ranks(
      2,
      [&](core::Endpoint& endpoint) {
        core::trace::Recorder& recorder = recorders[static_cast<size_t>(endpoint.rank())];
        Rank rank(endpoint, config);
        rank.ops.recorder = &recorder;
        Optimizer optimizer(*rank.state, *rank.parameters);
        GptStage stage(*rank.state, *rank.parameters);
        optimizer.follow(stage);
        StepRunner runner(*rank.state, stage);
        rank.parameters->initialize(1, [&](const Parameter& parameter, const core::TensorView& values) {
          optimizer.set_master(parameter, values);
        });
        std::vector<Microbatch> batch = test::drawn_microbatches(1);
        batch[0].seq = 128;
        for (auto* ids : {&batch[0].tokens, &batch[0].labels}) {
          for (int i = 16; i < 128; ++i) ids->push_back((*ids)[static_cast<size_t>(i % 16)]);
        }
        batch[0].loss_mask.assign(128, 1.0F);
        for (int64_t step = 1; step <= 3; ++step) {
          if (step == 3) recorder.start({.rank = endpoint.rank(), .world_size = 2, .save_path = folder / "trace"});
          rank.parameters->zero_grads();
          const BatchResult batch_result = runner.train(batch, 1);
          const double norm = optimizer.finish_gradients(batch_result.grad_scale);
          optimizer.update({.lr = 1e-2, .step = step, .grad_scale = batch_result.grad_scale, .grad_norm = norm});
        }
        const double loss = runner.evaluate(batch).loss;
        optimizer.await_weights();
        recorder.stop();
        if (endpoint.rank() == 0) result.loss = loss;
      },
      60, link, {}, recorders);
  const profile::Store store = profile::load({folder / "trace"}, {.ranks = {0}});
  const profile::RankTrace& events = *store.ranks.at(0);
  std::vector<std::pair<int64_t, int64_t>> backwards, forwards;
  for (size_t i = 0; i < events.events.size(); ++i) {
    const std::string_view name = events.names[events.events.name[i]];
    if (name == "backward-microbatch") backwards.emplace_back(events.events.ts[i], events.events.end(i));
    if (name == "forward-microbatch") forwards.emplace_back(events.events.ts[i], events.events.end(i));
  }
  double reducing = 0, gathering = 0;
  for (size_t i = 0; i < events.events.size(); ++i) {
    const profile::CommArgs& comm = events.comms[events.events.comm[i]];
    const std::string_view op = events.names[comm.op];
    const int64_t begin = events.events.ts[i], end = events.events.end(i);
    if (events.events.comm[i] == 0 || comm.in_elements < 1000) continue;
    if (op.find("reduce_scatter") != std::string_view::npos) {
      result.reductions.begin_inside += begin < backwards.back().second ? 1 : 0;
      result.reductions.hidden += shared_ns(begin, end, backwards);
      reducing += static_cast<double>(end - begin);
    }
    if (op.find("gather") != std::string_view::npos) {
      result.gathers.begin_inside += end > forwards.back().first ? 1 : 0;
      result.gathers.hidden += shared_ns(begin, end, forwards);
      gathering += static_cast<double>(end - begin);
    }
  }
  result.reductions.hidden /= reducing;
  result.gathers.hidden /= gathering;
  return result;
}

TEST(Buckets, TraceShowsThemBesideTheComputation) {
  const Traces on = trace(true), off = trace(false);
  EXPECT_EQ(off.reductions.begin_inside, 0);
  EXPECT_EQ(off.gathers.begin_inside, 0);
  EXPECT_GE(on.reductions.begin_inside, 2);
  EXPECT_GE(on.gathers.begin_inside, 2);
  // How large a share depends on the machine: bench/train/overlap_bench.cpp.
  EXPECT_GT(on.reductions.hidden, 0);
  EXPECT_GT(on.gathers.hidden, 0);
  EXPECT_EQ(on.loss, off.loss) << "no weight was read before it had arrived";
}

// Gradients that have few bits lose none on their way, so that their sum is that of fp32, rounded once.
TEST(Buckets, ReduceInBf16RoundsEachAddendAndTheSumOnce) {
  for (const int zero : {0, 1}) {
    const test::TemporaryFolder folder;
    TrainerConfig config = test::tiny_config(folder.path(), {1, 1, 4, zero});
    config.training.bf16 = config.parallel.grad_reduce_in_bf16 = true;
    config.parallel.overlap_grad_reduce = true;
    config.parallel.ddp_bucket_size = 1000;
    test::run_thread_ranks(4, [&](core::Endpoint& endpoint) {
      Rank rank(endpoint, config);
      Buckets buckets(*rank.state, *rank.parameters);
      const auto gradient = [](int64_t i, int of_rank) { return 0.37F * static_cast<float>((i * 7 + of_rank) % 101); };
      const std::span<float> grads = rank.parameters->grads().elements<float>();
      for (size_t i = 0; i < grads.size(); ++i) grads[i] = gradient(static_cast<int64_t>(i), endpoint.rank());
      buckets.finish_reduction();
      const layout::BufferCut& cut = rank.parameters->cut();
      for (const layout::BufferCut::Unit& unit : cut.units()) {
        const layout::FlatRange owned = cut.owned_block(unit, endpoint.rank());
        for (int64_t i = owned.begin; i < owned.end; ++i) {
          float sum = 0;
          for (int other = 0; other < 4; ++other) sum += kernels::to_float(kernels::bf16(gradient(i, other)));
          ASSERT_EQ(grads[static_cast<size_t>(i)], kernels::to_float(kernels::bf16(sum))) << i;
        }
      }
    });
  }
}

TEST(Buckets, FlagsHaveMegatronsNeeds) {
  const test::TemporaryFolder folder;
  const auto refusal = [&](const std::function<void(ModelParallelConfig&)>& change) {
    TrainerConfig config = test::tiny_config(folder.path(), {1, 1, 2});
    change(config.parallel);
    config.training.train_iters = 1;
    config.model.vocab_size = 257;
    try {
      config.resolve_and_validate(2);
    } catch (const core::Error& error) {
      EXPECT_EQ(error.code(), core::ErrorCode::kInvalidArgument);
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_NE(
      refusal([](auto& c) { c.overlap_param_gather = c.overlap_grad_reduce = true; }).find("--use-distributed-opt"),
      std::string::npos);
  EXPECT_NE(refusal([](auto& c) {
              c.overlap_param_gather = c.use_distributed_optimizer = true;
            }).find("--overlap-grad-reduce"),
            std::string::npos);
  EXPECT_NE(refusal([](auto& c) {
              c.overlap_grad_reduce = true;
              c.ddp_bucket_size = c.ddp_num_buckets = 3;
            }).find("--ddp-num-buckets"),
            std::string::npos);
  EXPECT_NE(refusal([](auto& c) { c.ddp_bucket_size = 0; }).find("--ddp-bucket-size"), std::string::npos);
  EXPECT_EQ(refusal([](auto& c) { c.overlap_grad_reduce = true; }), "");
}

}  // namespace
}  // namespace ms::train
