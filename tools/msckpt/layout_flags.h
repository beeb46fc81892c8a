// The flags that say how a result of ours is cut over ranks: of reshard, plan, merge and convert.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>

#include "ckpt/layout.h"
#include "ckpt/source.h"

namespace ms::tools::msckpt {

struct LayoutFlags {
  ckpt::ModelLayout target;  // sizes; its layers follow from the next three
  int64_t num_layers_per_virtual_pipeline_stage = 0, first_num_layers = 0, last_num_layers = 0;
  std::optional<int> expert_tensor_parallel_size;
};

// Adds every layout flag.
void add_layout_flags(CLI::App& verb, LayoutFlags& flags);
// Adds those that every verb with a layout has, and convert too: TP, PP, virtual stages, EP, expert TP, and the list of
// layers. `of`: what the sizes are of, for the help texts.
void add_common_layout_flags(CLI::App& verb, LayoutFlags& flags, const char* of);

// The layout that the flags ask for, of the source's model. Throws kInvalidArgument, naming the flags.
ckpt::ModelLayout target_layout(const LayoutFlags& flags, const ckpt::Source& source);

}  // namespace ms::tools::msckpt
