// msprof ranks: waiting and blame across ranks.
#pragma once

#include <memory>

#include "tools/msprof/verb.h"

namespace ms::tools::msprof {

std::unique_ptr<Verb> ranks_verb();

}  // namespace ms::tools::msprof
