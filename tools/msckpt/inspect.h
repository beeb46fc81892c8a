// msckpt inspect: shows layout, model and tensors of a checkpoint, and the statistics of one tensor.
#pragma once

#include "tools/msckpt/verb.h"

namespace ms::tools::msckpt {

Verb add_inspect(CLI::App& app);

}  // namespace ms::tools::msckpt
