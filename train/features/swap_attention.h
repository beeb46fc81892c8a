// Activations that leave memory between forward and backward. Source: MindSpeed's --swap-attention
// (mindspeed/features_manager/memory/swap_attention.py), whose tier is the host's memory; here it is a file.
#pragma once

#include <cstdint>
#include <string>

#include "core/layout/swap_plan.h"
#include "train/features/feature.h"

namespace ms::train {

struct SwapAttentionConfig {
  bool swap_attention = false;
  std::string swap_modules = "self_attention";
  std::string swap_dir;
  int64_t swap_min_tensor_kib = 512;

  template <class Visitor>
  static void fields(Visitor&& field) {
    using C = SwapAttentionConfig;
    field("swap_attention", &C::swap_attention,
          "Write what layers keep for backward (--swap-modules) to a file during forward, and read it back one layer "
          "ahead during backward: two layers' worth stays in memory. For runs whose activations do not fit; needs a "
          "disk that keeps up with the layers. With --recompute-num-layers N and no --recompute-granularity full, the "
          "MLPs of the first N layers of a chunk are recomputed");
    field(
        "swap_modules", &C::swap_modules,
        "For --swap-attention, separated by commas: self_attention (queries, keys, values and the result), input_norm "
        "and post_attention_norm (what the norms before attention and MLP give)");
    field("swap_dir", &C::swap_dir,
          "Folder of the file of --swap-attention, --use-nanopipe-swap and --swap-optimizer, one for each rank, which "
          "has no name and vanishes with the process. On a local disk: on tmpfs it would be memory again. Empty: "
          "$TMPDIR, else the folder of --save, else /tmp");
    field("swap_min_tensor_kib", &C::swap_min_tensor_kib,
          "For --swap-attention and --use-nanopipe-swap: tensors of fewer KiB stay in memory, because small requests "
          "cost more time than they save memory");
  }
};

struct TrainerConfig;

// Of a valid configuration; without --swap-attention, --use-nanopipe-swap and --swap-optimizer nothing leaves memory.
layout::SwapPlan swap_plan(const TrainerConfig& config);

// The folder for the file: --swap-dir or its default, which exists.
std::string swap_folder(const TrainerConfig& config);

Feature swap_attention_feature();

}  // namespace ms::train
