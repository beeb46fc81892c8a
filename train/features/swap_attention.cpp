#include "train/features/swap_attention.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "train/config.h"
#include "train/features/check.h"

namespace ms::train {
namespace {

constexpr const char* kFlag = "--swap-attention";

constexpr const char* kOfLayers = "--swap-attention or --use-nanopipe-swap";
constexpr const char* kAny = "--swap-attention, --use-nanopipe-swap or --swap-optimizer";

bool is_on(const TrainerConfig& config) { return config.training.swap_attention; }
bool drops_all_layers(const TrainerConfig& config) { return config.training.recompute_method == "uniform"; }
bool swaps_tensors(const TrainerConfig& config) { return is_on(config) || config.parallel.use_nanopipe_swap; }
bool has_tier(const TrainerConfig& config) { return swaps_tensors(config) || config.optimizer.swap_optimizer; }

// Calls visit for each module that the list names.
template <class Visit>
void each_module(const std::string& list, const Visit& visit) {
  for (size_t begin = 0; begin <= list.size();) {
    const size_t end = std::min(list.find(',', begin), list.size());
    visit(list.substr(begin, end - begin));
    begin = end + 1;
  }
}

void check_swap(const TrainerConfig& config, int) {
  const std::string& modules = config.training.swap_modules;
  each_module(modules, [&](const std::string& module) {
    require(!module.empty(), "--swap-modules \"", modules,
            "\" has an empty name: expected self_attention, input_norm or post_attention_norm, separated by commas");
    require_one_of("--swap-modules", module, {"self_attention", "input_norm", "post_attention_norm"});
  });
  require(config.training.swap_min_tensor_kib >= 0 && config.training.swap_min_tensor_kib <= (int64_t{1} << 40),
          "--swap-min-tensor-kib ", config.training.swap_min_tensor_kib, ": expected 0 to 2^40");
}

}  // namespace

layout::SwapPlan swap_plan(const TrainerConfig& config) {
  const SwapAttentionConfig& swap = config.training;
  layout::SwapPlan plan;
  plan.min_bytes = swap.swap_min_tensor_kib << 10;
  plan.operands = config.parallel.use_nanopipe_swap;
  plan.optimizer_times = config.optimizer.swap_optimizer ? config.optimizer.swap_optimizer_times : 0;
  if (!swap.swap_attention || drops_all_layers(config)) return plan;
  each_module(swap.swap_modules, [&](const std::string& module) {
    plan.self_attention |= module == "self_attention";
    plan.input_norm |= module == "input_norm";
    plan.post_attention_norm |= module == "post_attention_norm";
  });
  return plan;
}

std::string swap_folder(const TrainerConfig& config) {
  namespace fs = std::filesystem;
  if (!config.training.swap_dir.empty()) return config.training.swap_dir;
  const char* temporary = std::getenv("TMPDIR");
  if (temporary != nullptr && *temporary != '\0') return temporary;
  if (config.checkpoint.save.empty()) return "/tmp";
  fs::path folder = fs::absolute(config.checkpoint.save);  // the first save makes it
  std::error_code none;
  while (!fs::is_directory(folder, none) && folder.has_relative_path()) folder = folder.parent_path();
  return folder.string();
}

Feature swap_attention_feature() {
  return {
      .name = "swap-attention",
      .level = 2,
      .effect =
          "Writes what attention keeps for backward to a disk, and reads it back one layer ahead: two layers' worth "
          "stays in memory, and no bit changes",
      .add_flags = [](core::ConfigFields& fields,
                      TrainerConfig& config) { fields.add<SwapAttentionConfig>("training", config.training); },
      .is_active = [](const TrainerConfig& c) { return is_on(c) && !drops_all_layers(c); },
      .rules = {excludes(
                    kFlag, is_on, "--no-use-flash-attn or --optimization-level 0",
                    [](const TrainerConfig& c) { return !c.training.uses_flash_attn(); },
                    ", which holds all scores of a head in memory"),
                needs(
                    "--swap-modules",
                    [](const TrainerConfig& c) {
                      return c.training.swap_modules != SwapAttentionConfig().swap_modules;
                    },
                    kFlag, is_on),
                needs(
                    "--swap-dir", [](const TrainerConfig& c) { return !c.training.swap_dir.empty(); }, kAny, has_tier),
                needs(
                    "--swap-min-tensor-kib",
                    [](const TrainerConfig& c) {
                      return c.training.swap_min_tensor_kib != SwapAttentionConfig().swap_min_tensor_kib;
                    },
                    kOfLayers, swaps_tensors)},
      .ineffective = {{[](const TrainerConfig& c) { return is_on(c) && drops_all_layers(c); },
                       "--swap-attention has no effect with --recompute-method uniform, which drops all; use block"}},
      .check = check_swap,
  };
}

}  // namespace ms::train
