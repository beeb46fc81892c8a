// How much of their communication the overlapping switches hide: two ranks, as threads, on a link that is as slow as
// the computation beside it is long. Steps of the trainer's own parts, of 6 layers of hidden 256 with 512 tokens.
//
// hidden = (time without the switch - time with it) / min(communication, computation beside it), in percent, of the
// medians of alternated runs. Communication is what the link adds to a run without the switch: the reductions' own
// arithmetic and copies, which no overlap removes, take as long without a link. Beside a reduction of data parallelism
// is the last backward, beside a gather of weights the forward, beside a sum of tensor parallelism the gradients of the
// column-parallel weights, beside the keys of a ring the attention of this rank's own. Of a product in P parts, 1 - 1/P
// of the communication, or of the products, can be beside another part. Needs two free cores; others make it
// meaningless.
#include <algorithm>
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

constexpr int kSteps = 6;

// A case: what is compared, and on which part of a step.
struct Case {
  const char* name;
  test::TinyLayout layout;            // without the switch
  void (*set)(ModelParallelConfig&);  // in both runs
  void (*turn_on)(ModelParallelConfig&);
  enum Part : uint8_t { kForward, kBackward } part;
  double parts = 0;  // of products; 0: they are whole
  // Parts of products are for larger ones.
  int64_t seq() const { return layout.cp > 1 || parts > 0 ? 2048 : 512; }
  int64_t layers() const { return parts > 0 ? 2 : 6; }
  int64_t hidden() const { return parts > 0 ? 512 : 256; }
  int64_t ffn() const { return 4 * hidden(); }
  // The shortest product with a message, attention's row-parallel one, over the mean of them: in units of hidden^2 the
  // row-parallel ones have 1 and 4; the column-parallel ones of SP, whose query groups are half as many as the heads, 2
  // and, with SwiGLU, 8.
  double shortest_product() const { return layout.sp ? 4.0 / (2 + 1 + 8 + 4) : 2.0 / (1 + 4); }
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

struct Times {
  double step = 0, forward = 0, backward = 0;                       // seconds, medians
  double products = 0, column_weight_gradients = 0, attention = 0;  // of one step, that have messages beside them
  double part(const Case& of) const { return of.part == Case::kForward ? forward : backward; }
};

class Clock : public ActionObserver {
 public:
  void begins(std::span<const layout::ScheduleAction> /*actions*/) override { begin_ = core::trace::now_ns(); }
  void ends(std::span<const layout::ScheduleAction> actions) override {
    const double seconds = static_cast<double>(core::trace::now_ns() - begin_) * 1e-9;
    (actions[0].kind == layout::ScheduleAction::kForward ? forward : backward).push_back(seconds);
  }
  std::vector<double> forward, backward;

 private:
  int64_t begin_ = 0;
};

class Products : public ops::OperatorObserver {
 public:
  // With sequence parallelism every product of a forward has a message beside it, else the row-parallel ones.
  explicit Products(const Case& of) : of_(of) {}
  void on_operator(std::string_view name, const std::vector<core::Dims>& inputs, int64_t /*flops*/, int64_t /*bytes*/,
                   int64_t dur_ns) override {
    const double seconds = static_cast<double>(dur_ns) * 1e-9;
    if (name == "linear" && (of_.layout.sp || inputs[0].back() != of_.hidden())) forward += seconds;
    if (name == "linear_wgrad" && inputs[0].back() == of_.hidden()) column_weight_gradients += seconds;
    if (name == "range_attention") attention += seconds / 2;  // one block of two, each as long
  }
  double forward = 0, column_weight_gradients = 0, attention = 0;

 private:
  const Case& of_;
};

Times times_of(const Case& of, bool on, core::LinkDelay link) {
  Times times;
  const test::TemporaryFolder folder;
  const TrainerConfig config = configured(folder, of, on);
  test::run_thread_ranks(
      2,
      [&](core::Endpoint& endpoint) {
        Rank rank(endpoint, config);
        Products products(of);
        rank.ops.observer = &products;
        Optimizer optimizer(*rank.state, *rank.parameters);
        GptStage stage(*rank.state, *rank.parameters);
        optimizer.follow(stage);
        StepRunner runner(*rank.state, stage);
        rank.parameters->initialize(1, [&](const Parameter& parameter, const core::TensorView& values) {
          optimizer.set_master(parameter, values);
        });
        std::vector<Microbatch> batch = {random_microbatch(of.seq())};
        take_rows(sequence_share(config.parallel, of.seq(), rank.state->groups.at.cp), batch[0]);
        Clock clock;
        runner.set_observer(&clock);
        std::vector<double> steps;
        for (int64_t step = 1; step <= kSteps; ++step) {
          const int64_t begin = core::trace::now_ns();
          rank.parameters->zero_grads();
          const BatchResult result = runner.train(batch, 1);
          const double norm = optimizer.finish_gradients(result.grad_scale);
          optimizer.update({.lr = 1e-3, .step = step, .grad_scale = result.grad_scale, .grad_norm = norm});
          steps.push_back(static_cast<double>(core::trace::now_ns() - begin) * 1e-9);
        }
        optimizer.await_weights();
        if (endpoint.rank() == 0) {
          times = {bench::median(steps),
                   bench::median(clock.forward),
                   bench::median(clock.backward),
                   products.forward / kSteps,
                   products.column_weight_gradients / kSteps,
                   products.attention / kSteps};
        }
      },
      60, link);
  return times;
}

// What a rank sends that can be beside computation, in the part of a step that the case is about.
double sent_bytes(const Case& of) {
  const auto layers = static_cast<double>(of.layers()), hidden = static_cast<double>(of.hidden());
  if (of.layout.dp > 1)
    return layers * hidden * (3 * hidden + 3 * static_cast<double>(of.ffn())) * 4 / (of.layout.zero ? 2 : 1);
  if (of.layout.cp > 1) return layers * static_cast<double>(of.seq()) / 2 * hidden * 4;  // two of half as many groups
  return 2 * layers * static_cast<double>(of.seq()) * hidden * 4;
}

// Seconds of what is computed beside the case's communication.
double beside(const Case& of, const Times& times) {
  if (of.layout.dp > 1) return times.part(of);
  if (of.layout.cp > 1) return times.attention;
  return of.part == Case::kForward ? times.products : times.column_weight_gradients;
}

void hidden_share(benchmark::State& state, const Case& of) {
  times_of(of, false, {});  // the machine's clock rises
  // Of tensor and context parallelism the part of a step; data parallelism's messages are between the parts, too.
  const auto time_of = [&](const Times& times) { return of.layout.dp == 1 ? times.part(of) : times.step; };
  // The shortest product of a layer has a message as long as the longest one's: that is to fit beside it, too.
  const double share = of.parts > 1 ? of.shortest_product() : 1;
  const double products = share * beside(of, times_of(of, false, {}));
  core::LinkDelay link{.latency_s = of.parts > 1 ? 2e-5 : 1e-4, .bytes_per_s = sent_bytes(of) / products};
  if (of.parts > 1) {  // a message of two steps takes longer than its bytes over the speed of the link
    std::vector<double> added;
    for (int i = 0; i < 3; ++i) added.push_back(time_of(times_of(of, false, link)) - time_of(times_of(of, false, {})));
    link.bytes_per_s *= std::max(1.0, bench::median(added) / products);
  }
  std::vector<double> near, off, on, computed;
  for (auto _ : state) {
    const Times without_link = times_of(of, false, {});
    near.push_back(time_of(without_link));
    computed.push_back(beside(of, without_link));
    off.push_back(time_of(times_of(of, false, link)));
    on.push_back(time_of(times_of(of, true, link)));
    state.SetIterationTime(on.back());
  }
  const double t_near = bench::median(near), t_off = bench::median(off), t_on = bench::median(on);
  double most = std::min(t_off - t_near, bench::median(computed));
  if (of.parts > 1) most *= 1 - 1 / of.parts;
  state.counters["no_link_ms"] = t_near * 1e3;
  state.counters["off_ms"] = t_off * 1e3;
  state.counters["on_ms"] = t_on * 1e3;
  state.counters["beside_ms"] = bench::median(computed) * 1e3;
  state.counters["hidden_percent"] = 100 * (t_off - t_on) / most;
}

const Case kCases[] = {
    {"overlap_grad_reduce/dp:2", {1, 1, 2}, nothing, reduces, Case::kBackward},
    {"overlap_grad_reduce/dp:2/zero:1", {1, 1, 2, true}, nothing, reduces, Case::kBackward},
    {"overlap_param_gather/dp:2/zero:1",
     {1, 1, 2, true},
     reduces,
     [](ModelParallelConfig& config) { config.overlap_param_gather = true; },
     Case::kForward},
    {"tp_comm_overlap/tp:2", {2, 1, 1}, nothing, sums, Case::kBackward},
    {"tp_comm_overlap/tp:2/sp", {2, 1, 1, false, true}, nothing, sums, Case::kBackward},
    {"ascend_coc/tp:2/parts:4", {2, 1, 1}, nothing, products_in_four, Case::kForward, 4},
    {"ascend_coc/tp:2/sp/parts:4", {2, 1, 1, false, true}, nothing, products_in_four, Case::kForward, 4},
    {"ascend_mc2/tp:2/sp",
     {2, 1, 1, false, true},
     nothing,
     [](ModelParallelConfig& config) { config.use_ascend_mc2 = true; },
     Case::kForward,
     2},
    {"use_cp_send_recv_overlap/cp:2",
     {1, 1, 1, false, false, 1, "", "", 2, "p2p"},
     [](ModelParallelConfig& config) { config.use_cp_send_recv_overlap = false; },
     [](ModelParallelConfig& config) { config.use_cp_send_recv_overlap = true; },
     Case::kForward},
};

}  // namespace
}  // namespace ms::train

int main(int argc, char** argv) {
  ms::bench::run_hidden_shares(argc, argv, ms::train::kCases, 4, ms::train::hidden_share);
}
