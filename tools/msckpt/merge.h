// msckpt merge: averages the parameters of several checkpoints of one model.
#pragma once

#include "tools/msckpt/verb.h"

namespace ms::tools::msckpt {

Verb add_merge(CLI::App& app);

}  // namespace ms::tools::msckpt
