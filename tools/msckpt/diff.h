// msckpt diff: which tensors and optimizer settings of two checkpoints differ, by how much, where first; and whether a
// run continues from both alike.
#pragma once

#include "tools/msckpt/verb.h"

namespace ms::tools::msckpt {

Verb add_diff(CLI::App& app);

}  // namespace ms::tools::msckpt
