#include "train/loop/automated_pipeline.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>
#include <set>

#include "core/comm/agree.h"
#include "core/error.h"
#include "core/layout/pipeline_search.h"
#include "core/log.h"
#include "core/process_memory.h"
#include "core/trace/recorder.h"
#include "train/format.h"
#include "train/loop/part_times.h"

namespace ms::train {
namespace {

using core::cat;
using List = std::vector<int64_t>;

constexpr const char* kWhere = "train.pipeline";
// The rest is for what the formula of a step does not have: the program, MPI, data, fragments.
constexpr double kShareOfMemory = 0.9;

struct Choice {
  List num_layer_list, recompute_module_list;
  layout::RecomputedModule module = layout::RecomputedModule::kLayer;
  int64_t micro_batch_size = 1;
};

// What the times of a choice depend on, as far as the configuration says.
nlohmann::json circumstances(const TrainerConfig& config, const layout::RankGrid& grid, int threads) {
  const bool perf = config.parallel.automated_pipeline_perf;
  return {{"automated_pipeline_perf", perf},
          {"save_memory_ratio", config.parallel.save_memory_ratio.value_or(0)},
          {"num_layers", config.model.num_layers},
          {"seq_length", config.training.seq_length},
          {"micro_batch_size", perf ? 0 : config.training.micro_batch_size},
          {"global_batch_size", config.training.global_batch_size},
          {"dtype", core::dtype_name(config.params_dtype())},
          {"recompute_norm", config.training.recompute_norm},
          {"recompute_activation_function", config.training.recompute_activation_function},
          {"recompute_modules", config.training.recompute_modules},
          {"swap_attention", config.training.swap_attention},
          {"loss_chunk_size", config.training.loss_chunk_size},
          {"sequence_parallel", config.parallel.sequence_parallel},
          {"use_distributed_optimizer", config.parallel.use_distributed_optimizer},
          {"reuse_fp32_param", config.optimizer.reuse_fp32_param},
          {"tp", grid.tp},
          {"dp", grid.dp},
          {"pp", grid.pp},
          {"threads", threads}};
}

nlohmann::json record_of(const Choice& choice, const nlohmann::json& made_for) {
  return {{"made_for", made_for},
          {"num_layer_list", choice.num_layer_list},
          {"recompute_module_list", choice.recompute_module_list},
          {"recompute_type", static_cast<int>(choice.module)},
          {"micro_batch_size", choice.micro_batch_size}};
}

// What a record says; nullopt: it is none, or made for another run. It comes from a file.
std::optional<Choice> choice_of(const nlohmann::json& record, const nlohmann::json& made_for) {
  if (!record.is_object() || record.value("made_for", nlohmann::json()) != made_for) return std::nullopt;
  const auto list = [&](const char* key) {
    List values;
    const nlohmann::json array = record.value(key, nlohmann::json());
    if (!array.is_array() || array.size() != made_for["pp"].get<size_t>()) return values;
    for (const nlohmann::json& value : array) values.push_back(value.is_number_integer() ? value.get<int64_t>() : -1);
    return values;
  };
  const auto number = [&](const char* key) {
    const nlohmann::json value = record.value(key, nlohmann::json());
    return value.is_number_integer() ? value.get<int64_t>() : -1;
  };
  Choice choice{list("num_layer_list"), list("recompute_module_list")};
  const int64_t type = number("recompute_type"), num_layers = made_for["num_layers"];
  const auto are_counts = [&](const List& values) {
    return !values.empty() && std::ranges::all_of(values, [&](int64_t n) { return n >= 0 && n <= num_layers; });
  };
  if (!are_counts(choice.num_layer_list) || !are_counts(choice.recompute_module_list) || (type != 0 && type != 2) ||
      std::accumulate(choice.num_layer_list.begin(), choice.num_layer_list.end(), int64_t{0}) != num_layers)
    return std::nullopt;
  choice.module = static_cast<layout::RecomputedModule>(type);
  choice.micro_batch_size = number("micro_batch_size");
  const int64_t samples = made_for["global_batch_size"].get<int64_t>() / made_for["dp"].get<int64_t>();
  if (choice.micro_batch_size < 1 || samples % choice.micro_batch_size != 0) return std::nullopt;
  return choice;
}

void apply(const Choice& choice, TrainerConfig& config) {
  config.parallel.automated_pipeline = config.parallel.automated_pipeline_perf = false;
  config.parallel.save_memory_ratio.reset();
  config.parallel.num_layer_list = choice.num_layer_list;
  config.training.micro_batch_size = choice.micro_batch_size;
  if (std::ranges::all_of(choice.recompute_module_list, [](int64_t layers) { return layers == 0; })) return;
  config.training.recompute_module_list = choice.recompute_module_list;
  config.training.recompute_type = static_cast<int64_t>(choice.module);
}

std::string list_text(const List& list) {
  std::string text;
  for (const int64_t value : list) text += cat(text.empty() ? "" : ",", value);
  return text;
}

// The flags that do the same.
std::string flags_text(const Choice& choice, bool with_size) {
  std::string text = "--num-layer-list " + list_text(choice.num_layer_list);
  if (std::ranges::any_of(choice.recompute_module_list, [](int64_t layers) { return layers > 0; })) {
    text += " --recompute-module-list " + list_text(choice.recompute_module_list);
    if (choice.module == layout::RecomputedModule::kMlp) text += " --recompute-type 0";
  }
  if (with_size) text += cat(" --micro-batch-size ", choice.micro_batch_size);
  return text;
}

double megabytes(int64_t bytes) { return static_cast<double>(bytes) * 1e-6; }

// Collective. Bytes that a rank may take: of the rank with the least, whose host others share.
int64_t memory_of_a_rank(core::Communicator& world) {
  int64_t own[] = {core::host_id(), core::available_memory_bytes()};
  List all(static_cast<size_t>(2 * world.size()));
  world.allgather(core::TensorView(own, core::DType::kInt64, {2}),
                  core::TensorView(all.data(), core::DType::kInt64, {2 * world.size()}));
  int64_t least = std::numeric_limits<int64_t>::max();
  for (size_t i = 0; i < all.size(); i += 2) {
    int64_t sharing = 0;
    for (size_t other = 0; other < all.size(); other += 2) sharing += all[other] == all[i];
    if (all[i + 1] > 0)
      least = std::min(least, static_cast<int64_t>(kShareOfMemory * static_cast<double>(all[i + 1])) / sharing);
  }
  return least;
}

// Times of nothing, where memory alone is asked for.
layout::ModelTimes no_times(const TrainerConfig& config) {
  return {.layers = std::vector<layout::LayerTimes>(static_cast<size_t>(config.model.num_layers))};
}

// A step with micro-batches of so many samples; nullopt: the batch sizes of the run cannot be divided into them.
std::optional<layout::TrainingStep> step_of(const TrainerConfig& config, int64_t micro_batch_size, int world_size) {
  TrainerConfig sized = config;
  sized.training.micro_batch_size = micro_batch_size;
  const int64_t samples = micro_batch_size * config.grid(world_size).dp;
  if (config.training.global_batch_size % samples != 0 || config.eval_batch_size() % samples != 0) return std::nullopt;
  try {
    sized.validate_batch_sizes(world_size, 0);
  } catch (const core::Error&) {
    return std::nullopt;
  }
  return sized.training_step(world_size);
}

// The micro-batch sizes that a run may have, ascending, and its step with each: the given one, or with
// --automated-pipeline-perf all that there is memory for. budget: of a rank.
std::vector<layout::TrainingStep> steps_to_search(const TrainerConfig& config, int world_size, int64_t budget) {
  if (!config.parallel.automated_pipeline_perf) return {config.training_step(world_size)};
  std::vector<layout::TrainingStep> steps;
  std::set<int64_t> sizes = {1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64};
  sizes.insert(config.training.micro_batch_size);
  for (const int64_t size : sizes) {
    const std::optional<layout::TrainingStep> step = step_of(config, size, world_size);
    if (!step) continue;
    // Even stages that recompute all their layers.
    const List even = layout::nearly_even_list(config.model.num_layers, config.parallel.pipeline_model_parallel_size);
    if (!steps.empty() && layout::expected_of_split(*step, no_times(config), even, even).peak_bytes > budget) break;
    steps.push_back(*step);
  }
  if (steps.empty()) steps.push_back(config.training_step(world_size));
  return steps;
}

// Whether the run can take the choice of another: its batches divide into the micro-batches, and a rank has the memory.
bool is_possible(const Choice& choice, const TrainerConfig& config, int world_size, int64_t memory) {
  const std::optional<layout::TrainingStep> step = step_of(config, choice.micro_batch_size, world_size);
  return step && layout::expected_of_split(*step, no_times(config), choice.num_layer_list, choice.recompute_module_list,
                                           choice.module)
                         .peak_bytes <= memory;
}

void log_times(const layout::TrainingStep& step, const layout::ModelTimes& times) {
  const auto text = [](const layout::PartTimes& part) { return format("%.4g + %.4g s", part.forward, part.backward); };
  std::string layers;  // of one kind in a row once
  for (size_t i = 0; i < times.layers.size(); ++i) {
    const std::string own = text(times.layers[i]);
    if (i == 0 || own != text(times.layers[i - 1])) layers += cat(i > 0 ? ", " : "", "from ", i, " on ", own);
  }
  core::log_debug(kWhere, cat("forward and backward of micro-batches of ", step.micro_batch_size, ": embedding ",
                              text(times.embedding), "; layers ", layers, "; loss ", text(times.loss)));
}

// What would be faster, by less than measuring again may change.
void log_passed_over(const layout::SizedSearchResult& best, const std::vector<layout::TrainingStep>& steps,
                     const std::vector<layout::ModelTimes>& times) {
  const double spread = 100 * times[best.size].spread;
  if (const auto& faster = best.result.passed_over) {
    core::log_info(kWhere, cat("automated pipeline: even stages are kept: ", list_text(faster->num_layer_list),
                               format(" would be %.1f %% faster, and the measurement's spread is %.1f %%",
                                      100 * (best.result.split.seconds / faster->seconds - 1), spread)));
  }
  if (best.passed_over)
    core::log_info(kWhere, cat("automated pipeline: the given micro-batch size is kept: ",
                               steps[*best.passed_over].micro_batch_size,
                               format(" would be faster by less than the measurement's spread, %.1f %%",
                                      100 * std::max(times[best.size].spread, times[*best.passed_over].spread))));
}

// Searches, and says in the log what is chosen and why.
Choice search(const TrainerConfig& config, const std::vector<layout::TrainingStep>& steps,
              const std::vector<layout::ModelTimes>& times, int64_t memory, double measuring_seconds) {
  const List even = layout::nearly_even_list(config.model.num_layers, config.parallel.pipeline_model_parallel_size);
  const std::optional<double> ratio = config.parallel.save_memory_ratio;
  List budgets;
  for (size_t i = 0; i < steps.size(); ++i) {
    const auto peak = static_cast<double>(layout::expected_of_split(steps[i], times[i], even).peak_bytes);
    budgets.push_back(ratio ? std::min(memory, static_cast<int64_t>((1 - *ratio) * peak)) : memory);
    log_times(steps[i], times[i]);
  }
  const auto given =
      std::ranges::find(steps, config.training.micro_batch_size, &layout::TrainingStep::micro_batch_size);
  const layout::SizedSearchResult best = layout::find_micro_batch_size(
      steps, times, budgets, given == steps.end() ? std::nullopt : std::optional(size_t(given - steps.begin())));
  const layout::PipelineSplit& split = best.result.split;
  const Choice choice{split.num_layer_list, split.recompute_module_list, split.module,
                      steps[best.size].micro_batch_size};
  const layout::PipelineSplit of_even = layout::expected_of_split(steps[best.size], times[best.size], even);
  std::string text = cat("automated pipeline: ", flags_text(choice, config.parallel.automated_pipeline_perf));
  text +=
      format(" | predicted step (ms): %.1f, even stages %.1f | largest rank: %.1f MB, even stages %.1f MB",
             1e3 * split.seconds, 1e3 * of_even.seconds, megabytes(split.peak_bytes), megabytes(of_even.peak_bytes));
  core::log_info(kWhere, text + format(" | measured in %.1f s", measuring_seconds));
  log_passed_over(best, steps, times);
  if (!best.result.is_exact) {
    core::log_info(kWhere,
                   "automated pipeline: the search has ended at its bound, before it had tried all splits: another one "
                   "may be faster, or recompute less");
  }
  if (keeps_documents_apart(config)) {
    core::log_info(
        kWhere,
        "automated pipeline: attention is measured over whole samples; where they are several documents that "
        "do not see each other, layers take less, and the loss and the embedding a larger share of a step");
  }
  if (!best.result.fits) {
    const int64_t budget = budgets[best.size];
    core::log_warning(
        kWhere, format("automated pipeline: no split fits into %.1f MB a rank (%s); this one needs the least, %.1f MB",
                       megabytes(budget), budget < memory ? "--save-memory-ratio" : "what the hosts have free",
                       megabytes(split.peak_bytes)));
  }
  return choice;
}

}  // namespace

nlohmann::json choose_pipeline(TrainerConfig& config, ProcessGroups& groups, core::ThreadPool& pool,
                               const nlohmann::json& saved) {
  core::Communicator& world = groups.world;
  // Of rank 0, whose number of threads may differ from another's.
  const nlohmann::json made_for =
      nlohmann::json::parse(world.bcast_string(circumstances(config, groups.grid, pool.num_threads()).dump(), 0));
  const int64_t memory = memory_of_a_rank(world);
  const bool with_size = config.parallel.automated_pipeline_perf;
  std::string record;  // of rank 0
  core::collectively(world, "read the saved choice of layers", [&] {
    const std::optional<Choice> choice = choice_of(saved, made_for);
    if (!choice || world.rank() != 0 || !is_possible(*choice, config, world.size(), memory)) return;
    record = record_of(*choice, made_for).dump();
    core::log_info(kWhere,
                   cat("automated pipeline: ", flags_text(*choice, with_size), ", as the checkpoint's run chose"));
  });
  record = world.bcast_string(record, 0);
  if (record.empty()) {
    const int64_t start_ns = core::trace::now_ns();
    std::vector<layout::TrainingStep> steps;
    core::collectively(world, "choose the layers of the stages",
                       [&] { steps = steps_to_search(config, world.size(), memory); });
    List sizes;
    for (const layout::TrainingStep& step : steps) sizes.push_back(step.micro_batch_size);
    core::log_info(kWhere,
                   cat("automated pipeline: measuring the parts of the model with ", sizes.size(),
                       sizes.size() == 1 ? " micro-batch size" : " micro-batch sizes", ", each about 10 s at most"));
    const std::vector<layout::ModelTimes> times = measure_parts(config, groups, pool, sizes);
    const double seconds = static_cast<double>(core::trace::now_ns() - start_ns) * 1e-9;
    core::collectively(world, "choose the layers of the stages", [&] {
      if (world.rank() == 0) record = record_of(search(config, steps, times, memory, seconds), made_for).dump();
    });
    record = world.bcast_string(record, 0);
  }
  nlohmann::json chosen = nlohmann::json::parse(record);
  core::collectively(world, "take the chosen layers", [&] {
    const std::optional<Choice> choice = choice_of(chosen, made_for);
    MS_CHECK(choice.has_value(), record);
    apply(*choice, config);
    layout::validate_layout(config.layout(world.size()), config.model);
  });
  return chosen;
}

}  // namespace ms::train
