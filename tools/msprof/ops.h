// msprof ops: host operators, and call stacks for flame graphs.
#pragma once

#include <memory>

#include "tools/msprof/verb.h"

namespace ms::tools::msprof {

std::unique_ptr<Verb> ops_verb();

}  // namespace ms::tools::msprof
