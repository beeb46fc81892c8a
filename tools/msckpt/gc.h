// msckpt gc: removes what dead writers left, and generations that a rule gives up.
#pragma once

#include "tools/msckpt/verb.h"

namespace ms::tools::msckpt {

Verb add_gc(CLI::App& app);

}  // namespace ms::tools::msckpt
