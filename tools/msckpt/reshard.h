// msckpt reshard: writes a checkpoint for other parallel sizes, optimizer state included.
#pragma once

#include "tools/msckpt/verb.h"

namespace ms::tools::msckpt {

Verb add_reshard(CLI::App& app);

}  // namespace ms::tools::msckpt
