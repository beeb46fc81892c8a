// msprof memory: copies, and the memory held by the allocators.
#pragma once

#include <memory>

#include "tools/msprof/verb.h"

namespace ms::tools::msprof {

std::unique_ptr<Verb> memory_verb();

}  // namespace ms::tools::msprof
