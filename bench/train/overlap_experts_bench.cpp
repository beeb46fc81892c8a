// How much of the exchange of tokens with experts of other ranks the overlapping switches hide: two ranks, as threads,
// on a link that makes the exchanges take a given share of what can be computed beside them. Steps of the trainer's own
// parts: layers of hidden 256 with four experts and a shared one, 512 tokens, every expert with as many.
//
// Beside an exchange is, with the overlaps of one micro-batch, what shared experts compute, and the gradients of
// experts' weights; with --moe-experts-pipeline-degree the products of all groups of experts but one; with
// --moe-fb-overlap, whose steady state is measured (a forward and a backward of other micro-batches), all that the
// other micro-batch computes. Of G groups, the rows of the first on their way there and of the last on their way back
// have nothing beside them: 1 - 1 / G of the communication can be hidden. How it is measured: hidden_share.h.
#include <algorithm>
#include <functional>
#include <string_view>
#include <vector>

#include "bench/median.h"
#include "bench/train/hidden_share.h"
#include "core/trace/recorder.h"
#include "tests/support/thread_comm.h"
#include "tests/support/tiny_run.h"
#include "tests/train/model/rank.h"
#include "train/loop/random_batch.h"
#include "train/loop/step.h"

namespace ms::train {
namespace {

constexpr int64_t kMicrobatches = 5, kLayers = 2, kHidden = 256, kSeq = 512, kTopk = 2, kFfn = 352, kShared = 704;

struct Case {
  const char* name;
  const char* dispatcher;
  void (*turn_on)(ModelParallelConfig&);
  bool pairs;
  double share;  // of what can be computed beside the exchanges, that they take
  int64_t experts = 4, groups = 1;
};

TrainerConfig configured(const test::TemporaryFolder& folder, const Case& of, bool on) {
  TrainerConfig config = test::tiny_config(folder.path(), {1, 1, 2});
  config.model.num_layers = kLayers;
  config.model.hidden_size = kHidden;
  config.model.kv_channels = kHidden / config.model.num_attention_heads;
  config.model.max_position_embeddings = config.training.seq_length = kSeq;
  config.model.num_experts = of.experts;
  config.model.moe_router_topk = kTopk;
  config.model.moe_ffn_hidden_size = kFfn;
  config.model.moe_shared_expert_intermediate_size = kShared;
  config.training.fix_router = true;
  config.training.global_batch_size = 2 * kMicrobatches;
  config.parallel.expert_model_parallel_size = 2;
  config.parallel.moe_token_dispatcher_type = of.dispatcher;
  config.parallel.shared_memory = false;
  if (on) of.turn_on(config.parallel);
  return config;
}

// Seconds of a forward and a backward of one micro-batch each, apart or as a pair.
class Clock : public ActionObserver {
 public:
  void begins(std::span<const layout::ScheduleAction> /*actions*/) override { begin_ = core::trace::now_ns(); }
  void ends(std::span<const layout::ScheduleAction> actions) override {
    const double seconds = static_cast<double>(core::trace::now_ns() - begin_) * 1e-9;
    auto& times = actions.size() == 2                                   ? pairs
                  : actions[0].kind == layout::ScheduleAction::kForward ? forward
                                                                        : backward;
    times.push_back(seconds);
  }
  double of_both() const {
    return pairs.empty() ? bench::median(forward) + bench::median(backward) : bench::median(pairs);
  }
  std::vector<double> forward, backward, pairs;

 private:
  int64_t begin_ = 0;
};

// Seconds of what one micro-batch's own computation beside its exchanges takes.
class Beside : public bench::TimedOperators {
 public:
  using TimedOperators::TimedOperators;
  double shared = 0, weights = 0, products = 0;

 private:
  void on_timed(std::string_view name, const std::vector<core::Dims>& inputs, int64_t dur_ns) override {
    const bool is_shared = std::ranges::any_of(inputs, [](const core::Dims& shape) {
      return std::ranges::any_of(shape, [](int64_t size) { return size == kShared || size == 2 * kShared; });
    });
    if (is_shared && !name.starts_with("grouped")) shared += static_cast<double>(dur_ns) * 1e-9;
    if (name.starts_with("grouped_matmul_add") || name == "grouped_matmul_wgrad") {
      weights += static_cast<double>(dur_ns) * 1e-9;
    }
    if (name.starts_with("grouped_matmul")) products += static_cast<double>(dur_ns) * 1e-9;
  }
};

bench::Run runs_of(const Case& of) {
  return [&of](bool on, core::LinkDelay link, const std::function<void(int rank, const bench::Step&)>& body) {
    const test::TemporaryFolder folder;
    const TrainerConfig config = configured(folder, of, on);
    test::run_thread_ranks(
        2,
        [&](core::Endpoint& endpoint) {
          bench::use_cpu(endpoint.rank());
          Rank rank(endpoint, config);
          GptStage stage(*rank.state, *rank.parameters);
          StepRunner runner(*rank.state, stage);
          rank.parameters->initialize(1, [](const Parameter&, const core::TensorView&) {});
          const std::vector<Microbatch> batch = random_batch(rank.config, 1, kMicrobatches, endpoint.rank());
          const std::function<void()> run_step = [&] {
            rank.parameters->zero_grads();
            runner.train(batch, 1);
          };
          run_step();
          body(endpoint.rank(), bench::observed(rank.ops, runner, run_step));
        },
        60, link);
  };
}

// Of one micro-batch of rank 0.
bench::StepTimes times_of(const Case& of, const bench::OperatorPace& pace, bool on, core::LinkDelay link) {
  bench::StepTimes times;
  runs_of(of)(on, link, [&](int rank, const bench::Step& step) {
    Beside beside(pace);
    Clock clock;
    for (int i = 0; i < bench::kCountedSteps; ++i) step(beside, &clock);
    if (rank != 0) return;
    constexpr double kCounted = bench::kCountedSteps * kMicrobatches;
    const auto groups = static_cast<double>(of.groups);
    const double both = clock.of_both();
    const double computed = of.pairs        ? both * kCounted
                            : of.groups > 1 ? beside.products * (groups - 1) / groups
                                            : beside.shared + beside.weights;
    times = {both, computed / kCounted, static_cast<double>(beside.late_ns()) * 1e-9 / kCounted / both};
  });
  return times;
}

// What a rank sends in a forward and a backward: four times as many hidden states as its tokens have rows elsewhere.
double sent_bytes(const Case& of) {
  const bool gathers = std::string_view(of.dispatcher) == "allgather";
  const int64_t rows = gathers ? kSeq : kSeq * kTopk / 2;
  return 4.0 * kLayers * static_cast<double>(rows * kHidden) * 4;
}

void hidden_share(benchmark::State& state, const Case& of) {
  const bench::OperatorPace pace = bench::measured_pace(runs_of(of));
  const auto times = [&](bool on, core::LinkDelay link) { return times_of(of, pace, on, link); };
  const bench::StepTimes near = times(false, {});
  const core::LinkDelay link{.latency_s = 2e-5, .bytes_per_s = sent_bytes(of) / (of.share * near.beside)};
  bench::report_hidden_share(state, near, link, times, [&](double communication, double computed) {
    const double beside_groups = of.groups > 1 ? 1 - 1 / static_cast<double>(of.groups) : 1;
    return std::min(beside_groups * communication, computed);
  });
}

// Each exchange is to fit beside what is computed while it is under way: of shared experts the shortest part is the
// second product of a forward, a third of it, a ninth of all that they compute; of a pair, a forward's attention.
const Case kCases[] = {
    {"moe_alltoall_overlap_comm/ep:2", "alltoall",
     [](ModelParallelConfig& config) { config.moe_alltoall_overlap_comm = true; }, false, 0.3},
    {"moe_allgather_overlap_comm/ep:2", "allgather",
     [](ModelParallelConfig& config) { config.moe_allgather_overlap_comm = true; }, false, 0.3},
    {"moe_experts_pipeline_degree:2/ep:2", "alltoall",
     [](ModelParallelConfig& config) { config.moe_experts_pipeline_degree = 2; }, false, 0.6, 4, 2},
    {"moe_experts_pipeline_degree:4/ep:2", "alltoall",
     [](ModelParallelConfig& config) { config.moe_experts_pipeline_degree = 4; }, false, 0.6, 8, 4},
    {"moe_fb_overlap/ep:2", "alltoall", [](ModelParallelConfig& config) { config.moe_fb_overlap = true; }, true, 0.4},
};

}  // namespace
}  // namespace ms::train

int main(int argc, char** argv) {
  ms::bench::run_hidden_shares(argc, argv, ms::train::kCases, ms::train::hidden_share);
}
