#include "train/features/stage_layers.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

#include "core/layout/pipeline_layout.h"
#include "train/config.h"
#include "train/features/check.h"

namespace ms::train {
namespace {

bool counts_embedding_or_loss(const TrainerConfig& config) {
  return config.parallel.account_for_embedding_in_pipeline_split || config.parallel.account_for_loss_in_pipeline_split;
}

// The flags that say how the layers are divided, of which one may be given.
struct Way {
  const char* flags;
  Condition given;
};
const std::array<Way, 7> kWays = {{
    {"--num-layer-list", [](const TrainerConfig& c) { return !c.parallel.num_layer_list.empty(); }},
    {"--pipeline-model-parallel-layout",
     [](const TrainerConfig& c) { return !c.parallel.pipeline_model_parallel_layout.empty(); }},
    {"--decoder-first-pipeline-num-layers or --decoder-last-pipeline-num-layers",
     [](const TrainerConfig& c) {
       return c.parallel.decoder_first_pipeline_num_layers || c.parallel.decoder_last_pipeline_num_layers;
     }},
    {"--account-for-embedding-in-pipeline-split or --account-for-loss-in-pipeline-split", counts_embedding_or_loss},
    {"--standalone-embedding-stage", [](const TrainerConfig& c) { return c.parallel.standalone_embedding_stage; }},
    {"--automated-pipeline or --automated-pipeline-perf", chooses_pipeline},
    {"--num-layers-per-virtual-pipeline-stage",
     [](const TrainerConfig& c) { return c.parallel.num_layers_per_virtual_pipeline_stage.has_value(); }},
}};

layout::Placement::Order order_of(const TrainerConfig& config) {
  return layout::chunk_order(schedule_settings(config.parallel).method);
}

// layers: of each stage, as `flag` gives them. Returns those of each chunk, in the order of the positions.
std::vector<int64_t> in_chunks(const TrainerConfig& config, const char* flag, const std::vector<int64_t>& layers,
                               int chunks) {
  const auto stages = static_cast<int>(layers.size());
  const layout::Placement places = layout::Placement::even(stages, chunks, 0, order_of(config));
  std::vector<int64_t> list;
  for (int position = 0; position < places.positions(); ++position) {
    const int64_t count = layers[static_cast<size_t>(places.place(position).stage)];
    require(count % chunks == 0, flag, ": a stage of ", count, " layers cannot have ", chunks,
            order_of(config) == layout::Placement::Order::kV
                ? core::cat(" equal chunks of --schedules-method ", config.parallel.schedules_method)
                : " equal virtual stages",
            "; --num-layer-list gives each its own");
    list.push_back(count / chunks);
  }
  return list;
}

// Why --noop-layers cannot be taken; empty: it can.
std::string fault_of_noop_layers(const TrainerConfig& config) {
  for (const Way& way : kWays) {
    if (way.given(config) && &way != &kWays.back())
      return core::cat("--noop-layers and ", way.flags, " exclude each other");
  }
  const std::vector<int64_t>& noops = config.parallel.noop_layers;
  const int64_t layers = config.model.num_layers;
  for (size_t i = 0; i < noops.size(); ++i) {
    if (noops[i] < 0 || noops[i] >= layers)
      return core::cat("--noop-layers ", noops[i], ": expected 0 to below the ", layers,
                       " places of layers and no-op layers");
    if (i > 0 && noops[i] <= noops[i - 1])
      return core::cat("--noop-layers: ", noops[i], " comes after ", noops[i - 1], "; list them in order");
  }
  if (static_cast<int64_t>(noops.size()) == layers) return "--noop-layers leaves no layer";
  const int64_t pp = config.parallel.pipeline_model_parallel_size;
  try {
    const int64_t places = pp * config.virtual_pipeline_model_parallel_size();
    if (places > 0 && layers % places == 0) return "";
    const auto count = static_cast<int64_t>(noops.size());
    return core::cat("--noop-layers: ", layers - count, " layers and ", count, " no-op layers make ", layers,
                     ", not a multiple of the ", places, " (virtual) stages of --pipeline-model-parallel-size ", pp);
  } catch (const core::Error& e) {
    return e.what();
  }
}

// Places without a layer make an uneven list of layers.
void resolve_noop_layers(TrainerConfig& config) {
  ModelParallelConfig& parallel = config.parallel;
  if (parallel.noop_layers.empty() || !fault_of_noop_layers(config).empty()) return;
  const int chunks = config.virtual_pipeline_model_parallel_size();
  const auto places = layout::Placement::even(parallel.pipeline_model_parallel_size, chunks, config.model.num_layers,
                                              order_of(config), std::exchange(parallel.noop_layers, {}));
  config.model.num_layers = 0;
  for (int position = 0; position < places.positions(); ++position) {
    parallel.num_layer_list.push_back(places.layers(places.place(position)).count);
    config.model.num_layers += parallel.num_layer_list.back();
  }
  if (parallel.num_layers_per_virtual_pipeline_stage) {
    parallel.num_layers_per_virtual_pipeline_stage.reset();
    parallel.num_virtual_stages_per_pipeline_rank = chunks;
  }
}

// As if the embedding and the loss, where they are accounted for, were layers.
std::vector<int64_t> accounted_list(const TrainerConfig& config, int pp, int chunks) {
  const bool embedding = config.parallel.account_for_embedding_in_pipeline_split;
  const bool loss = config.parallel.account_for_loss_in_pipeline_split;
  const int64_t places = int64_t{pp} * chunks, units = config.model.num_layers + (embedding ? 1 : 0) + (loss ? 1 : 0);
  require(units % places == 0, "--num-layers ", config.model.num_layers, embedding ? " and the embedding" : "",
          loss ? " and the loss" : "", " make ", units, " units, not a multiple of --pipeline-model-parallel-size ", pp,
          chunks > 1 ? core::cat(" x ", chunks, " virtual stages") : "");
  std::vector<int64_t> list(static_cast<size_t>(places), units / places);
  list.front() -= embedding ? 1 : 0;
  list.back() -= loss ? 1 : 0;
  return list;
}

std::vector<int64_t> given_list(const TrainerConfig& config) {
  const StageLayersConfig& flags = config.parallel;
  const int pp = config.parallel.pipeline_model_parallel_size, chunks = config.virtual_pipeline_model_parallel_size();
  if (!flags.num_layer_list.empty()) return flags.num_layer_list;
  if (!flags.pipeline_model_parallel_layout.empty())
    return layout::parse_pipeline_layout(flags.pipeline_model_parallel_layout).layers;
  if (flags.decoder_first_pipeline_num_layers || flags.decoder_last_pipeline_num_layers) {
    return in_chunks(
        config,
        flags.decoder_first_pipeline_num_layers ? "--decoder-first-pipeline-num-layers"
                                                : "--decoder-last-pipeline-num-layers",
        layout::uneven_layer_list(config.model.num_layers, pp, flags.decoder_first_pipeline_num_layers.value_or(0),
                                  flags.decoder_last_pipeline_num_layers.value_or(0)),
        chunks);
  }
  if (counts_embedding_or_loss(config)) return accounted_list(config, pp, chunks);
  if (chooses_pipeline(config)) return layout::nearly_even_list(config.model.num_layers, pp);
  if (!flags.standalone_embedding_stage) return {};
  require(pp > 1 && config.model.num_layers % (pp - 1) == 0, "--standalone-embedding-stage: --num-layers ",
          config.model.num_layers, " cannot be shared evenly by the other stages of --pipeline-model-parallel-size ",
          pp);
  std::vector<int64_t> layers(static_cast<size_t>(pp), config.model.num_layers / (pp - 1));
  layers.front() = 0;
  return in_chunks(config, "--standalone-embedding-stage", layers, chunks);
}

void check_stage_layers(const TrainerConfig& config, int) {
  if (!config.parallel.noop_layers.empty()) require(false, fault_of_noop_layers(config));
  const Way* first = nullptr;
  for (const Way& way : kWays) {
    if (!way.given(config)) continue;
    require(first == nullptr, first != nullptr ? first->flags : "", " and ", way.flags, " exclude each other",
            way.flags == kWays.back().flags ? "; give --num-virtual-stages-per-pipeline-rank" : "");
    first = &way;
  }
  for (const auto& [layers, flag] :
       {std::pair{config.parallel.decoder_first_pipeline_num_layers, "--decoder-first-pipeline-num-layers"},
        std::pair{config.parallel.decoder_last_pipeline_num_layers, "--decoder-last-pipeline-num-layers"}}) {
    require(!layers || *layers > 0, flag, " ", layers.value_or(0), ": at least 1");
  }
  const std::string& text = config.parallel.pipeline_model_parallel_layout;
  if (text.empty()) return;
  const layout::PipelineLayout parsed = layout::parse_pipeline_layout(text);
  const int pp = config.parallel.pipeline_model_parallel_size;
  require(parsed.layers.size() % static_cast<size_t>(pp) == 0, "--pipeline-model-parallel-layout has ",
          parsed.layers.size(), " stages, not a multiple of --pipeline-model-parallel-size ", pp);
  const auto& stages = config.parallel.num_virtual_stages_per_pipeline_rank;
  require(!stages || *stages * pp == static_cast<int64_t>(parsed.layers.size()),
          "--pipeline-model-parallel-layout has ", parsed.layers.size(),
          " stages, but --num-virtual-stages-per-pipeline-rank ", stages.value_or(0), " x ", pp);
  const auto mtp = std::accumulate(parsed.mtp_layers.begin(), parsed.mtp_layers.end(), int64_t{0});
  require(mtp == config.model.mtp_num_layers, "--pipeline-model-parallel-layout has ", mtp,
          " layers of multi-token prediction (m), but --mtp-num-layers is ", config.model.mtp_num_layers);
  if (parsed.mtp_layers.back() != mtp) {
    throw core::Error(core::ErrorCode::kUnsupported,
                      "--pipeline-model-parallel-layout has layers of multi-token prediction (m) before its last "
                      "stage, which has the loss: they are computed with that");
  }
}

}  // namespace

std::vector<int64_t> layer_list(const TrainerConfig& config) {
  std::vector<int64_t> list = given_list(config);
  const auto places = static_cast<int64_t>(list.size());
  const bool is_even =
      std::ranges::all_of(list, [&](int64_t count) { return count * places == config.model.num_layers; });
  return is_even ? std::vector<int64_t>() : list;
}

std::optional<int> chunks_per_stage(const TrainerConfig& config) {
  const std::string& text = config.parallel.pipeline_model_parallel_layout;
  if (text.empty()) return std::nullopt;
  return static_cast<int>(layout::parse_pipeline_layout(text).layers.size()) /
         config.parallel.pipeline_model_parallel_size;
}

Feature stage_layers_feature() {
  return {
      .name = "stage-layers",
      .level = 0,
      .effect =
          "Gives pipeline stages different numbers of layers, so that those with the embedding or the loss have less "
          "to do",
      .add_flags = [](core::ConfigFields& fields,
                      TrainerConfig& config) { fields.add<StageLayersConfig>("parallel", config.parallel); },
      .is_active = [](const TrainerConfig& c) { return !layer_list(c).empty(); },
      .resolve = resolve_noop_layers,
      .check = check_stage_layers,
  };
}

}  // namespace ms::train
