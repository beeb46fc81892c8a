#include "train/loop/benchmark.h"

#include <algorithm>
#include <cstdio>
#include <map>

#include "core/comm/agree.h"
#include "core/error.h"
#include "core/layout/process_group_table.h"
#include "core/signals.h"
#include "train/data/tokenizer.h"
#include "train/format.h"
#include "train/loop/random_batch.h"
#include "train/loop/step.h"
#include "train/optim/optimizer.h"
#include "train/parallel/process_groups.h"

namespace ms::train {
namespace {

constexpr int64_t kMaxSteps = 20;
constexpr double kMaxSeconds = 10;

// What a step needs of the configuration. Neither data nor a schedule is: the rules that want them do not hold here.
void resolve(TrainerConfig& config, int world_size) {
  const TokenizerChoice choice = config.data.tokenizer(config.model.vocab_size);
  if (config.model.vocab_size == 0 || choice.tokenizer_type == "NullTokenizer") {
    config.model.vocab_size = make_tokenizer(choice)->vocab_size();
  }
  config.training.skip_train = true;
  config.resolve_and_validate(world_size);
}

// Local shape of a weight -> the layers that multiply with such a one.
std::map<core::Dims, std::string> layers_by_shape(const ParameterStore& parameters, bool tied) {
  constexpr std::string_view kSuffix = ".weight";
  std::map<core::Dims, std::string> layers;
  for (const Parameter& parameter : parameters.all()) {
    std::string_view key = parameter.spec.key;
    if (!key.ends_with(kSuffix)) continue;
    key.remove_suffix(kSuffix.size());
    std::string_view layer = key.substr(key.rfind('.') + 1);  // all of it where there is no '.'
    if (layer == "word_embeddings" && tied) layer = "output_layer";
    if (!layer.starts_with("linear_") && layer != "output_layer") continue;
    std::string& names = layers[parameter.weight.shape()];
    if (core::cat('/', names, '/').find(core::cat('/', layer, '/')) == std::string::npos) {
      names += core::cat(names.empty() ? "" : "/", layer);
    }
  }
  return layers;
}

std::string layer_of(const OperatorRow& row, const std::map<core::Dims, std::string>& layers) {
  if (row.name.rfind("linear", 0) != 0) return "";
  const bool wgrad = row.name == "linear_wgrad";  // of x and dy
  const auto found = layers.find(wgrad ? core::Dims{row.inputs[1].back(), row.inputs[0].back()} : row.inputs[1]);
  return found != layers.end() ? found->second : "";
}

std::string shapes_text(const std::vector<core::Dims>& shapes) {
  std::string text;
  for (const core::Dims& shape : shapes) {
    if (!text.empty()) text += ' ';
    for (size_t i = 0; i < shape.size(); ++i) text += core::cat(i > 0 ? "x" : "", shape[i]);
  }
  return text;
}

// Forward, backward and update, as the trainer's; loss_scale 1, since no scale changes what a step costs.
class Steps {
 public:
  Steps(RankState& state, const std::vector<Microbatch>& batch)
      : state_(state),
        batch_(batch),
        parameters_(state),
        optimizer_(state, parameters_),
        stage_(state, parameters_),
        runner_(state, stage_) {
    optimizer_.follow(stage_);
    parameters_.initialize(
        static_cast<uint64_t>(state.config.rng.seed),
        [&](const Parameter& parameter, const core::TensorView& values) { optimizer_.set_master(parameter, values); });
  }

  const ParameterStore& parameters() const { return parameters_; }

  double take() {
    const int64_t start_ns = core::trace::now_ns();
    parameters_.zero_grads();
    BatchResult result = runner_.train(batch_, /*loss_scale=*/1);
    const double grad_norm = optimizer_.finish_gradients(result.grad_scale);
    runner_.await_loss(result);
    optimizer_.update({.lr = state_.config.optimizer.lr,
                       .weight_decay = state_.config.optimizer.weight_decay,
                       .step = ++taken_,
                       .grad_scale = result.grad_scale,
                       .grad_norm = grad_norm});
    return static_cast<double>(core::trace::now_ns() - start_ns) * 1e-9;
  }

 private:
  RankState& state_;
  const std::vector<Microbatch>& batch_;
  ParameterStore parameters_;
  Optimizer optimizer_;
  GptStage stage_;
  StepRunner runner_;
  int64_t taken_ = 0;
};

// The slowest rank's time since the start, and whether to go on; the same on all ranks.
bool goes_on(core::Communicator& world, int64_t start_ns, int& signal) {
  std::vector<double> told = {static_cast<double>(core::trace::now_ns() - start_ns) * 1e-9,
                              static_cast<double>(core::termination_signal())};
  if (world.size() > 1) world.allreduce(told, core::ReduceOp::kMax);
  signal = static_cast<int>(told[1]);
  return signal == 0 && told[0] < kMaxSeconds;
}

}  // namespace

BenchmarkReport run_benchmark(TrainerConfig config, core::Endpoint& endpoint, core::ThreadPool& pool) {
  core::Communicator start_group = open_group(endpoint, layout::Group::kBenchmark);
  core::collectively(start_group, "start", [&] { resolve(config, endpoint.size()); });
  core::Arena arena;
  const auto opened = open_process_groups(endpoint, config, arena);
  ProcessGroups& groups = *opened;
  ops::Context ops{pool, arena};
  ops.deterministic = config.training.deterministic;
  RankState state{config, groups, ops};

  BenchmarkReport report;
  report.num_microbatches = config.num_microbatches(groups.grid.dp);
  report.micro_batch_size = config.training.micro_batch_size;
  report.seq_length = config.training.seq_length;
  report.threads = pool.num_threads();
  report.dtype = config.params_dtype();
  std::vector<Microbatch> batch = random_batch(config, report.micro_batch_size, report.num_microbatches, groups.at.dp);
  const layout::SampleMask mask = sample_mask(config.training);
  for (Microbatch& microbatch : batch) {
    apply_mask(mask, microbatch);
    take_rows(sequence_share(config.parallel, microbatch.seq, groups.at.cp, {}, mask), microbatch,
              config.model.mtp_num_layers);
  }
  std::unique_ptr<Steps> steps;
  core::collectively(groups.world, "build model", [&] {
    report.ceilings = measure_ceilings(pool);
    steps = std::make_unique<Steps>(state, batch);
  });
  const int64_t start_ns = core::trace::now_ns();
  steps->take();  // page faults, primitives, frequencies
  OperatorTimes times;
  ops.observer = &times;
  std::vector<double> seconds;
  bool more = goes_on(groups.world, start_ns, report.signal);
  while (report.signal == 0 && (more || seconds.empty()) && report.steps < kMaxSteps) {
    times.begin_step();
    seconds.push_back(steps->take());
    ++report.steps;
    more = goes_on(groups.world, start_ns, report.signal);
  }
  ops.observer = nullptr;
  if (report.signal != 0) return report;

  const auto layers = layers_by_shape(steps->parameters(), /*tied=*/!config.model.untie_embeddings_and_output_weights);
  for (OperatorRow& row : times.rows()) {
    report.other_seconds -= row.seconds;
    std::string layer = layer_of(row, layers);
    report.rows.push_back({std::move(row), std::move(layer)});
  }
  report.step_seconds = median(seconds);
  report.other_seconds += report.step_seconds;
  report.ceilings = best_of(report.ceilings, measure_ceilings(pool));
  return report;
}

double BenchmarkReport::share(const OperatorRow& row) const {
  return row.flops > 0 ? static_cast<double>(row.flops) * 1e-9 / row.seconds / ceilings.gflops
                       : static_cast<double>(row.bytes) * 1e-9 / row.seconds / ceilings.gbs();
}

std::string BenchmarkReport::table() const {
  size_t name_width = 8, layer_width = 5, inputs_width = 6;
  for (const Row& row : rows) {
    name_width = std::max(name_width, row.work.name.size());
    layer_width = std::max(layer_width, row.layer.size());
    inputs_width = std::max(inputs_width, shapes_text(row.work.inputs).size());
  }
  const auto line = [&](const std::string& name, const std::string& layer, const std::string& inputs,
                        const std::string& rest) {
    return format("%-*s  %-*s  %-*s  %s\n", static_cast<int>(name_width), name.c_str(), static_cast<int>(layer_width),
                  layer.c_str(), static_cast<int>(inputs_width), inputs.c_str(), rest.c_str());
  };
  const auto total = [&](const char* name, double of_step) {
    return line(name, "", "", format("%5s %10s %10.3f %6.1f", "", "", of_step * 1e3, 100 * of_step / step_seconds));
  };
  std::string text = format("a step of rank 0: %lld x %lld x %lld tokens, %s, %d threads; median of %lld steps\n",
                            static_cast<long long>(num_microbatches), static_cast<long long>(micro_batch_size),
                            static_cast<long long>(seq_length), std::string(core::dtype_name(dtype)).c_str(), threads,
                            static_cast<long long>(steps));
  text += format("ceilings: %.1f GFLOP/s (fp32 multiply-add), %.1f GB/s (read %.1f, copy %.1f)\n\n", ceilings.gflops,
                 ceilings.gbs(), ceilings.read_gbs, ceilings.copy_gbs);
  text += line(
      "operator", "layer", "inputs",
      format("%5s %10s %10s %6s %9s %8s %8s", "calls", "us/call", "ms/step", "%step", "GFLOP/s", "GB/s", "%ceiling"));
  double sum = 0;
  for (const Row& row : rows) {
    const OperatorRow& work = row.work;
    sum += work.seconds;
    const std::string gflops =
        work.flops > 0 ? format("%.1f", static_cast<double>(work.flops) * 1e-9 / work.seconds) : "-";
    text += line(work.name, row.layer, shapes_text(work.inputs),
                 format("%5lld %10.1f %10.3f %6.1f %9s %8.1f %8.1f", static_cast<long long>(work.calls),
                        work.seconds * 1e6 / static_cast<double>(work.calls), work.seconds * 1e3,
                        100 * work.seconds / step_seconds, gflops.c_str(),
                        static_cast<double>(work.bytes) * 1e-9 / work.seconds, 100 * share(work)));
  }
  text += total("operators", sum);
  text += total("other", other_seconds);
  text += total("step", step_seconds);
  return text;
}

nlohmann::json BenchmarkReport::json() const {
  nlohmann::json operators = nlohmann::json::array();
  for (const Row& row : rows) {
    const OperatorRow& work = row.work;
    operators.push_back({{"operator", work.name},
                         {"layer", row.layer},
                         {"inputs", work.inputs},
                         {"calls", work.calls},
                         {"seconds_per_step", work.seconds},
                         {"flops_per_step", work.flops},
                         {"bytes_per_step", work.bytes},
                         {"share_of_ceiling", share(work)}});
  }
  return {{"num_microbatches", num_microbatches},
          {"micro_batch_size", micro_batch_size},
          {"seq_length", seq_length},
          {"dtype", core::dtype_name(dtype)},
          {"threads", threads},
          {"steps", steps},
          {"step_seconds", step_seconds},
          {"other_seconds", other_seconds},
          {"ceiling_gflops", ceilings.gflops},
          {"ceiling_read_gbs", ceilings.read_gbs},
          {"ceiling_copy_gbs", ceilings.copy_gbs},
          {"operators", operators}};
}

}  // namespace ms::train
