#include "train/loop/swap.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>

#include "core/error.h"
#include "core/layout/formulas/memory.h"
#include "core/log.h"
#include "train/format.h"

namespace ms::train {
namespace {

using core::cat;

// Once per run: what goes where, and whether anything does.
void log_traffic(const layout::TrainingStep& step, const layout::RankGrid& grid, const std::string& folder) {
  int64_t swapped = 0, tensors = 0, at_once = 0, state = 0;
  for (int stage = 0; stage < grid.pp; ++stage) {
    const int rank = grid.rank({.pp = stage});
    const layout::StepMemory memory = layout::step_memory(step, rank);
    const layout::SwappedBytes of_state = layout::swapped_state(step, rank);
    swapped = std::max(swapped, memory.swapped - of_state.of_tier);
    tensors = std::max(tensors, memory.swapped_tensors - of_state.tensors);
    at_once = std::max(at_once, memory.tier - of_state.of_tier);
    state = std::max(state, of_state.of_tier);
  }
  if (step.swap.optimizer()) {
    core::log_info("train.swap", format("swapping the optimizer's state to %s: up to %.1f MB of a rank, in %lld chunks",
                                        folder.c_str(), static_cast<double>(state) * 1e-6,
                                        static_cast<long long>(step.swap.optimizer_times)));
  }
  if (!step.swap.tensors()) return;
  const int64_t min_kib = step.swap.min_bytes >> 10;
  if (swapped == 0) {
    core::log_warning("train.swap", cat("nothing leaves memory: no tensor has --swap-min-tensor-kib ", min_kib,
                                        ", or its backward follows at once"));
    return;
  }
  core::log_info("train.swap",
                 format("swapping to %s: up to %.1f MB in %lld tensors written by a rank in a step, %.1f MB at once, "
                        "tensors of at least %lld KiB",
                        folder.c_str(), static_cast<double>(swapped) * 1e-6, static_cast<long long>(tensors),
                        static_cast<double>(at_once) * 1e-6, static_cast<long long>(min_kib)));
}

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
    log_traffic(step, state.groups.grid, folder);
    if (swap->tier().is_in_memory()) {
      core::log_warning("train.swap",
                        cat("what is to leave memory is written to ", folder,
                            ", which is in memory itself: that saves none. Name a folder on a disk by --swap-dir"));
    }
    return swap;
  } catch (const core::Error& e) {
    throw with_cure(e).within(step.swap.activations() ? "--swap-attention"
                              : step.swap.operands    ? "--use-nanopipe-swap"
                                                      : "--swap-optimizer");
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
