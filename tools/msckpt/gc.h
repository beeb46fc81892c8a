// msckpt gc: removes what dead writers left behind, and generations that the retention rule no longer keeps.
#pragma once

#include "tools/msckpt/verb.h"

namespace ms::tools::msckpt {

Verb add_gc(CLI::App& app);

}  // namespace ms::tools::msckpt
