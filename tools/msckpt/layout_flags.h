// The flags for the parallel layout of a native result: of reshard, plan, merge and convert.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <string>

#include "ckpt/source.h"
#include "core/layout/model_layout.h"

namespace ms::tools::msckpt {

struct LayoutFlags {
  layout::ModelLayout target;  // parallel sizes; its layers are derived from the next members
  int64_t num_layers_per_virtual_pipeline_stage = 0, first_num_layers = 0, last_num_layers = 0;
  std::string schedules_method;  // one that runs in a V
  std::optional<int> expert_tensor_parallel_size;
};

// Adds every layout flag.
void add_layout_flags(CLI::App& verb, LayoutFlags& flags);
// Adds the layout flags that convert has too: TP, PP, virtual stages, EP, expert TP, and the list of layers. `of`: the
// object of the sizes in the help texts.
void add_common_layout_flags(CLI::App& verb, LayoutFlags& flags, const char* of);

// The layout that the flags describe, for the source's model. Throws kInvalidArgument, naming the flags.
layout::ModelLayout target_layout(const LayoutFlags& flags, const ckpt::Source& source);

}  // namespace ms::tools::msckpt
