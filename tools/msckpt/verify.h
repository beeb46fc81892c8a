// msckpt verify: is a checkpoint whole, or does it hold the same as another one?
#pragma once

#include "tools/msckpt/verb.h"

namespace ms::tools::msckpt {

Verb add_verify(CLI::App& app);

}  // namespace ms::tools::msckpt
