#include "train/loop/swap.h"

#include <cerrno>
#include <cstring>
#include <string_view>

#include "core/error.h"
#include "core/layout/formulas/memory.h"
#include "core/log.h"

namespace ms::train {
namespace {

using core::cat;

core::Error with_cure(const core::Error& error) {
  const bool is_full = std::string_view(error.what()).find(std::strerror(ENOSPC)) != std::string_view::npos;
  return {error.code(),
          cat(error.what(), is_full ? ". Make room there, or name" : ". Name", " another folder by --swap-dir")};
}

}  // namespace

std::unique_ptr<ActivationSwap> open_swap(RankState& state) {
  const TrainerConfig& config = state.config;
  const layout::TrainingStep step = config.training_step(state.groups.grid.world_size());
  const int64_t most = layout::step_memory(step, state.groups.grid.rank(state.groups.at)).tier;
  const std::string folder = swap_folder(config);
  try {
    auto swap = std::make_unique<ActivationSwap>(step.swap, state.ops.arena, folder, most, state.ops.recorder);
    if (swap->tier().is_in_memory()) {
      core::log_warning("train.swap", cat("--swap-attention writes to ", folder,
                                          ", which is in memory itself: it saves none. Name a folder on a disk by "
                                          "--swap-dir"));
    }
    return swap;
  } catch (const core::Error& e) {
    throw with_cure(e).within("--swap-attention");
  }
}

void check_swap_tier(const ActivationSwap& swap) {
  try {
    swap.tier().check();
  } catch (const core::Error& e) {
    throw with_cure(e);
  }
}

}  // namespace ms::train
