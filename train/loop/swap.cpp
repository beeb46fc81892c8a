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

std::unique_ptr<RunSwap> RunSwap::open(RankState& state) {
  const TrainerConfig& config = state.config;
  const layout::TrainingStep step = config.training_step(state.groups.grid.world_size());
  if (!step.swap.any()) return nullptr;
  const int64_t most = layout::step_memory(step, state.groups.grid.rank(state.groups.at)).tier;
  const std::string folder = swap_folder(config);
  try {
    std::unique_ptr<RunSwap> swap(new RunSwap(step.swap, state, folder, most));
    if (swap->tier().is_in_memory()) {
      core::log_warning("train.swap",
                        cat("activations are written to ", folder,
                            ", which is in memory itself: that saves none. Name a folder on a disk by --swap-dir"));
    }
    return swap;
  } catch (const core::Error& e) {
    throw with_cure(e).within(step.swap.activations() ? "--swap-attention" : "--use-nanopipe-swap");
  }
}

void RunSwap::check() const {
  try {
    tensors_.tier().check();
  } catch (const core::Error& e) {
    throw with_cure(e);
  }
}

}  // namespace ms::train
