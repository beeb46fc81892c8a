// msprof memory: copies, and what the allocators held.
#pragma once

#include <memory>

#include "tools/msprof/verb.h"

namespace ms::tools::msprof {

std::unique_ptr<Verb> memory_verb();

}  // namespace ms::tools::msprof
