// msckpt diff: lists the tensors and optimizer settings in which two checkpoints differ, by how much and where first;
// or compares how a run would continue from them.
#pragma once

#include "tools/msckpt/verb.h"

namespace ms::tools::msckpt {

Verb add_diff(CLI::App& app);

}  // namespace ms::tools::msckpt
