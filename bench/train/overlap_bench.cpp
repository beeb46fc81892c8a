// How much of their communication the overlapping switches hide: two ranks, as threads, on a link on which a message
// takes as long as the computation beside it; of tensor parallelism, whose messages are equal, as the shortest one.
// Steps of the trainer's own parts.
//
// Beside a reduction of data parallelism is the last backward; beside a gather of weights the forward, and with
// --overlap-param-gather-with-optimizer-step the update; beside a sum of tensor parallelism the gradients of the
// column-parallel weights; beside the keys of a ring the attention of this rank's own. Of a product in P parts, 1 - 1/P
// of the communication, or of the products, can be beside another part; with MC2 all of its gathers, half of the
// communication. How it is measured: hidden_share.h.
#include <algorithm>
#include <functional>
#include <vector>

#include "bench/median.h"
#include "bench/train/hidden_share.h"
#include "core/trace/recorder.h"
#include "tests/support/thread_comm.h"
#include "tests/support/tiny_run.h"
#include "tests/train/model/rank.h"
#include "train/loop/step.h"
#include "train/optim/optimizer.h"

namespace ms::train {
namespace {

constexpr int kRanks = 2;

// A case: what is compared, and on which part of a step.
struct Case {
  const char* name;
  test::TinyLayout layout;            // without the switch
  void (*set)(ModelParallelConfig&);  // in both runs
  void (*turn_on)(ModelParallelConfig&);
  enum Part : uint8_t { kForward, kBackward, kUpdateAndForward } part;
  double parts = 0;        // of products; 0: they are whole
  bool own_first = false;  // this rank's own rows are multiplied first, while all others are gathered, as MC2
  // What the link adds to a step is as much for a gather of weights as for the reductions that the switch is about.
  bool gathers_too() const { return layout.zero && part == kBackward; }
  // Of tensor parallelism so large that a part, and what a kernel computes between two polls (kernels/progress.h), is
  // long beside a message's latency, and short beside a message.
  int64_t seq() const {
    if (part == kUpdateAndForward) return 64;  // so that the update is a large part of them
    return layout.dp > 1 ? 512 : 2048;
  }
  int64_t layers() const { return layout.tp > 1 ? 2 : 6; }
  int64_t hidden() const { return layout.tp > 1 ? 512 : 256; }
  int64_t ffn() const { return 4 * hidden(); }
  // The shortest of the products that have a message beside them, over the mean of them. In units of hidden^2: the
  // row-parallel ones have 1 and 4, the column-parallel ones, whose query groups are half as many as the heads, 2 and,
  // with SwiGLU, 8. Forward: the row-parallel ones, with SP all; backward: the gradients of column-parallel weights.
  double shortest_product() const {
    if (part == kBackward) return 2 * 2.0 / (2 + 8);
    return layout.sp ? 4.0 / (2 + 1 + 8 + 4) : 2.0 / (1 + 4);
  }
};

void reduces(ModelParallelConfig& config) {
  config.overlap_grad_reduce = true;
  config.ddp_num_buckets = 12;
}
void nothing(ModelParallelConfig& /*config*/) {}
void sums(ModelParallelConfig& config) { config.tp_comm_overlap = true; }
void products_in_four(ModelParallelConfig& config) {
  config.use_ascend_coc = true;
  config.coc_parallel_num = 4;
}

TrainerConfig configured(const test::TemporaryFolder& folder, const Case& of, bool on) {
  TrainerConfig config = test::tiny_config(folder.path(), of.layout);
  config.model.num_layers = of.layers();
  config.model.hidden_size = of.hidden();
  config.model.ffn_hidden_size = of.ffn();
  config.model.kv_channels = of.hidden() / config.model.num_attention_heads;
  config.model.max_position_embeddings = of.seq();
  config.training.seq_length = of.seq();
  config.training.global_batch_size = of.layout.dp;
  of.set(config.parallel);
  if (on) of.turn_on(config.parallel);
  return config;
}

Microbatch random_microbatch(int64_t seq) {
  Microbatch microbatch;
  microbatch.batch = 1, microbatch.seq = seq;
  int32_t draw = 1;
  for (int64_t i = 0; i < seq; ++i) {
    microbatch.tokens.push_back(draw = draw * 37 % 257);
    microbatch.labels.push_back((draw * 53 + 1) % 257);
  }
  microbatch.loss_mask.assign(static_cast<size_t>(seq), 1.0F);
  microbatch.samples = {0};
  return microbatch;
}

bench::Run runs_of(const Case& of) {
  return [&of](bool on, core::LinkDelay link, const std::function<void(int rank, const bench::Step&)>& body) {
    const test::TemporaryFolder folder;
    const TrainerConfig config = configured(folder, of, on);
    test::run_thread_ranks(
        kRanks,
        [&](core::Endpoint& endpoint) {
          bench::use_cpu(endpoint.rank());
          Rank rank(endpoint, config);
          Optimizer optimizer(*rank.state, *rank.parameters);
          GptStage stage(*rank.state, *rank.parameters);
          optimizer.follow(stage);
          StepRunner runner(*rank.state, stage);
          rank.parameters->initialize(1, [&](const Parameter& parameter, const core::TensorView& values) {
            optimizer.set_master(parameter, values);
          });
          std::vector<Microbatch> batch = {random_microbatch(of.seq())};
          take_rows(sequence_share(config.parallel, of.seq(), rank.state->groups.at.cp), batch[0]);
          int64_t steps = 0;
          const std::function<void()> run_step = [&] {
            rank.parameters->zero_grads();
            const BatchResult result = runner.train(batch, 1);
            const double norm = optimizer.finish_gradients(result.grad_scale);
            optimizer.update({.lr = 1e-3, .step = ++steps, .grad_scale = result.grad_scale, .grad_norm = norm});
          };
          run_step();
          body(endpoint.rank(), bench::observed(rank.ops, runner, run_step));
          optimizer.await_weights();
        },
        60, link);
  };
}

struct Times {  // seconds of a step
  double step = 0, forward = 0, backward = 0;
  double products = 0, column_weight_gradients = 0, attention = 0, update = 0;  // that have messages beside them
};

class Clock : public ActionObserver {
 public:
  explicit Clock(Times& of_step) : of_step_(of_step) {}
  void begins(std::span<const layout::ScheduleAction> /*actions*/) override { begin_ = core::trace::now_ns(); }
  void ends(std::span<const layout::ScheduleAction> actions) override {
    const double seconds = static_cast<double>(core::trace::now_ns() - begin_) * 1e-9;
    (actions[0].kind == layout::ScheduleAction::kForward ? of_step_.forward : of_step_.backward) += seconds;
  }

 private:
  Times& of_step_;
  int64_t begin_ = 0;
};

class Operators : public bench::TimedOperators {
 public:
  Operators(const Case& of, const bench::OperatorPace& pace, Times& of_step)
      : TimedOperators(pace), of_(of), of_step_(of_step) {}

 private:
  // With sequence parallelism every product of a forward has a message beside it, else the row-parallel ones.
  void on_timed(std::string_view name, const std::vector<core::Dims>& inputs, int64_t dur_ns) override {
    const double seconds = static_cast<double>(dur_ns) * 1e-9;
    if (name == "linear" && (of_.layout.sp || inputs[0].back() != of_.hidden())) of_step_.products += seconds;
    if (name == "linear_wgrad" && inputs[0].back() == of_.hidden()) of_step_.column_weight_gradients += seconds;
    if (name == "range_attention") of_step_.attention += seconds / 2;  // one block of two, each as long
    if (name == "adamw") of_step_.update += seconds;
  }
  const Case& of_;
  Times& of_step_;
};

// What a rank sends that can be beside computation, in the part of a step that the case is about.
double sent_bytes(const Case& of) {
  const auto layers = static_cast<double>(of.layers()), hidden = static_cast<double>(of.hidden());
  if (of.layout.dp > 1)
    return layers * hidden * (3 * hidden + 3 * static_cast<double>(of.ffn())) * 4 / (of.layout.zero ? 2 : 1);
  if (of.layout.cp > 1) return layers * static_cast<double>(of.seq()) / 2 * hidden * 4;  // two of half as many groups
  return 2 * layers * static_cast<double>(of.seq()) * hidden * 4;
}

// The time that a case is about: of tensor and context parallelism the part of a step; data parallelism's messages are
// between the parts, too.
double time_of(const Case& of, const Times& times) {
  if (of.layout.dp > 1) return times.step;
  return of.part == Case::kForward ? times.forward : times.backward;
}

// Of what is computed beside the case's communication.
double beside(const Case& of, const Times& times) {
  const bool forward = of.part == Case::kForward;
  if (of.part == Case::kUpdateAndForward) return times.update + times.forward;
  if (of.layout.dp > 1) return forward ? times.forward : times.backward;
  if (of.layout.cp > 1) return times.attention;
  return forward ? times.products : times.column_weight_gradients;
}

// Of rank 0.
bench::StepTimes times_of(const Case& of, const bench::OperatorPace& pace, bool on, core::LinkDelay link) {
  std::vector<double> seconds, computed, late;
  runs_of(of)(on, link, [&](int rank, const bench::Step& step) {
    for (int i = 0; i < bench::kCountedSteps; ++i) {
      Times times;
      Clock clock(times);
      Operators operators(of, pace, times);
      const int64_t begin = core::trace::now_ns();
      step(operators, &clock);
      times.step = static_cast<double>(core::trace::now_ns() - begin) * 1e-9;
      if (rank != 0) continue;
      seconds.push_back(time_of(of, times));
      computed.push_back(beside(of, times));
      late.push_back(static_cast<double>(operators.late_ns()) * 1e-9 / times.step);
    }
  });
  return {bench::median(seconds), bench::median(computed), bench::median(late)};
}

void hidden_share(benchmark::State& state, const Case& of) {
  const bench::OperatorPace pace = bench::measured_pace(runs_of(of));
  const auto times = [&](bool on, core::LinkDelay link) { return times_of(of, pace, on, link); };
  const bench::StepTimes near = times(false, {});
  // The shortest product of a layer has a message as long as the longest one's: that is to fit beside it, too.
  const bool is_beside_product = of.layout.tp > 1;
  const double room = is_beside_product ? of.shortest_product() * near.beside : near.beside;
  core::LinkDelay link{.latency_s = is_beside_product ? 2e-5 : 1e-4, .bytes_per_s = sent_bytes(of) / room};
  if (is_beside_product) {  // a message of two steps takes longer than its bytes over the speed of the link
    link.bytes_per_s *= std::max(1.0, (times(false, link).seconds - near.seconds) / room);
  }
  bench::report_hidden_share(state, near, link, times, [&](double communication, double computed) {
    if (of.gathers_too()) communication /= 2;
    const double beside_parts = of.parts > 1 ? 1 - 1 / of.parts : 1;
    return std::min((of.own_first ? (1 + beside_parts) / 2 : beside_parts) * communication, beside_parts * computed);
  });
}

const Case kCases[] = {
    {"overlap_grad_reduce/dp:2", {1, 1, 2}, nothing, reduces, Case::kBackward},
    {"overlap_grad_reduce/dp:2/zero:1", {1, 1, 2, true}, nothing, reduces, Case::kBackward},
    {"overlap_param_gather/dp:2/zero:1",
     {1, 1, 2, true},
     reduces,
     [](ModelParallelConfig& config) { config.overlap_param_gather = true; },
     Case::kForward},
    {"overlap_param_gather_with_optimizer_step/dp:2/zero:1",
     {1, 1, 2, true},
     reduces,
     [](ModelParallelConfig& config) {
       config.overlap_param_gather = config.overlap_param_gather_with_optimizer_step = true;
     },
     Case::kUpdateAndForward},
    {"tp_comm_overlap/tp:2", {2, 1, 1}, nothing, sums, Case::kBackward},
    {"tp_comm_overlap/tp:2/sp", {2, 1, 1, false, true}, nothing, sums, Case::kBackward},
    {"ascend_coc/tp:2/parts:4", {2, 1, 1}, nothing, products_in_four, Case::kForward, 4},
    {"ascend_coc/tp:2/sp/parts:4", {2, 1, 1, false, true}, nothing, products_in_four, Case::kForward, 4},
    {"ascend_mc2/tp:2/sp/parts:4",
     {2, 1, 1, false, true},
     nothing,
     [](ModelParallelConfig& config) { config.use_ascend_mc2 = true; },
     Case::kForward,
     4,
     true},
    {"use_cp_send_recv_overlap/cp:2",
     {1, 1, 1, false, false, 1, "", "", 2, "p2p"},
     [](ModelParallelConfig& config) { config.use_cp_send_recv_overlap = false; },
     [](ModelParallelConfig& config) { config.use_cp_send_recv_overlap = true; },
     Case::kForward},
};

}  // namespace
}  // namespace ms::train

int main(int argc, char** argv) {
  ms::bench::run_hidden_shares(argc, argv, ms::train::kCases, ms::train::hidden_share);
}
