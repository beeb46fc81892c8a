#include "train/plan.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/error.h"
#include "core/layout/formulas/flops.h"
#include "core/layout/process_group_table.h"
#include "core/layout/slot_policy.h"
#include "core/layout/tensor_cut.h"
#include "train/dealing_text.h"
#include "train/expert_moves_text.h"
#include "train/format.h"
#include "train/mask_text.h"
#include "train/saved_tensors_text.h"

namespace ms::train {
namespace {

using core::cat;
using layout::Group;

constexpr size_t kMaxUnitWidth = 8;                    // characters for one unit
constexpr int kTimelineUnits = 40;                     // shown, or as many as there is room for
constexpr size_t kTimelineWidth = 200;                 // characters
constexpr int64_t kMaxChunkVisits = int64_t{1} << 21;  // about 2 s and 1 GiB of JSON
constexpr size_t kGroupsShown = 4, kRanksShown = 8;

// "a ring", or "a ring (layers 0, 3), gather of keys (layers 1-2)".
std::string context_algorithms_text(const layout::TrainingStep& step) {
  if (step.context_algorithms.empty()) return std::string(layout::algorithm_name(step.context_algorithm));
  std::vector<std::pair<layout::ContextAlgorithm, std::vector<layout::LayerRange>>> ranges;  // by the first layer
  for (int64_t layer = 0; layer < step.model.num_layers; ++layer) {
    const layout::ContextAlgorithm algorithm = step.context_algorithm_of(layer);
    auto of = std::ranges::find(ranges, algorithm, [](const auto& entry) { return entry.first; });
    if (of == ranges.end()) of = ranges.insert(of, {algorithm, {}});
    if (of->second.empty() || of->second.back().first + of->second.back().count < layer)
      of->second.push_back({layer, 0});
    ++of->second.back().count;
  }
  std::string text;
  for (const auto& [algorithm, layers] : ranges)
    text += cat(text.empty() ? "" : ", ", layout::algorithm_name(algorithm), " (layers ", layers_text(layers), ")");
  return text;
}

layout::PipelineSchedule schedule_of(const layout::TrainingStep& step) {
  layout::PipelineSchedule schedule{layout::placement_of(step.model, step.layout), step.num_microbatches, false, {}};
  const int stages = schedule.placement.stages(), chunks = schedule.placement.chunks();
  const int64_t places = int64_t{stages} * chunks;
  if (step.num_microbatches > kMaxChunkVisits / places) {
    throw core::Error(core::ErrorCode::kInvalidArgument,
                      cat("a plan lists every action of a step, and ", step.num_microbatches, " micro-batches through ",
                          places, " chunks of layers are more than ", kMaxChunkVisits,
                          " visits; give a smaller --global-batch-size, what a micro-batch costs stays the same"));
  }
  for (int stage = 0; stage < stages; ++stage)
    schedule.actions.push_back(layout::schedule_training(step.schedule, stage, stages, chunks, step.num_microbatches));
  return schedule;
}

// The share of a chunk's layers that run again, for the micro-batches that drop any.
double share_run_again(const layout::SlotPolicy& policy, int chunk) {
  double most = 0;
  for (const auto& [table, microbatches] : policy.shares(chunk)) {
    int64_t dropped = 0;
    for (int64_t layer = 0; layer < table.layers(); ++layer) dropped += table[layer].runs_again() ? 1 : 0;
    if (dropped > 0) most = std::max(most, static_cast<double>(dropped) / static_cast<double>(table.layers()));
  }
  return most;
}

// Of each place, in units of a forward: a backward takes two, recomputation as much as the layers that are dropped, in
// the backward or as an action of its own.
std::vector<layout::ActionTimes> times_of(const layout::TrainingStep& step, const layout::PipelineSchedule& schedule) {
  std::vector<layout::ActionTimes> times;
  for (int stage = 0; stage < schedule.placement.stages(); ++stage) {
    const layout::SlotPolicy policy(step, stage, schedule.actions[static_cast<size_t>(stage)]);
    for (int chunk = 0; chunk < schedule.placement.chunks(); ++chunk) {
      const double again = share_run_again(policy, chunk);
      const double within = step.schedule.recompute == layout::RecomputeTime::kAtBackward ? again : 0;
      times.push_back({.forward = 1,
                       .backward = 2 + within,
                       .backward_input = 1 + within,
                       .backward_weight = 1,
                       .recompute = again});
    }
  }
  return times;
}

// Of a forward and the backward that runs with it: of the other chunk in a V, of any chunk in an interleaved schedule,
// for which the mean stands. No less than one after the other, because what is hidden takes no time here.
std::vector<layout::ActionTimes> with_pairs(const layout::Placement& placement,
                                            std::vector<layout::ActionTimes> times) {
  const auto chunks = static_cast<size_t>(placement.chunks());
  const bool runs_in_a_v = placement.order() == layout::Placement::Order::kV;
  for (size_t place = 0; place < times.size(); ++place) {
    const size_t first = runs_in_a_v ? place ^ 1 : place / chunks * chunks, count = runs_in_a_v ? 1 : chunks;
    layout::ActionTimes& own = times[place];
    own.forward_and_backward = own.forward_and_backward_input = own.forward;
    for (size_t other = first; other < first + count; ++other) {
      own.forward_and_backward += times[other].backward / static_cast<double>(count);
      own.forward_and_backward_input += times[other].backward_input / static_cast<double>(count);
    }
  }
  return times;
}

// Of the forward of each place: FLOPs of its layers, and with them those of the output layer.
struct PlaceFlops {
  std::vector<int64_t> layers, all;
};

PlaceFlops forward_flops_of_places(const layout::TrainingStep& step, const layout::Placement& placement) {
  PlaceFlops flops;
  for (int stage = 0; stage < placement.stages(); ++stage) {
    for (int chunk = 0; chunk < placement.chunks(); ++chunk) {
      const layout::Place place{stage, chunk};
      const auto [first, count] = placement.layers(place);
      int64_t sum = 0;
      for (int64_t layer = first; layer < first + count; ++layer) {
        for (const layout::SubStep sub_step : layout::sub_steps(
                 step.model, layer, step.layout.tensor_model_parallel_size, step.layout.ranks_of_experts()))
          sum += layout::forward_flops(step, layer, sub_step);
      }
      flops.layers.push_back(sum);
      const int tp = step.layout.tensor_model_parallel_size;
      const int64_t output = 2 * step.tokens() * step.model.hidden_size * step.model.padded_vocab_size(tp) / tp;
      flops.all.push_back(sum + (placement.is_last(place) ? output : 0));
    }
  }
  return flops;
}

// The mean over places of a forward is a unit. Where all layers are divided evenly nothing is scaled: the schedule's
// own idle time shows.
bool scale_by_flops(const PlaceFlops& flops, std::vector<layout::ActionTimes>& times) {
  if (std::ranges::adjacent_find(flops.layers, std::ranges::not_equal_to()) == flops.layers.end()) return false;
  double sum = 0;
  for (const int64_t of_place : flops.all) sum += static_cast<double>(of_place);
  for (size_t place = 0; place < times.size(); ++place) {
    const double units = static_cast<double>(flops.all[place]) * static_cast<double>(times.size()) / sum;
    layout::ActionTimes& own = times[place];
    for (double* time : {&own.forward, &own.backward, &own.backward_input, &own.backward_weight, &own.recompute})
      *time *= units;
  }
  return true;
}

char letter(layout::ScheduleAction::Kind kind) {
  constexpr char kLetters[] = {'F', 'B', 'I', 'W', 'R'};
  return kLetters[kind];
}

bool has_action(const layout::PipelineSchedule& schedule, layout::ScheduleAction::Kind kind) {
  return std::ranges::any_of(schedule.actions, [&](const auto& actions) {
    return std::ranges::find(actions, kind, &layout::ScheduleAction::kind) != actions.end();
  });
}

StagePlan plan_stage(const layout::TrainingStep& step, const layout::Placement& placement, int stage,
                     int ranks_per_node) {
  StagePlan plan;
  for (int chunk = 0; chunk < placement.chunks(); ++chunk) plan.layers.push_back(placement.layers({stage, chunk}));
  const layout::RankGrid grid = step.grid();
  const int rank = grid.rank({.pp = stage});
  for (const layout::ParameterSpec& spec : layout::parameter_specs(step.model)) {
    if (spec.is_buffer || !layout::rank_holds(spec, step.model, step.layout, rank)) continue;
    plan.parameters += core::num_elements(layout::local_shape(spec, step.model, layout::cut_of(spec, grid, rank).size));
  }
  plan.memory = layout::step_memory(step, rank);
  plan.executed_flops = layout::executed_flops(step, rank);
  plan.traffic = layout::step_traffic(step, rank, ranks_per_node);
  return plan;
}

std::vector<std::vector<int>> groups_of(Group group, const layout::RankGrid& grid) {
  std::vector<std::vector<int>> groups;
  std::vector<bool> listed(static_cast<size_t>(grid.world_size()));
  for (int rank = 0; rank < grid.world_size(); ++rank) {
    if (listed[static_cast<size_t>(rank)]) continue;
    std::vector<int> ranks = layout::ranks_of_group(group, grid, rank);
    for (const int member : ranks) listed[static_cast<size_t>(member)] = true;
    if (!ranks.empty()) groups.push_back(std::move(ranks));
  }
  return groups;
}

// Whether a group of experts has operations of its own: it counts those of another one that has the same ranks.
bool exchanges_experts(const layout::TrainingStep& step, Group group) {
  const layout::RankGrid grid = step.grid();
  if (!step.model.has_experts() || !layout::experts_apart(grid)) return false;
  if (group == Group::kEtp) return layout::group_of_expert_parts(grid) == group;
  if (group == Group::kExpertDpShard || group == Group::kExpertDpReplica) return grid.dp_replica > 1;
  if (group == Group::kEp) return !step.exchanges_hierarchically;
  if (group == Group::kEpOuter) return step.exchanges_hierarchically;
  return group != Group::kEtpEp || layout::group_of_all_experts(grid) == group;
}

bool has_traffic(const std::vector<StagePlan>& stages, Group group) {
  return std::ranges::any_of(stages, [&](const StagePlan& stage) {
    return std::ranges::find(stage.traffic, group, &layout::Traffic::group) != stage.traffic.end();
  });
}

// Groups of more than one rank. Of those with the same ranks the first, and each by whose name communication is listed:
// at DP 1 dp_cp and cp, but no dp.
std::vector<std::pair<std::string, std::vector<std::vector<int>>>> groups_of_run(const layout::TrainingStep& step,
                                                                                 const std::vector<StagePlan>& stages) {
  const layout::RankGrid grid = step.grid();
  std::vector<std::pair<std::string, std::vector<std::vector<int>>>> run;
  for (int number = 0; number < layout::kNumTrainingGroups; ++number) {
    const auto group = static_cast<Group>(number);
    const bool of_experts = layout::is_group_of_experts(group);
    if (of_experts && !exchanges_experts(step, group)) continue;
    if (group == Group::kEmbedding && !layout::has_embedding_copy(step.model, step.layout)) continue;
    std::vector<std::vector<int>> groups = groups_of(group, grid);
    const auto is_same = [&](const auto& other) {
      return group != Group::kEmbedding && group != Group::kQueryGroup && !of_experts && other.second == groups &&
             !has_traffic(stages, group);
    };
    if (groups.empty() || groups.front().size() < 2 || std::ranges::any_of(run, is_same)) continue;
    run.emplace_back(layout::group_name(group), std::move(groups));
  }
  return run;
}

// Whether a sub-step of a layer sends anything: as all that it does, or on the way, as attention does to ranks that
// share a sequence, and products that gather their input.
bool sends(const layout::TrainingStep& step, layout::SubStep sub_step) {
  using enum layout::SubStep;
  const layout::RankGrid grid = step.grid();
  const bool gathers = grid.tp > 1 && step.sequence_parallel;
  if (sub_step == kAttention)
    return grid.cp > 1 || gathers || (grid.tp > 1 && step.model.multi_latent_attention) || grid.query_parts > 1;
  if (sub_step == kExperts) return grid.tp > 1 && step.model.moe_shared_expert_intermediate_size > 0;
  return layout::communicates(sub_step) || (sub_step == kMlp && gathers);
}

// Of a step of all replicas.
int64_t model_flops(const layout::TrainingStep& step) {
  const int64_t samples = step.num_microbatches * step.micro_batch_size * step.grid().dp;
  return samples *
         layout::model_flops_per_sample(step.model, step.seq_length, step.layout.tensor_model_parallel_size, step.mask);
}

// [0,2,4,6,..,30]: the first ranks of a group, and the last.
std::string ranks_text(const std::vector<int>& ranks) {
  if (ranks.size() <= kRanksShown) return nlohmann::json(ranks).dump();
  const std::string first = nlohmann::json(std::vector(ranks.begin(), ranks.begin() + kRanksShown - 1)).dump();
  return cat(first.substr(0, first.size() - 1), ",..,", ranks.back(), "]");
}

double gflop(int64_t flops) { return static_cast<double>(flops) * 1e-9; }

}  // namespace

RunPlan::RunPlan(layout::TrainingStep step, std::vector<ActiveFeature> features, std::vector<std::string> assumptions,
                 int ranks_per_node, std::string grid_file)
    : step_(std::move(step)),
      features_(std::move(features)),
      assumptions_(std::move(assumptions)),
      ranks_per_node_(ranks_per_node),
      grid_file_(std::move(grid_file)),
      schedule_(schedule_of(step_)),
      times_(times_of(step_, schedule_)),
      recomputes_within_(
          std::ranges::any_of(times_, [](const layout::ActionTimes& times) { return times.backward > 2; })),
      has_own_times_(scale_by_flops(forward_flops_of_places(step_, schedule_.placement), times_)),
      report_(
          layout::check_schedule(schedule_, step_.schedule.pairs ? with_pairs(schedule_.placement, times_) : times_)) {
  MS_CHECK(report_.fault.empty(), report_.fault);
  for (int stage = 0; stage < schedule_.placement.stages(); ++stage)
    stages_.push_back(plan_stage(step_, schedule_.placement, stage, ranks_per_node));
}

bool RunPlan::has_feature(std::string_view name) const {
  return std::ranges::find(features_, name, &ActiveFeature::name) != features_.end();
}

nlohmann::json RunPlan::json() const {
  const layout::RankGrid grid = step_.grid();
  nlohmann::json json = {{"world_size", grid.world_size()},
                         {"layout", layout::layout_to_json(step_.layout)},
                         {"sequence_parallel", step_.sequence_parallel},
                         {"dtype", core::dtype_name(step_.dtype)},
                         {"micro_batch_size", step_.micro_batch_size},
                         {"seq_length", step_.seq_length},
                         {"num_microbatches", step_.num_microbatches},
                         {"parameters", step_.model.num_parameters(grid.tp)},
                         {"model_flops_per_step", model_flops(step_)},
                         {"features", nlohmann::json::array()},
                         {"assumptions", assumptions_}};
  for (const ActiveFeature& feature : features_) {
    json["features"].push_back(
        {{"name", feature.name}, {"level", feature.level}, {"given", feature.flags}, {"effect", feature.effect}});
  }
  for (int rank = 0; rank < grid.world_size(); ++rank) {
    const auto at = grid.coordinates(rank);
    json["ranks"].push_back({{"rank", rank}, {"tp", at.tp}, {"cp", at.cp}, {"dp", at.dp}, {"pp", at.pp}});
    if (!step_.model.has_experts()) continue;
    const auto of_experts = grid.expert_coordinates(rank);
    json["ranks"].back().update({{"ep", of_experts.ep}, {"etp", of_experts.etp}, {"expert_dp", of_experts.expert_dp}});
  }
  for (int64_t layer = 0; layer < step_.model.num_layers; ++layer) {
    nlohmann::json sub_steps = nlohmann::json::array();
    for (const layout::SubStep sub_step : layout::sub_steps(step_.model, layer, grid.tp, grid.ep * grid.etp)) {
      sub_steps.push_back({{"name", layout::sub_step_name(sub_step)},
                           {"communicates", sends(step_, sub_step)},
                           {"forward_flops", layout::forward_flops(step_, layer, sub_step)}});
    }
    json["layers"].push_back({{"layer", layer}, {"sub_steps", std::move(sub_steps)}});
    if (grid.cp > 1)
      json["layers"].back()["context_parallel"] = layout::algorithm_name(step_.context_algorithm_of(layer));
  }
  json["saved_tensors"] = saved_tensors_json(step_);
  json["kv_cache"] = kv_cache_json(step_);
  if (step_.mask.grid) json["attention_mask_grid"] = mask_grid_json(*step_.mask.grid, grid_file_);
  if (has_feature("hybrid-context-parallel")) json["dealing"] = dealing_json(step_);
  if (step_.expert_placement_freq > 0) json["expert_moves"] = expert_moves_json(step_);
  json["groups"] = nlohmann::json::object();
  for (const auto& [name, groups] : groups_of_run(step_, stages_)) json["groups"][name] = groups;
  json["schedule"] = {{"makespan", report_.makespan}, {"idle", report_.idle}, {"in_flight", report_.in_flight}};
  for (const layout::ActionTimes& times : times_) json["schedule"]["forward_units"].push_back(times.forward);
  for (size_t stage = 0; stage < stages_.size(); ++stage) {
    nlohmann::json actions = nlohmann::json::array();
    for (size_t i = 0; i < schedule_.actions[stage].size(); ++i) {
      const layout::ScheduleAction& action = schedule_.actions[stage][i];
      actions.push_back({{"kind", layout::action_name(action.kind)},
                         {"microbatch", action.microbatch},
                         {"chunk", action.chunk},
                         {"start", report_.starts[stage][i]}});
    }
    json["schedule"]["stages"].push_back(std::move(actions));
    const StagePlan& plan = stages_[stage];
    nlohmann::json layers = nlohmann::json::array(), traffic = nlohmann::json::array();
    for (const layout::LayerRange& range : plan.layers)
      layers.push_back({{"first", range.first}, {"count", range.count}});
    for (const layout::Traffic& t : plan.traffic) {
      traffic.push_back({{"group", layout::group_name(t.group)},
                         {"operation", core::comm_op_name(t.op)},
                         {"calls", t.calls},
                         {"bytes", t.payload_bytes},
                         {"ring_bytes", t.ring_bytes}});
      if (ranks_per_node_ > 0) traffic.back()["bytes_to_other_nodes"] = t.remote_bytes;
    }
    json["stages"].push_back({{"layers", std::move(layers)},
                              {"parameters_per_rank", plan.parameters},
                              {"memory_bytes",
                               {{"param", plan.memory.param},
                                {"grad", plan.memory.grad},
                                {"master", plan.memory.master},
                                {"optim", plan.memory.optim},
                                {"act", plan.memory.act},
                                {"comm", plan.memory.comm},
                                {"tmp", plan.memory.tmp},
                                {"tier", plan.memory.tier}}},
                              {"swapped_bytes", plan.memory.swapped},
                              {"executed_flops", plan.executed_flops},
                              {"communication", std::move(traffic)}});
  }
  return json;
}

std::string RunPlan::schedule_legend() const {
  std::string text = "schedule, one line for each stage: Fm and Bm are forward and backward of micro-batch m";
  if (has_action(schedule_, layout::ScheduleAction::kBackwardInput))
    text += ", Im and Wm the parts of a backward for input and weights";
  const bool has_recompute = has_action(schedule_, layout::ScheduleAction::kRecompute);
  if (has_recompute) text += ", Rm runs dropped layers again";
  if (schedule_.placement.chunks() > 1) text += ", .c of chunk c";
  text += "\n  (a backward takes as long as two forwards";
  if (has_own_times_) {
    text += ", which are as long as the FLOPs of their layers";
  } else if (stages_.size() > 1) {
    text += "; all stages are taken as equal, whatever embedding and output layer add";
  }
  if (recomputes_within_ || has_recompute) text += ", recomputation as long as the forward of what is dropped";
  if (step_.deferred_output_gradients > 0) {
    text += cat("; the output layer's weight gradients of ", step_.deferred_output_gradients,
                " micro-batches come at the end, and are not drawn");
  }
  if (step_.schedule.pairs) text += "; a forward and the backward behind it are interleaved";
  if (report_.makespan > units_shown())
    text += format("; the first %.0f of %.4g units", units_shown(), report_.makespan);
  return text + ")\n";
}

std::string RunPlan::label(const layout::ScheduleAction& action) const {
  return cat(letter(action.kind), action.microbatch, schedule_.placement.chunks() > 1 ? cat(".", action.chunk) : "");
}

size_t RunPlan::unit_width() const {
  double width = 1;
  for (size_t stage = 0; stage < stages_.size(); ++stage) {
    for (const layout::ScheduleAction& action : schedule_.actions[stage]) {
      const double units = time_of(stage, action);
      if (units > 0) width = std::max(width, std::ceil(static_cast<double>(label(action).size() + 1) / units));
    }
  }
  return static_cast<size_t>(std::min<double>(width, kMaxUnitWidth));
}

double RunPlan::units_shown() const {
  const size_t room = kTimelineWidth / unit_width();
  return std::min<double>({static_cast<double>(room), kTimelineUnits, report_.makespan});
}

double RunPlan::time_of(size_t stage, const layout::ScheduleAction& action) const {
  const size_t place = stage * static_cast<size_t>(schedule_.placement.chunks()) + static_cast<size_t>(action.chunk);
  return times_[place].of(action.kind);
}

std::string RunPlan::schedule_text() const {
  std::string text = schedule_legend();
  const auto width = static_cast<double>(unit_width());
  const auto column = [&](double units) { return static_cast<size_t>(std::lround(units * width)); };
  for (size_t stage = 0; stage < stages_.size(); ++stage) {
    std::string line(column(units_shown()), '.');
    for (size_t i = 0; i < schedule_.actions[stage].size(); ++i) {
      const layout::ScheduleAction& action = schedule_.actions[stage][i];
      // Of a pair, which begins as one, the backward is drawn behind the forward.
      const bool ends_pair = step_.schedule.pairs && i > 0 &&
                             layout::begins_pair(schedule_.placement.order(), schedule_.actions[stage], i - 1);
      const double start = report_.starts[stage][i] + (ends_pair ? time_of(stage, schedule_.actions[stage][i - 1]) : 0);
      const size_t begin = column(start), end = column(start + time_of(stage, action));
      if (begin >= line.size()) break;
      if (begin == end) continue;
      std::string cell = label(action);
      const size_t room = std::min(end, line.size()) - begin;
      if (cell.size() + (end < line.size() ? 1 : 0) > room) cell.resize(1);  // a part of a number is another number
      cell.resize(room, ' ');
      line.replace(begin, cell.size(), cell);
    }
    text += format("  %3zu  ", stage) + line + format("  idle %.0f %%\n", 100 * report_.idle[stage] / report_.makespan);
  }
  return text;
}

std::string RunPlan::text() const {
  const layout::RankGrid grid = step_.grid();
  std::string text = cat("plan of a run on ", grid.world_size(), " ranks: TP ", grid.tp,
                         step_.sequence_parallel ? " with sequence parallelism" : "", ", PP ", grid.pp,
                         schedule_.placement.chunks() > 1 ? cat(" of ", schedule_.placement.chunks(), " chunks") : "",
                         grid.cp > 1 ? cat(", CP ", grid.cp, " by ", context_algorithms_text(step_)) : "", ", DP ",
                         grid.dp, step_.layout.zero_stage > 0 ? cat(" with ZeRO-", step_.layout.zero_stage) : "",
                         step_.layout.ranks_of_experts() > 1 ? cat(", EP ", grid.ep, " of ETP ", grid.etp) : "", ", ",
                         core::dtype_name(step_.dtype), "\n");
  text += cat("a step: ", step_.num_microbatches, " micro-batches of ", step_.micro_batch_size, " x ", step_.seq_length,
              " tokens on each of ", grid.dp, " replicas; ");
  text += format("the model needs %.3f GFLOP for it, and has %lld parameters\n", gflop(model_flops(step_)),
                 static_cast<long long>(step_.model.num_parameters(grid.tp)));
  if (step_.mask.grid) text += mask_grid_text(*step_.mask.grid, grid_file_);
  text += "\n";
  if (!features_.empty()) text += "features\n";
  for (const ActiveFeature& feature : features_)
    text += format("  %-29s", feature.name.c_str()) + feature.effect + "\n";
  if (!features_.empty()) text += "\n";
  text += "groups\n";
  for (const auto& [name, groups] : groups_of_run(step_, stages_)) {
    text += format("  %-10s", name.c_str());
    for (size_t i = 0; i < std::min(groups.size(), kGroupsShown); ++i) text += cat(" ", ranks_text(groups[i]));
    if (groups.size() > kGroupsShown) text += cat(" .. ", groups.size(), " groups");
    text += "\n";
  }
  const bool is_of_first = grid.cp > 1 && layout::is_adaptive(step_.context_algorithm);
  text +=
      cat("\neach rank of a stage", is_of_first ? ", with the GFLOP of the first that shares a sequence" : "", "\n");
  text +=
      "  stage  layers          parameters   GFLOP/step   MiB: weights  gradients   master  moments  activations  "
      "comm    tmp\n";
  for (size_t stage = 0; stage < stages_.size(); ++stage) {
    const StagePlan& plan = stages_[stage];
    const layout::StepMemory& memory = plan.memory;
    text += format("  %5zu  %-14s %11lld %12.3f %14.1f %10.1f %8.1f %8.1f %12.1f %5.1f %6.1f\n", stage,
                   layers_text(plan.layers).c_str(), static_cast<long long>(plan.parameters),
                   gflop(plan.executed_flops), mib(memory.param), mib(memory.grad), mib(memory.master),
                   mib(memory.optim), mib(memory.act), mib(memory.comm), mib(memory.tmp));
  }
  text += saved_tensors_text(step_);
  if (has_feature("hybrid-context-parallel")) text += dealing_text(step_);
  if (step_.swap.any()) {
    text +=
        "\nwhat each rank has on the tier of --swap-dir\n  stage  at once (MiB)   written in a step "
        "(MiB)\n";
    for (size_t stage = 0; stage < stages_.size(); ++stage) {
      text +=
          format("  %5zu %14.1f %25.1f\n", stage, mib(stages_[stage].memory.tier), mib(stages_[stage].memory.swapped));
    }
  }
  text += cat("\ncommunication of ", is_of_first ? "the first rank that shares a sequence" : "each rank",
              " in a step\n  stage  group      operation           calls    buffers (MiB)   sent in a ring (MiB)");
  text += ranks_per_node_ > 0 ? "   to other nodes (MiB)\n" : "\n";
  for (size_t stage = 0; stage < stages_.size(); ++stage) {
    for (const layout::Traffic& t : stages_[stage].traffic) {
      text += format("  %5zu  %-10s %-15s %9lld %16.3f %22.3f", stage, std::string(layout::group_name(t.group)).c_str(),
                     std::string(core::comm_op_name(t.op)).c_str(), static_cast<long long>(t.calls),
                     mib(t.payload_bytes), mib(t.ring_bytes));
      text += ranks_per_node_ > 0 ? format(" %22.3f\n", mib(t.remote_bytes)) : "\n";
    }
  }
  text += expert_moves_text(step_) + "\n" + schedule_text();
  if (!assumptions_.empty()) text += "\nassumptions\n";
  for (const std::string& sentence : assumptions_) text += cat("  ", sentence, "\n");
  return text;
}

}  // namespace ms::train
