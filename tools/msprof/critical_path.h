// msprof critical-path: the longest chain of dependent work, of one rank or across ranks.
#pragma once

#include <memory>

#include "tools/msprof/verb.h"

namespace ms::tools::msprof {

std::unique_ptr<Verb> critical_path_verb();

}  // namespace ms::tools::msprof
