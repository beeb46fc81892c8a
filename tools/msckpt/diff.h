// msckpt diff: which tensors of two checkpoints differ, by how much, where first.
#pragma once

#include "tools/msckpt/verb.h"

namespace ms::tools::msckpt {

Verb add_diff(CLI::App& app);

}  // namespace ms::tools::msckpt
