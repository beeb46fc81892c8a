#include "train/loop/expert_placement.h"

#include <algorithm>
#include <type_traits>
#include <utility>

#include "core/comm/agree.h"
#include "core/comm/flight_recorder.h"
#include "core/error.h"
#include "core/layout/expert_packing.h"
#include "core/layout/formulas/expert_moves.h"
#include "core/log.h"
#include "core/trace/span.h"
#include "train/features/expert_placement.h"
#include "train/format.h"
#include "train/loop/run_inputs.h"

namespace ms::train {
namespace {

using core::cat;

constexpr const char* kPlacementLog = "train.placement";
constexpr double kLoadDecay = 0.9;        // of the moving average, as MindSpeed's
constexpr double kMinImprovement = 1e-6;  // of the coefficient of variation; less may be rounding
constexpr size_t kMovesShown = 8;

[[noreturn]] void refuse_saved(const std::string& what) {
  throw core::Error(core::ErrorCode::kCorruptData, cat("the checkpoint's ", kExpertPlacement, " ", what));
}

// The numbers of each layer under `key`.
template <class T>
void read_layers(const nlohmann::json& saved, const char* key, std::map<int64_t, std::vector<T>>& layers) {
  for (auto& [layer, values] : layers) {
    const auto place = nlohmann::json::json_pointer(cat("/", key, "/", layer));
    if (!saved.contains(place)) refuse_saved(cat("has no ", key, " of layer ", layer));
    const nlohmann::json& of_layer = saved.at(place);
    const auto is_number = [](const nlohmann::json& value) {
      return std::is_integral_v<T> ? value.is_number_integer() : value.is_number();
    };
    if (!of_layer.is_array() || of_layer.size() != values.size() || !std::ranges::all_of(of_layer, is_number))
      refuse_saved(cat("has other ", key, " of layer ", layer, " than of ", values.size(), " experts"));
    for (size_t expert = 0; expert < values.size(); ++expert) values[expert] = of_layer[expert].get<T>();
  }
}

template <class T>
nlohmann::json layers_json(const std::map<int64_t, std::vector<T>>& layers) {
  nlohmann::json json = nlohmann::json::object();
  for (const auto& [layer, values] : layers) json[cat(layer)] = values;
  return json;
}

}  // namespace

std::unique_ptr<ExpertPlacement> ExpertPlacement::open(RankState& state, ParameterStore& parameters,
                                                       Optimizer& optimizer) {
  if (!trains(state.config) || (!places_experts(state.config) && !state.config.training.print_expert_load))
    return nullptr;
  std::unique_ptr<ExpertPlacement> placement(new ExpertPlacement(state, parameters, optimizer));
  if (places_experts(state.config)) state.expert_slots = &placement->slots_;
  return placement;
}

ExpertPlacement::ExpertPlacement(RankState& state, ParameterStore& parameters, Optimizer& optimizer)
    : state_(state), parameters_(parameters), optimizer_(optimizer) {
  const core::TransformerConfig& model = state.config.model;
  for (int64_t layer = 0; layer < model.num_layers_with_mtp(); ++layer) {
    if (!model.layer_has_experts(layer)) continue;
    slots_[layer] = layout::slots_in_order(model.num_experts);
    load_[layer].resize(static_cast<size_t>(model.num_experts));
  }
}

nlohmann::json ExpertPlacement::saved() const {
  return {{"ranks", ranks()}, {"slots", layers_json(slots_)}, {"load", layers_json(load_)}};
}

void ExpertPlacement::restore(const nlohmann::json& common) {
  if (!places_experts(state_.config) || !common.is_object() || !common.contains(kExpertPlacement)) return;
  const nlohmann::json& saved = common.at(kExpertPlacement);
  if (!saved.is_object()) refuse_saved("is no object");
  read_layers(saved, "load", load_);
  if (saved.value("ranks", nlohmann::json()) != nlohmann::json(ranks())) return;
  read_layers(saved, "slots", slots_);
  for (const auto& [layer, slots] : slots_) {
    if (!layout::is_permutation(slots)) refuse_saved(cat("has two experts of layer ", layer, " in one slot"));
    name_slots(state_, parameters_, layer, slots);
  }
}

void ExpertPlacement::add_load(const ExpertLoads& loads) {
  for (auto& [layer, average] : load_) {
    const auto found = loads.find(layer);
    if (found == loads.end()) continue;
    for (size_t expert = 0; expert < average.size(); ++expert)
      average[expert] =
          kLoadDecay * average[expert] + (1 - kLoadDecay) * static_cast<double>(found->second.tokens[expert]);
  }
}

void ExpertPlacement::print_load(const StepMetrics& step) const {
  for (const auto& [layer, load] : step.experts) {
    const std::vector<double> tokens(load.tokens.begin(), load.tokens.end());
    const std::vector<int32_t>& slots = slots_.at(layer);
    std::string each;
    for (const double own : layout::load_of_ranks(tokens, slots, ranks())) each += cat(" ", static_cast<int64_t>(own));
    core::log_info(kPlacementLog,
                   cat("iteration ", step.iteration, ": layer ", layer, ": tokens of its ranks:", each,
                       format("; coefficient of variation %.3f", layout::load_variation(tokens, slots, ranks()))));
  }
}

void ExpertPlacement::after_step(const StepMetrics& step, CheckpointManager& checkpoints) {
  const TrainingConfig& config = state_.config.training;
  const int64_t interval = state_.config.logger.log_interval;
  if (config.print_expert_load && (step.iteration % interval == 0 || step.iteration == step.train_iters))
    print_load(step);
  if (!places_experts(state_.config)) return;
  add_load(step.experts);
  if (step.iteration % config.expert_placement_freq != 0) return;
  move(step.iteration, checkpoints);
}

ExpertPlacement::Layer ExpertPlacement::pack(int64_t layer) const {
  const TrainingConfig& config = state_.config.training;
  const std::vector<double>& load = load_.at(layer);
  const std::vector<int32_t>& now = slots_.at(layer);
  Layer packed{.to = layout::pack_experts(load, now, ranks()), .before = layout::load_variation(load, now, ranks())};
  packed.after = layout::load_variation(load, packed.to, ranks());
  const bool is_worth_it = config.enable_fine_grained_expert_placement
                               ? packed.before - packed.after >= config.fine_grained_expert_placement_thre
                               : packed.before - packed.after > kMinImprovement;
  if (!is_worth_it) packed.to.clear();
  return packed;
}

std::string ExpertPlacement::moves_text(int64_t layer, const Layer& packed) const {
  const std::vector<int32_t>& now = slots_.at(layer);
  const auto each = static_cast<int32_t>(now.size() / static_cast<size_t>(ranks()));
  std::string moves;
  size_t found = 0;
  for (size_t expert = 0; expert < now.size(); ++expert) {
    if (now[expert] == packed.to[expert] || ++found > kMovesShown) continue;
    moves += cat(found > 1 ? ", " : "", "expert ", expert, " from rank ", now[expert] / each, " to ",
                 packed.to[expert] / each);
  }
  if (found > kMovesShown) moves += cat(", and ", found - kMovesShown, " more");
  return cat("layer ", layer, ": ", moves,
             format("; coefficient of variation of its ranks' load %.3f, predicted %.3f", packed.before, packed.after));
}

void ExpertPlacement::move(int64_t iteration, CheckpointManager& checkpoints) {
  const core::FlightPhase phase(state_.groups.world.endpoint().flight(), "expert-placement");
  const core::trace::Span span(state_.ops.recorder, core::trace::Category::kUserAnnotation, "expert-placement");
  const int64_t start_ns = core::trace::now_ns();
  std::map<int64_t, Layer> layers;
  for (const auto& [layer, slots] : slots_) {
    Layer packed = pack(layer);
    if (packed.to.empty()) {
      core::log_debug(kPlacementLog,
                      cat("iteration ", iteration, ": layer ", layer, ": experts stay",
                          format("; coefficient of variation of its ranks' load %.3f, of another placement %.3f",
                                 packed.before, packed.after)));
      continue;
    }
    layers.emplace(layer, std::move(packed));
  }
  last_ = {};
  if (layers.empty()) return;
  checkpoints.before_update();
  optimizer_.await_weights();
  core::collectively(state_.groups.world, "bring the optimizer's state back", [&] { optimizer_.hold_state(); });
  for (const auto& [layer, packed] : layers) {
    std::vector<int32_t>& now = slots_.at(layer);
    core::log_info(kPlacementLog, cat("iteration ", iteration, ": ", moves_text(layer, packed)));
    for (size_t expert = 0; expert < now.size(); ++expert) last_.experts += now[expert] != packed.to[expert] ? 1 : 0;
    last_.bytes += move_experts(state_, parameters_, optimizer_, layer, now, packed.to);
    now = packed.to;
  }
  optimizer_.release_state(/*is_changed=*/true);
  core::log_info(kPlacementLog,
                 cat("iteration ", iteration, ": ", last_.experts, " experts of ", layers.size(), " of ", slots_.size(),
                     " layers moved",
                     format(" in %.1f ms; this rank received %.3f MiB of weights and optimizer state, and "
                            "gathered %.3f MiB before it",
                            static_cast<double>(core::trace::now_ns() - start_ns) * 1e-6, mib(last_.bytes.received),
                            mib(last_.bytes.gathered))));
}

}  // namespace ms::train
