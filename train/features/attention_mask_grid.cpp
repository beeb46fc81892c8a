#include "train/features/attention_mask_grid.h"

#include <utility>
#include <vector>

#include "core/io/json.h"
#include "core/layout/adaptive_plan.h"
#include "train/config.h"
#include "train/features/check.h"
#include "train/features/packed_documents.h"
#include "train/mask_grid_file.h"

namespace ms::train {
namespace {

constexpr const char* kGrid = "--attention-mask-grid";
constexpr const char* kType = "--attention-mask-type";
constexpr const char* kGeneral = "--attention-mask-type general";

bool has_grid(const TrainerConfig& config) { return !config.training.attention_mask_grid.empty(); }
bool is_general(const TrainerConfig& config) { return config.training.attention_mask_type == "general"; }
bool has_general_grid(const TrainerConfig& config) { return has_grid(config) && is_general(config); }

layout::MaskGrid read_grid(const TrainerConfig& config) {
  return read_mask_grid(config.training.attention_mask_grid, config.training.seq_length, !is_general(config));
}

// The ranks among which keys travel by a plan; 0: without one, or where the sizes are refused.
int planned_ranks(const TrainerConfig& config) {
  const ModelParallelConfig& parallel = config.parallel;
  if (parallel.context_parallel_size <= 1 || !layout::is_adaptive(context_algorithm(parallel))) return 0;
  return config.training.seq_length % parallel.context_parallel_size == 0 ? context_parts(parallel).ring : 0;
}

// Files that are wrong are left for check_mask_grid.
void resolve_mask_grid(TrainerConfig& config) {
  TrainingConfig& training = config.training;
  const int ranks = has_grid(config) ? planned_ranks(config) : 0;
  const bool keeps_order = config.parallel.adaptive_cp_only_reschedule;
  const std::string read_from = core::cat(training.attention_mask_grid, " ", training.attention_mask_type, " ",
                                          training.seq_length, " ", ranks, " ", keeps_order);
  if (read_from == training.grid_read_from) return;
  training.grid_read_from = read_from;
  training.grid_mask = {};
  if (!has_grid(config)) return;
  try {
    training.grid_mask.grid = std::make_shared<const layout::MaskGrid>(read_grid(config));
  } catch (const core::Error&) {
    return;
  }
  using enum layout::PositionOrder;
  if (ranks > 0)
    training.grid_mask.plan = plan_grid(*training.grid_mask.grid, ranks, keeps_order ? kOfSequence : kOfClusters);
}

void check_mask_grid(const TrainerConfig& config, int) {
  require_one_of(kType, config.training.attention_mask_type, {"causal", "general"});
  if (has_grid(config) && !config.training.grid_mask.grid) within_flag(kGrid, [&] { read_grid(config); });
}

std::vector<std::string> notices_of_grids(const TrainerConfig& config) {
  const std::shared_ptr<const layout::MaskGrid>& grid = config.training.grid_mask.grid;
  const int64_t count = grid ? grid->positions_with_loss() : 0;
  if (!grid || count == grid->seq_length()) return {};
  return {core::cat(kGeneral, ": ", count, " of the ", grid->seq_length(), " positions of a sample ",
                    count == 1 ? "counts" : "count", " for the loss: the others see the token that they predict")};
}

std::vector<Rule> rules_of_grids() {
  const auto refused = [](const char* other, Condition holds, const char* why) {
    return excludes(kGrid, has_grid, other, holds, why);
  };
  return {
      refused("--reset-attention-mask or --dataloader-inter-document-masking", keeps_documents_apart,
              ": the grid is of all samples, whose documents end elsewhere in each"),
      refused(
          "--variable-seq-lengths", [](const TrainerConfig& c) { return c.parallel.variable_seq_lengths; },
          ": the grid is of samples of --seq-length"),
      refused(
          "--sliding-window or --interleave-sliding-window",
          [](const TrainerConfig& c) { return c.model.sliding_window > 0 || c.model.interleave_sliding_window > 0; },
          ": the grid says all that a query sees; leave cells beyond the window at 0"),
      refused(
          "--sparse-mode 5 or 6", [](const TrainerConfig& c) { return c.training.prefix_length != 0; },
          ": the grid says all that a query sees; give --attention-mask-type general and set the cells of the prefix"),
      refused(
          "--generate", [](const TrainerConfig& c) { return !c.generate.generate.empty(); },
          ": a text has another length than the samples of the grid"),
      excludes(
          kGeneral, has_general_grid, "--position-embedding-type alibi",
          [](const TrainerConfig& c) { return c.model.has_alibi(); }, ": ALiBi says nothing of keys behind a query"),
      excludes(
          kGeneral, has_general_grid, "--mtp-num-layers",
          [](const TrainerConfig& c) { return c.model.mtp_num_layers > 0; },
          ": further tokens are seen where they are predicted, others than those of the main loss"),
  };
}

}  // namespace

layout::SampleMask sample_mask(const TrainingConfig& training) {
  layout::SampleMask mask = training.grid_mask;
  mask.prefix = training.prefix_length;
  return mask;
}

std::string grid_fingerprint(const TrainingConfig& training) {
  return training.grid_mask.grid ? core::hex16(training.grid_mask.grid->fingerprint()) : "";
}

Feature attention_mask_grid_feature() {
  return {
      .name = "attention-mask-grid",
      .level = 0,
      .effect = "Queries see the keys of the cells that a file shows, and attention computes no others",
      .add_flags = [](core::ConfigFields& fields,
                      TrainerConfig& config) { fields.add<AttentionMaskGridConfig>("training", config.training); },
      .is_active = has_grid,
      .rules = rules_of_grids(),
      .ineffective = {{[](const TrainerConfig& c) { return is_general(c) && !has_grid(c); },
                       "--attention-mask-type general has no effect without --attention-mask-grid: a mask is a few "
                       "numbers here, however sequences are divided, and causal ones stay causal"}},
      .resolve = resolve_mask_grid,
      .check = check_mask_grid,
      .notices = notices_of_grids,
  };
}

}  // namespace ms::train
