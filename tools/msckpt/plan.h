// msckpt plan: prints the copies that a reshard would make, one per line.
#pragma once

#include "tools/msckpt/verb.h"

namespace ms::tools::msckpt {

Verb add_plan(CLI::App& app);

}  // namespace ms::tools::msckpt
