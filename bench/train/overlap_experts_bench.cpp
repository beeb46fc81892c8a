// How much of the exchange of tokens with experts of other ranks the overlapping switches hide: two ranks, as threads,
// on a link that makes the exchanges take a given share of what can be computed beside them. Steps of the trainer's own
// parts: layers of hidden 256 with four experts and a shared one, 512 tokens, every expert with as many.
//
// hidden = (time without the switch - time with it) / min(communication, computation beside it), in percent, of the
// medians of alternated runs. Communication is what the link adds to a run without the switch. Beside it is, with the
// overlaps of one micro-batch, what shared experts compute, and the gradients of experts' weights; with
// --moe-experts-pipeline-degree the products of all groups of experts but one; with --moe-fb-overlap, whose steady
// state is measured (a forward and a backward of other micro-batches), all that the other micro-batch computes. Of G
// groups, the rows of the first on their way there and of the last on their way back have nothing beside them: about 1
// / G of the communication cannot be hidden. Needs two free cores; others make it meaningless.
#include <algorithm>
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

constexpr int kSteps = 1;
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
class Beside : public ops::OperatorObserver {
 public:
  void on_operator(std::string_view name, const std::vector<core::Dims>& inputs, int64_t /*flops*/, int64_t /*bytes*/,
                   int64_t dur_ns) override {
    const bool is_shared = std::ranges::any_of(inputs, [](const core::Dims& shape) {
      return std::ranges::any_of(shape, [](int64_t size) { return size == kShared || size == 2 * kShared; });
    });
    if (is_shared && !name.starts_with("grouped")) shared += static_cast<double>(dur_ns) * 1e-9;
    if (name.starts_with("grouped_matmul_add") || name == "grouped_matmul_wgrad") {
      weights += static_cast<double>(dur_ns) * 1e-9;
    }
    if (name.starts_with("grouped_matmul")) products += static_cast<double>(dur_ns) * 1e-9;
  }
  double shared = 0, weights = 0, products = 0;
};

struct Times {
  double both = 0, beside = 0;  // seconds, of one micro-batch
};

Times times_of(const Case& of, bool on, core::LinkDelay link) {
  Times times;
  const test::TemporaryFolder folder;
  const TrainerConfig config = configured(folder, of, on);
  test::run_thread_ranks(
      2,
      [&](core::Endpoint& endpoint) {
        Rank rank(endpoint, config);
        Beside beside;
        GptStage stage(*rank.state, *rank.parameters);
        StepRunner runner(*rank.state, stage);
        rank.parameters->initialize(1, [](const Parameter&, const core::TensorView&) {});
        const std::vector<Microbatch> batch = random_batch(rank.config, 1, kMicrobatches, endpoint.rank());
        rank.parameters->zero_grads();
        runner.train(batch, 1);  // the first one allocates
        rank.ops.observer = &beside;
        Clock clock;
        runner.set_observer(&clock);
        for (int step = 0; step < kSteps; ++step) {
          rank.parameters->zero_grads();
          runner.train(batch, 1);
        }
        if (endpoint.rank() == 0)
          times = {clock.of_both(), (of.groups > 1 ? beside.products * static_cast<double>(of.groups - 1) /
                                                         static_cast<double>(of.groups)
                                                   : beside.shared + beside.weights) /
                                        (kSteps * kMicrobatches)};
      },
      60, link);
  return times;
}

// What a rank sends in a forward and a backward: four times as many hidden states as its tokens have rows elsewhere.
double sent_bytes(const Case& of) {
  const bool gathers = std::string_view(of.dispatcher) == "allgather";
  const int64_t rows = gathers ? kSeq : kSeq * kTopk / 2;
  return 4.0 * kLayers * static_cast<double>(rows * kHidden) * 4;
}

void hidden_share(benchmark::State& state, const Case& of) {
  times_of(of, false, {});  // the machine's clock rises
  const Times free = times_of(of, false, {});
  const double room = of.pairs ? free.both : free.beside;
  const core::LinkDelay link{.latency_s = 2e-5, .bytes_per_s = sent_bytes(of) / (of.share * room)};
  std::vector<double> near, off, on, beside;
  for (auto _ : state) {
    const Times without_link = times_of(of, false, {});
    near.push_back(without_link.both);
    beside.push_back(of.pairs ? without_link.both : without_link.beside);
    off.push_back(times_of(of, false, link).both);
    on.push_back(times_of(of, true, link).both);
    state.SetIterationTime(on.back());
  }
  const double t_near = bench::median(near), t_off = bench::median(off), t_on = bench::median(on);
  state.counters["no_link_ms"] = t_near * 1e3;
  state.counters["off_ms"] = t_off * 1e3;
  state.counters["on_ms"] = t_on * 1e3;
  state.counters["beside_ms"] = bench::median(beside) * 1e3;
  state.counters["hidden_percent"] = 100 * (t_off - t_on) / std::min(t_off - t_near, bench::median(beside));
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
  ms::bench::run_hidden_shares(argc, argv, ms::train::kCases, 3, ms::train::hidden_share);
}
