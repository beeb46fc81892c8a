// msckpt verify: checks that a checkpoint is intact, or that it holds the same as another one.
#pragma once

#include "tools/msckpt/verb.h"

namespace ms::tools::msckpt {

Verb add_verify(CLI::App& app);

}  // namespace ms::tools::msckpt
