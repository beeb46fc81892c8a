#include "train/loop/part_times.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "core/comm/agree.h"
#include "core/error.h"
#include "core/layout/formulas/memory.h"
#include "core/layout/slot_policy.h"
#include "core/log.h"
#include "core/rng.h"
#include "core/signals.h"
#include "core/trace/recorder.h"
#include "train/format.h"
#include "train/loop/random_batch.h"
#include "train/memory/swap_tier.h"
#include "train/model/embedding.h"
#include "train/model/loss.h"
#include "train/model/rotary_embedding.h"
#include "train/model/transformer_layer.h"
#include "train/ops/elementwise.h"
#include "train/optim/optimizer.h"

namespace ms::train {
namespace {

constexpr int kMinRepetitions = 2, kMaxRepetitions = 15;
constexpr double kMaxSeconds = 10;  // of all repetitions
// Of the measured spread: no machine is quieter, and on one that is noisier half of the repetitions say too little.
constexpr double kLeastSpread = 0.01, kLargestSpread = 0.1;

// A layer of each kind, and the kind of each layer.
struct LayerKinds {
  std::vector<int64_t> examples;  // global layers
  std::vector<size_t> of_layer;
};

LayerKinds kinds_of(const core::TransformerConfig& model) {
  const std::vector<int64_t> windows = model.windows_of_layers();
  const std::vector<bool> ropes = model.layers_with_rope();
  std::map<std::pair<int64_t, bool>, size_t> known;
  LayerKinds kinds;
  for (int64_t layer = 0; layer < model.num_layers; ++layer) {
    const auto at = static_cast<size_t>(layer);
    const auto [kind, is_new] = known.try_emplace({windows[at], ropes[at]}, kinds.examples.size());
    if (is_new) kinds.examples.push_back(layer);
    kinds.of_layer.push_back(kind->second);
  }
  return kinds;
}

// What is timed. Of a layer first as the run has it, then dropped and run again, then with its MLP recomputed.
enum Timed : size_t {
  kEmbeddingForward,
  kEmbeddingBackward,
  kLossForward,
  kLossBackward,
  kUpdate,
  kFirstOfLayers,
};
enum TimedOfLayer : size_t {
  kForward,
  kBackward,
  kRefill,
  kBackwardOfRefilled,
  kForwardOfMlpRecomputed,
  kBackwardOfMlpRecomputed,
  kNumOfLayer,
};

double seconds_since(int64_t start_ns) { return static_cast<double>(core::trace::now_ns() - start_ns) * 1e-9; }

// The parts that this rank measures.
class Parts {
 public:
  Parts(RankState& state, const LayerKinds& kinds)
      : state_(state),
        parameters_(state, [&](const layout::ParameterSpec& spec) { return holds(spec, kinds); }),
        optimizer_(state, parameters_),
        rope_(state.ops.arena, state.config, state.groups.at.cp),
        own_(layout::layer_slots(state.config.recompute_plan(), layout::SwapPlan(), 0)),
        with_mlp_recomputed_(own_),
        seconds_(kFirstOfLayers + kNumOfLayer * kinds.examples.size()) {
    const int stage = state.groups.at.pp;
    if (stage == 0) embedding_.emplace(state, parameters_);
    if (stage == state.groups.grid.pp - 1) loss_.emplace(state, parameters_);
    with_mlp_recomputed_.recompute(layout::kRecomputedMlp);
    layers_.reserve(kinds.examples.size());
    for (const int64_t layer : kinds.examples) layers_.emplace_back(state, parameters_, rope_.of_layer(layer), layer);
    parameters_.initialize(
        static_cast<uint64_t>(state.config.rng.seed),
        [&](const Parameter& parameter, const core::TensorView& values) { optimizer_.set_master(parameter, values); });
  }

  // From now on with micro-batches of so many samples.
  void take_batch(int64_t micro_batch_size) {
    batch_ = std::move(random_batch(state_.config, micro_batch_size, 1, state_.groups.at.dp).front());
    const TrainerConfig& config = state_.config;
    const layout::SampleMask mask = sample_mask(config.training);
    apply_mask(mask, batch_);
    take_rows(sequence_share(config.parallel, batch_.seq, state_.groups.at.cp, {}, mask), batch_);
    const int64_t seq = batch_.seq / (state_.sequence_parallel() ? state_.tp_size() : 1);
    core::Tensor values(state_.ops.arena, core::DType::kFp32, {seq, batch_.batch, state_.config.model.hidden_size},
                        core::MemoryTag::kTmp);
    const core::Rng rng(static_cast<uint64_t>(state_.config.rng.seed), "hidden states");
    for (int64_t i = 0; i < values.size(); ++i) values.data<float>()[i] = rng.normal(static_cast<uint64_t>(i));
    hidden_ = ops::cast(state_.ops, values, state_.config.params_dtype());
  }

  // Each part once. Ranks of a stage communicate, those of different stages only in the update.
  void measure() {
    for (size_t kind = 0; kind < layers_.size(); ++kind) measure_layer(kind);
    if (embedding_) measure_embedding();
    if (loss_) measure_loss();
    state_.groups.world.barrier();  // else the update's time has the wait for the last stage's loss in it
    const int64_t start_ns = core::trace::now_ns();
    const double norm = optimizer_.finish_gradients(1);
    if (std::isfinite(norm)) optimizer_.update({.grad_norm = norm});
    parameters_.zero_grads();
    seconds_[kUpdate].push_back(seconds_since(start_ns));
  }
  void forget() {
    for (std::vector<double>& samples : seconds_) samples.clear();
  }

  // Share by which the sums of the least of every other repetition differ.
  double spread() const {
    double sums[2] = {};
    for (const std::vector<double>& samples : seconds_) {
      double least[2] = {std::numeric_limits<double>::infinity(), std::numeric_limits<double>::infinity()};
      for (size_t i = 0; i < samples.size(); ++i) least[i % 2] = std::min(least[i % 2], samples[i]);
      for (const size_t half : {0, 1}) sums[half] += samples.size() > 1 ? least[half] : 0;
    }
    const double less = std::min(sums[0], sums[1]);
    return less > 0 ? std::abs(sums[0] - sums[1]) / less : kLargestSpread;
  }

  int64_t num_elements() const { return parameters_.trained_elems() + parameters_.frozen().size(); }
  // The least of each Timed, because whatever disturbs only adds; nothing of those that this rank has not.
  std::vector<std::optional<double>> least() const {
    std::vector<std::optional<double>> result;
    for (const std::vector<double>& samples : seconds_)
      result.push_back(samples.empty() ? std::nullopt : std::optional(std::ranges::min(samples)));
    return result;
  }

 private:
  bool holds(const layout::ParameterSpec& spec, const LayerKinds& kinds) const {
    const core::TransformerConfig& model = state_.config.model;
    if (spec.layer < 0 || spec.layer >= model.num_layers)
      return layout::stage_holds(spec, model, state_.layout(), state_.groups.at.pp);
    return std::ranges::count(kinds.examples, spec.layer) > 0;
  }

  template <class Body>
  auto timed(size_t what, const Body& body) {
    const int64_t start_ns = core::trace::now_ns();
    auto result = body();
    seconds_[what].push_back(seconds_since(start_ns));
    return result;
  }
  core::Tensor hidden() { return ops::cast(state_.ops, hidden_, hidden_.dtype()); }  // a copy

  void measure_layer(size_t kind) {
    TransformerLayer& layer = layers_[kind];
    const size_t first = kFirstOfLayers + kNumOfLayer * kind;
    const SequenceContext sequence = sequence_context(batch_, /*training=*/true);
    WeightGradients weights;
    const auto run = [&](const layout::LayerSlots& slots, size_t forward, size_t backward) {
      LayerActivations saved{.input = hidden(), .slots = slots};
      core::Tensor output = timed(first + forward, [&] { return layer.forward(saved, sequence); });
      timed(first + backward, [&] { return layer.backward(std::move(output), saved, sequence, weights); });
    };
    run(own_, kForward, kBackward);
    LayerActivations dropped{.input = hidden(), .slots = own_};
    timed(first + kRefill, [&] {
      layer.refill(dropped, sequence);
      return true;
    });
    timed(first + kBackwardOfRefilled, [&] { return layer.backward(hidden(), dropped, sequence, weights); });
    run(with_mlp_recomputed_, kForwardOfMlpRecomputed, kBackwardOfMlpRecomputed);
  }

  void measure_embedding() {
    core::Tensor result = timed(kEmbeddingForward, [&] { return embedding_->forward(batch_, batch_.samples); });
    timed(kEmbeddingBackward, [&] {
      embedding_->backward(batch_, std::move(result), batch_.samples);
      return true;
    });
  }

  void measure_loss() {
    LossActivations saved{.input = hidden()};
    WeightGradients weights;
    const double scale = 1 / static_cast<double>(batch_.tokens.size());
    timed(kLossForward, [&] { return loss_->forward(batch_, saved, scale); });
    timed(kLossBackward, [&] { return loss_->backward(batch_, saved, weights); });
  }

  RankState& state_;
  ParameterStore parameters_;
  Optimizer optimizer_;
  RotaryTables rope_;
  std::optional<Embedding> embedding_;
  std::optional<LossHead> loss_;
  std::vector<TransformerLayer> layers_;  // of each kind
  layout::LayerSlots own_, with_mlp_recomputed_;
  Microbatch batch_;
  core::Tensor hidden_;
  std::vector<std::vector<double>> seconds_;  // of each Timed
};

// Sums of what ranks have, in one message; the same on all ranks.
class Means {
 public:
  Means(core::Communicator& world, const std::vector<std::optional<double>>& own) {
    std::vector<double> sums;
    for (const std::optional<double>& value : own) {
      sums.push_back(value.value_or(0));
      sums.push_back(value ? 1 : 0);
    }
    world.allreduce(sums);
    for (size_t i = 0; i < sums.size(); i += 2) means_.push_back(sums[i + 1] > 0 ? sums[i] / sums[i + 1] : 0);
  }
  double of(size_t what) const { return means_[what]; }

 private:
  std::vector<double> means_;
};

layout::ModelTimes times_of(const Means& means, const LayerKinds& kinds, double update_per_element) {
  layout::ModelTimes times{.embedding = {means.of(kEmbeddingForward), means.of(kEmbeddingBackward)},
                           .loss = {means.of(kLossForward), means.of(kLossBackward)},
                           .layers = {},
                           .update_per_element = update_per_element};
  for (const size_t kind : kinds.of_layer) {
    const auto of = [&](TimedOfLayer what) { return means.of(kFirstOfLayers + kNumOfLayer * kind + what); };
    const auto longer = [&](TimedOfLayer what, TimedOfLayer than) { return std::max(0.0, of(what) - of(than)); };
    layout::LayerTimes layer{{of(kForward), of(kBackward)}};
    layer.recompute_layer = of(kRefill) + longer(kBackwardOfRefilled, kBackward);
    layer.recompute_mlp = longer(kForwardOfMlpRecomputed, kForward) + longer(kBackwardOfMlpRecomputed, kBackward);
    times.layers.push_back(layer);
  }
  return times;
}

layout::ModelTimes measure(Parts& parts, const LayerKinds& kinds, core::Communicator& world) {
  parts.measure();  // page faults, primitives, packed weights
  parts.forget();
  const int64_t start_ns = core::trace::now_ns();
  std::vector<double> elapsed;
  for (int repetition = 0; repetition < kMaxRepetitions; ++repetition) {
    parts.measure();
    elapsed = {seconds_since(start_ns), core::termination_signal() != 0 ? 1.0 : 0.0};
    world.allreduce(elapsed, core::ReduceOp::kMax);
    if (elapsed[1] > 0 || (repetition + 1 >= kMinRepetitions && elapsed[0] > kMaxSeconds))
      break;  // a signal ends the run before its first step
  }
  const std::vector<std::optional<double>> least = parts.least();
  // All ranks reduce gradients together, so that the stage with the most of them decides.
  std::vector<double> most = {least[kUpdate].value_or(0), static_cast<double>(parts.num_elements()), parts.spread()};
  world.allreduce(most, core::ReduceOp::kMax);
  layout::ModelTimes times = times_of(Means(world, least), kinds, most[0] / most[1]);
  times.spread = std::clamp(most[2], kLeastSpread, kLargestSpread);
  return times;
}

// Bytes a second that the slowest rank writes to the tier and reads back, while all do.
struct TierSpeed {
  double written, read;
};

TierSpeed measure_tier(const TrainerConfig& config, core::Arena& arena, core::Communicator& world) {
  constexpr int64_t kBytes = 32 << 20, kPieces = 8;  // as several tensors
  std::optional<SwapTier> tier;
  std::vector<core::Tensor> pieces;
  core::collectively(world, "measure --swap-dir", [&] {
    tier.emplace(swap_folder(config), kBytes, nullptr);
    for (int64_t i = 0; i < kPieces; ++i) {
      pieces.push_back(core::Tensor(arena, core::DType::kUInt8, {kBytes / kPieces}, core::MemoryTag::kAct));
      std::memset(pieces.back().bytes(), static_cast<int>(i + 1), static_cast<size_t>(pieces.back().size_bytes()));
    }
  });
  const auto bytes_of = [](core::Tensor& piece) {
    return std::span(piece.bytes(), static_cast<size_t>(piece.size_bytes()));
  };
  world.barrier();
  std::vector<SwapTier::Stored> stored;
  const int64_t start_ns = core::trace::now_ns();
  for (core::Tensor& piece : pieces) stored.push_back(tier->put(bytes_of(piece)));
  for (SwapTier::Stored& piece : stored) (void)tier->wait(piece);
  const double written = seconds_since(start_ns);
  for (size_t i = 0; i < stored.size(); ++i) tier->fetch(stored[i], bytes_of(pieces[i]));
  for (SwapTier::Stored& piece : stored) (void)tier->wait(piece);
  std::vector<double> slowest = {written, seconds_since(start_ns) - written};
  core::collectively(world, "measure --swap-dir", [&] { tier->check(); });
  world.allreduce(slowest, core::ReduceOp::kMax);
  const TierSpeed speed = {kBytes / std::max(slowest[0], 1e-9), kBytes / std::max(slowest[1], 1e-9)};
  core::log_info("train.pipeline", format("automated pipeline: each rank writes %.3g GB/s to --swap-dir, and reads "
                                          "%.3g GB/s from it",
                                          speed.written * 1e-9, speed.read * 1e-9));
  return speed;
}

// A layer waits for the tier where that is slower than the layer itself.
void wait_for_tier(const TierSpeed& speed, const layout::TrainingStep& step, layout::ModelTimes& times) {
  const layout::LayerSlots slots = layout::layer_slots(step.recompute, step.swap, 0);
  const auto bytes = static_cast<double>(layout::swapped_bytes_of_layer(step, slots).of_tier);
  for (layout::LayerTimes& layer : times.layers) {
    layer.forward = std::max(layer.forward, bytes / speed.written);
    layer.backward = std::max(layer.backward, bytes / speed.read);
  }
}

// Lets reductions run on the pool, as in the steps of a run.
class ThreadsForReductions {
 public:
  ThreadsForReductions(core::Endpoint& endpoint, core::ThreadPool& pool) : endpoint_(endpoint) {
    endpoint.use_threads(&pool);
  }
  ~ThreadsForReductions() { endpoint_.use_threads(nullptr); }
  ThreadsForReductions(const ThreadsForReductions&) = delete;

 private:
  core::Endpoint& endpoint_;
};

}  // namespace

std::vector<layout::ModelTimes> measure_parts(const TrainerConfig& config, ProcessGroups& groups,
                                              core::ThreadPool& pool, std::span<const int64_t> micro_batch_sizes) {
  core::Arena arena;
  ops::Context ops{pool, arena};
  ops.deterministic = config.training.deterministic;
  RankState state{config, groups, ops};
  const LayerKinds kinds = kinds_of(config.model);
  std::unique_ptr<Parts> parts;
  core::collectively(groups.world, "build parts of the model", [&] { parts = std::make_unique<Parts>(state, kinds); });
  const ThreadsForReductions threads(groups.world.endpoint(), pool);
  std::optional<TierSpeed> speed;
  if (swap_plan(config).activations()) speed = measure_tier(config, arena, groups.world);
  std::vector<layout::ModelTimes> times;
  for (const int64_t size : micro_batch_sizes) {
    core::collectively(groups.world, "draw a micro-batch to measure", [&] { parts->take_batch(size); });
    times.push_back(measure(*parts, kinds, groups.world));
    if (!speed) continue;
    TrainerConfig sized = config;
    sized.training.micro_batch_size = size;
    wait_for_tier(*speed, sized.training_step(groups.world.size()), times.back());
  }
  return times;
}

}  // namespace ms::train
