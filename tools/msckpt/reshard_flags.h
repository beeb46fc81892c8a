// The flags that determine a reshard: of reshard, plan and merge.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "ckpt/reshard.h"
#include "tools/msckpt/layout_flags.h"

namespace ms::tools::msckpt {

struct ReshardFlags {
  LayoutFlags layout;
  std::string params_dtype;
  bool drop_optimizer = false;  // merge always drops it and has no such flag
};

void add_reshard_flags(CLI::App& verb, ReshardFlags& flags);

ckpt::ReshardOptions reshard_options(const ReshardFlags& flags);

}  // namespace ms::tools::msckpt
