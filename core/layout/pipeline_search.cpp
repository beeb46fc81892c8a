#include "core/layout/pipeline_search.h"

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <optional>
#include <utility>

#include "core/error.h"
#include "core/layout/formulas/memory.h"
#include "core/layout/schedule_timer.h"

namespace ms::layout {
namespace {

using List = std::vector<int64_t>;

constexpr int64_t kUnlimited = std::numeric_limits<int64_t>::max();  // bytes
constexpr double kInfinite = std::numeric_limits<double>::infinity();
// Each about a second of one core. Counts, not time, so that the same input gives the same split.
constexpr int64_t kMaxSimulated = 20'000'000;  // actions that moving layers, and the exact search, simulate
constexpr int64_t kMaxVisited = 1'000'000;     // beginnings of splits that the exact search bounds
constexpr int64_t kMaxReplayed = 2'000'000;    // passes through a layer that memory is computed from

PipelineSchedule schedule_of(const TrainingStep& step) {
  const int stages = step.layout.pipeline_model_parallel_size;
  MS_CHECK(stages > 1 && step.layout.virtual_pipeline_model_parallel_size == 1 &&
               step.layout.layer_order == Placement::Order::kRoundRobin,
           "the search is for stages of one chunk");
  PipelineSchedule schedule{Placement::even(stages, 1, 0), step.num_microbatches, false, {}};
  for (int stage = 0; stage < stages; ++stage)
    schedule.actions.push_back(schedule_training(step.schedule, stage, stages, 1, step.num_microbatches));
  return schedule;
}

// What a stage with so many layers takes of memory: of which layers it has them does not matter.
class StageMemory {
 public:
  StageMemory(const TrainingStep& step, RecomputedModule module)
      : step_(step),
        plan_(step.recompute),
        module_(module),
        stages_(step.layout.pipeline_model_parallel_size),
        elements_(static_cast<size_t>(stages_ * (step.model.num_layers + 1)), -1),
        elements_per_stage_(step.model.num_layers + 1) {
    // In the steady state of 1F1B nothing more is held than at its beginning.
    step_.num_microbatches = std::min<int64_t>(step.num_microbatches, 2 * stages_ + 2);
  }

  int64_t bytes(int stage, int64_t layers, int64_t recomputed) {
    const auto [known, is_new] = bytes_.try_emplace({stage, layers, recomputed});
    if (!is_new) return known->second;
    replayed_ += (layers + 1) * step_.num_microbatches;
    assign(stage, layers);
    const auto [besides, is_new_besides] = besides_.try_emplace({stage, layers});
    if (is_new_besides) {
      besides->second = lasting_memory(step_, step_.layout.grid().rank({.pp = stage})).in_memory();
    }
    step_.recompute =
        recomputed > 0 ? plan_.with_module_list(List(static_cast<size_t>(stages_), recomputed), module_) : plan_;
    known->second = besides->second + activation_bytes(step_, stage);
    return known->second;
  }

  int64_t replayed() const { return replayed_; }

  // Of the gradient buffer.
  int64_t elements(int stage, int64_t layers) {
    int64_t& known = elements_[static_cast<size_t>(stage * elements_per_stage_ + layers)];
    if (known < 0) {
      // Of a model of these layers alone: it takes no longer than it has to.
      TrainingStep alone{.model = step_.model, .layout = step_.layout, .sequence_parallel = step_.sequence_parallel};
      alone.model.num_layers = layers;
      alone.layout.num_layer_list.assign(static_cast<size_t>(stages_), 0);
      alone.layout.num_layer_list[static_cast<size_t>(stage)] = layers;
      known = stage_parameters(alone, stage).buffer_elems;
    }
    return known;
  }

 private:
  // The other layers are on any other stage.
  void assign(int stage, int64_t layers) {
    List& list = step_.layout.num_layer_list;
    list.assign(static_cast<size_t>(stages_), 0);
    (stage == 0 ? list.back() : list.front()) = step_.model.num_layers - layers;
    list[static_cast<size_t>(stage)] = layers;
  }

  TrainingStep step_;
  RecomputePlan plan_;  // the run's own
  RecomputedModule module_;
  int64_t stages_;
  std::map<std::array<int64_t, 3>, int64_t> bytes_;    // of (stage, layers, recomputed)
  std::map<std::array<int64_t, 2>, int64_t> besides_;  // of (stage, layers): all but activations
  List elements_;                                      // -1: not computed yet
  int64_t elements_per_stage_;
  int64_t replayed_ = 0;  // passes through a layer
};

class Search {
 public:
  Search(const TrainingStep& step, const ModelTimes& times, RecomputedModule module)
      : stages_(step.layout.pipeline_model_parallel_size),
        layers_(step.model.num_layers),
        microbatches_(step.num_microbatches),
        times_(times),
        module_(module),
        memory_(step, module),
        timer_(schedule_of(step)),
        actions_(static_cast<size_t>(stages_)),
        forward_(1, 0.0),
        backward_(1, 0.0),
        again_(1, 0.0),
        recomputed_(static_cast<size_t>(stages_ * (layers_ + 1)), kUnknown) {
    MS_CHECK(static_cast<int64_t>(times.layers.size()) == layers_, times.layers.size(), " times for ", layers_,
             " layers");
    for (const LayerTimes& layer : times.layers) {
      forward_.push_back(forward_.back() + layer.forward);
      backward_.push_back(backward_.back() + layer.backward);
      again_.push_back(again_.back() +
                       (module == RecomputedModule::kMlp ? layer.recompute_mlp : layer.recompute_layer));
    }
    sum_of_forwards_ = forward_.back() + times.embedding.forward + times.loss.forward;
    sum_of_backwards_ = backward_.back() + times.embedding.backward + times.loss.backward;
  }

  SearchResult run(int64_t budget_bytes) {
    SearchResult result;
    set_budget(budget_bytes);
    if (capacity() < layers_) {
      result.fits = false;
      set_budget(least_budget());
    }
    best_ = balanced(slowest_stage(balanced(kInfinite)));
    best_seconds_ = seconds_of(best_);
    improve();
    const bool is_at_bound = is_exhausted() || memory_.replayed() > kMaxReplayed;
    result.is_exact = try_all() && !is_at_bound;
    result.split = split_of(best_, List());
    result.simulated = simulated_;
    return result;
  }

  // These layers with as little recomputation as the budget allows; nullopt: they do not fit.
  std::optional<PipelineSplit> within(const List& list, int64_t budget_bytes) {
    set_budget(budget_bytes);
    for (int stage = 0; stage < stages_; ++stage) {
      if (recomputed_of(stage, at(list, stage)) == kTooMany) return std::nullopt;
    }
    return split_of(list, List());
  }

  // recomputed: empty: as few as the budget allows.
  PipelineSplit split_of(const List& list, List recomputed) {
    PipelineSplit split{.num_layer_list = list, .module = module_};
    if (recomputed.empty()) {
      for (int stage = 0; stage < stages_; ++stage) recomputed.push_back(recomputed_of(stage, at(list, stage)));
    }
    split.recompute_module_list = recomputed;
    split.seconds = seconds_of(list, recomputed);
    for (int stage = 0; stage < stages_; ++stage) {
      split.peak_bytes = std::max(
          split.peak_bytes, memory_.bytes(stage, at(list, stage), std::min(at(list, stage), at(recomputed, stage))));
    }
    return split;
  }

 private:
  static constexpr int64_t kUnknown = -1, kTooMany = -2;

  static int64_t at(const List& list, int64_t index) { return list[static_cast<size_t>(index)]; }
  static double at(const std::vector<double>& list, int64_t index) { return list[static_cast<size_t>(index)]; }

  void set_budget(int64_t bytes) {
    budget_ = bytes;
    std::ranges::fill(recomputed_, kUnknown);
  }

  // How many of a stage's layers must be recomputed; kTooMany: the stage does not fit. More recomputation never needs
  // more memory.
  int64_t recomputed_of(int stage, int64_t layers) {
    int64_t& known = recomputed_[static_cast<size_t>(stage * (layers_ + 1) + layers)];
    if (known != kUnknown) return known;
    if (budget_ == kUnlimited || memory_.bytes(stage, layers, 0) <= budget_) return known = 0;
    if (memory_.bytes(stage, layers, layers) > budget_) return known = kTooMany;
    int64_t too_few = 0, enough = layers;
    while (enough - too_few > 1 && memory_.replayed() <= kMaxReplayed) {
      const int64_t middle = (too_few + enough) / 2;
      (memory_.bytes(stage, layers, middle) <= budget_ ? enough : too_few) = middle;
    }
    return known = enough;
  }

  // Of a stage that recomputes all or nothing: what it needs besides a layer that runs again may be more than it saves.
  int64_t least_bytes(int stage, int64_t layers) {
    return std::min(memory_.bytes(stage, layers, layers), memory_.bytes(stage, layers, 0));
  }

  // Layers that the stage has room for, all of them recomputed; -1: it has none even for what it holds besides.
  int64_t capacity_of(int stage) {
    if (budget_ == kUnlimited) return layers_;
    int64_t fits = -1, too_many = layers_ + 1;
    while (too_many - fits > 1) {
      const int64_t middle = (fits + too_many) / 2;
      (least_bytes(stage, middle) <= budget_ ? fits : too_many) = middle;
    }
    return fits;
  }
  int64_t capacity() {
    int64_t sum = 0;
    for (int stage = 0; stage < stages_; ++stage) {
      const int64_t fits = capacity_of(stage);
      if (fits < 0) return -1;
      sum += fits;
    }
    return sum;
  }
  // The least with which all layers fit, within a thousandth.
  int64_t least_budget() {
    int64_t too_little = budget_, enough = 1;
    for (int stage = 0; stage < stages_; ++stage) enough = std::max(enough, least_bytes(stage, layers_));
    while (enough - too_little > enough / 1000 + 1) {
      budget_ = too_little + (enough - too_little) / 2;
      (capacity() < layers_ ? too_little : enough) = budget_;
    }
    return enough;
  }

  // Of a stage with layers [first, first + count).
  ActionTimes times_of(int stage, int64_t first, int64_t count, int64_t recomputed) const {
    ActionTimes times{.forward = at(forward_, first + count) - at(forward_, first),
                      .backward = at(backward_, first + count) - at(backward_, first) +
                                  at(again_, first + std::min(recomputed, count)) - at(again_, first)};
    if (stage == 0) times.forward += times_.embedding.forward, times.backward += times_.embedding.backward;
    if (stage == stages_ - 1) times.forward += times_.loss.forward, times.backward += times_.loss.backward;
    return times;
  }
  double work_of(int stage, int64_t first, int64_t count, int64_t recomputed) const {
    const ActionTimes times = times_of(stage, first, count, recomputed);
    return times.forward + times.backward;
  }
  double update_of(int stage, int64_t layers) {
    return times_.update_per_element * static_cast<double>(memory_.elements(stage, layers));
  }

  double seconds_of(const List& list, const List& recomputed) {
    double update = 0;
    int64_t first = 0;
    for (int stage = 0; stage < stages_; ++stage) {
      const int64_t count = at(list, stage);
      actions_[static_cast<size_t>(stage)] = times_of(stage, first, count, at(recomputed, stage));
      update = std::max(update, update_of(stage, count));
      first += count;
    }
    ++simulated_;
    return timer_.makespan(actions_) + update;
  }
  // Infinite: it does not fit.
  double seconds_of(const List& list) {
    List recomputed;
    for (int stage = 0; stage < stages_; ++stage) {
      recomputed.push_back(recomputed_of(stage, at(list, stage)));
      if (recomputed.back() == kTooMany) return kInfinite;
    }
    return seconds_of(list, recomputed);
  }

  // A split whose slowest stage is as fast as can be, by dynamic programming over the first i layers on the first s
  // stages. bound: no stage need take longer; infinite: of stages that recompute nothing, but have room for their
  // layers if they do, which is such a bound.
  List balanced(double bound) {
    const auto size = static_cast<size_t>(layers_ + 1);
    std::vector<std::vector<double>> slowest(static_cast<size_t>(stages_ + 1), std::vector<double>(size, kInfinite));
    std::vector<List> count(static_cast<size_t>(stages_ + 1), List(size, 0));
    slowest[0][0] = 0;
    for (int stage = 0; stage < stages_; ++stage) {
      const std::vector<double>& before = slowest[static_cast<size_t>(stage)];
      const int64_t capacity = capacity_of(stage);
      for (int64_t end = stage == stages_ - 1 ? layers_ : 0; end <= layers_; ++end) {
        double& best = slowest[static_cast<size_t>(stage + 1)][static_cast<size_t>(end)];
        for (int64_t layers = 0; layers <= std::min(end, capacity); ++layers) {
          const int64_t first = end - layers;
          const double least = work_of(stage, first, layers, 0);
          if (least >= best || least > bound) break;  // more layers take longer
          if (at(before, first) >= best) continue;
          const int64_t recomputed = bound < kInfinite ? recomputed_of(stage, layers) : 0;
          const double seconds = std::max(at(before, first), work_of(stage, first, layers, recomputed));
          if (seconds >= best) continue;
          best = seconds;
          count[static_cast<size_t>(stage + 1)][static_cast<size_t>(end)] = layers;
        }
      }
    }
    List list(static_cast<size_t>(stages_));
    int64_t end = layers_;
    for (int stage = stages_; stage-- > 0;) {
      list[static_cast<size_t>(stage)] = at(count[static_cast<size_t>(stage + 1)], end);
      end -= list[static_cast<size_t>(stage)];
    }
    return list;
  }

  double slowest_stage(const List& list) {
    double slowest = 0;
    int64_t first = 0;
    for (int stage = 0; stage < stages_; ++stage) {
      slowest = std::max(slowest, work_of(stage, first, at(list, stage), recomputed_of(stage, at(list, stage))));
      first += at(list, stage);
    }
    return slowest;
  }

  // Moves single layers from stage to stage as long as that makes the step faster: each time the best move.
  void improve() {
    for (bool better = true; better;) {
      better = false;
      const List from = best_;
      for (size_t giver = 0; giver < from.size(); ++giver) {
        for (size_t taker = 0; taker < from.size(); ++taker) {
          if (giver == taker || from[giver] == 0) continue;
          if (is_exhausted()) return;
          List list = from;
          --list[giver], ++list[taker];
          better = take_if_faster(list) || better;
        }
      }
    }
  }
  bool take_if_faster(const List& list) {
    const double seconds = seconds_of(list);
    if (seconds >= best_seconds_) return false;
    best_seconds_ = seconds;
    best_ = list;
    return true;
  }

  // What is fixed once the first stages have their layers.
  struct Beginning {
    int stage = 0;             // the next one
    int64_t first = 0;         // its first layer
    double work = 0;           // forward and backward of the stages before
    double recomputation = 0;  // in it
    double update = 0;         // of the slowest of them
    double least = 0;          // seconds that the pipeline takes at least
  };

  // Whether more may not be simulated, since simulated_before_.
  bool is_exhausted() const { return (simulated_ - simulated_before_) * 2 * microbatches_ * stages_ > kMaxSimulated; }

  // Whether no split is left out.
  bool try_all() {
    simulated_before_ = simulated_;
    visited_ = 0;
    List list(static_cast<size_t>(stages_));
    return extend(list, {});
  }
  bool extend(List& list, const Beginning& beginning) {
    if (++visited_ > kMaxVisited || is_exhausted()) return false;
    if (beginning.stage == stages_) {
      take_if_faster(list);
      return true;
    }
    const int64_t left = layers_ - beginning.first;
    const bool last = beginning.stage == stages_ - 1;
    for (int64_t layers = last ? left : 0; layers <= left; ++layers) {
      const int64_t recomputed = recomputed_of(beginning.stage, layers);
      if (recomputed == kTooMany) return true;
      list[static_cast<size_t>(beginning.stage)] = layers;
      const Beginning next = behind(beginning, layers, recomputed);
      // Bounds of the stage itself only grow with its layers.
      if (is_slower(next.least + next.update)) return true;
      if (is_slower(std::max(next.least, least_of_rest(next)) + next.update)) continue;
      if (!extend(list, next)) return false;
    }
    return true;
  }
  // Sums in another order must not leave out a split that is faster.
  bool is_slower(double least) const { return least * (1 - 1e-9) >= best_seconds_; }

  // A stage s of 1F1B begins when a forward has passed the stages before it, works on all micro-batches, and ends
  // before the last backward passes them. And its first backward comes from the end of the pipeline, before which it
  // can have run no more than stages - s forwards.
  Beginning behind(const Beginning& before, int64_t layers, int64_t recomputed) {
    const ActionTimes times = times_of(before.stage, before.first, layers, recomputed);
    const double recomputation = times.backward - times_of(before.stage, before.first, layers, 0).backward;
    const auto m = static_cast<double>(microbatches_);
    const double through = before.work + m * (times.forward + times.backward);
    const auto forwards = static_cast<double>(std::max<int64_t>(0, microbatches_ - (stages_ - before.stage)));
    const double around = sum_of_forwards_ + sum_of_backwards_ + before.recomputation + recomputation +
                          (m - 1) * times.backward + forwards * times.forward;
    return {.stage = before.stage + 1,
            .first = before.first + layers,
            .work = before.work + times.forward + times.backward,
            .recomputation = before.recomputation + recomputation,
            .update = std::max(before.update, update_of(before.stage, layers)),
            .least = std::max({before.least, through, around})};
  }
  // The slowest of the other stages has at least their mean.
  double least_of_rest(const Beginning& beginning) const {
    const int left = stages_ - beginning.stage;
    if (left == 0) return 0;
    const double rest = sum_of_forwards_ + sum_of_backwards_ + beginning.recomputation - beginning.work;
    return beginning.work + static_cast<double>(microbatches_) * rest / left;
  }

  int stages_;
  int64_t layers_, microbatches_;
  const ModelTimes& times_;
  RecomputedModule module_;
  StageMemory memory_;
  ScheduleTimer timer_;
  std::vector<ActionTimes> actions_;                   // of each stage
  std::vector<double> forward_, backward_, again_;     // of the first i layers
  double sum_of_forwards_ = 0, sum_of_backwards_ = 0;  // of the whole model, without recomputation
  int64_t budget_ = 0;
  List recomputed_;  // of each stage and number of layers
  List best_;
  double best_seconds_ = kInfinite;
  int64_t simulated_ = 0, simulated_before_ = 0, visited_ = 0;
};

}  // namespace

bool PipelineSplit::recomputes() const {
  return std::ranges::any_of(recompute_module_list, [](int64_t layers) { return layers > 0; });
}

SearchResult find_pipeline_split(const TrainingStep& step, const ModelTimes& times, int64_t memory_budget_bytes) {
  const SearchResult free = Search(step, times, RecomputedModule::kLayer).run(kUnlimited);
  if (free.split.peak_bytes <= memory_budget_bytes) return free;
  SearchResult whole = Search(step, times, RecomputedModule::kLayer).run(memory_budget_bytes);
  SearchResult mlps = Search(step, times, RecomputedModule::kMlp).run(memory_budget_bytes);
  const bool saves_more = mlps.split.peak_bytes < whole.split.peak_bytes;
  const bool takes_mlps = mlps.fits != whole.fits ? mlps.fits
                          : mlps.fits             ? mlps.split.seconds < whole.split.seconds
                                                  : saves_more;
  SearchResult result = takes_mlps ? mlps : whole;
  result.is_exact = whole.is_exact && mlps.is_exact;
  result.simulated = free.simulated + whole.simulated + mlps.simulated;
  return result;
}

SearchResult find_pipeline_split_beyond_spread(const TrainingStep& step, const ModelTimes& times,
                                               int64_t memory_budget_bytes) {
  SearchResult result = find_pipeline_split(step, times, memory_budget_bytes);
  if (!result.fits) return result;
  const List even = nearly_even_list(step.model.num_layers, step.layout.pipeline_model_parallel_size);
  if (result.split.num_layer_list == even) return result;
  std::optional<PipelineSplit> kept;
  for (const RecomputedModule module : {RecomputedModule::kLayer, RecomputedModule::kMlp}) {
    auto split = Search(step, times, module).within(even, memory_budget_bytes);
    if (split && (!kept || split->seconds < kept->seconds)) kept = std::move(split);
  }
  if (!kept || kept->seconds > result.split.seconds * (1 + times.spread)) return result;
  result.passed_over = std::exchange(result.split, *std::move(kept));
  return result;
}

SizedSearchResult find_micro_batch_size(std::span<const TrainingStep> steps, std::span<const ModelTimes> times,
                                        std::span<const int64_t> memory_budgets_bytes, std::optional<size_t> given) {
  MS_CHECK(!steps.empty() && times.size() == steps.size() && memory_budgets_bytes.size() == steps.size(), steps.size(),
           " steps, ", times.size(), " times, ", memory_budgets_bytes.size(), " budgets");
  std::vector<SearchResult> results;
  size_t best = 0;
  const auto rank = [&](size_t size) { return std::pair(!results[size].fits, results[size].split.seconds); };
  for (size_t size = 0; size < steps.size(); ++size) {
    results.push_back(find_pipeline_split_beyond_spread(steps[size], times[size], memory_budgets_bytes[size]));
    if (rank(size) < rank(best)) best = size;
  }
  if (!given || *given == best || !results[*given].fits) return {best, std::move(results[best]), {}};
  const double spread = std::max(times[best].spread, times[*given].spread);
  if (results[*given].split.seconds > results[best].split.seconds * (1 + spread))
    return {best, std::move(results[best]), {}};
  return {*given, std::move(results[*given]), best};
}

PipelineSplit expected_of_split(const TrainingStep& step, const ModelTimes& times, std::vector<int64_t> list,
                                std::vector<int64_t> recomputed, RecomputedModule module) {
  if (recomputed.empty()) recomputed.assign(list.size(), 0);
  return Search(step, times, module).split_of(list, std::move(recomputed));
}

}  // namespace ms::layout
