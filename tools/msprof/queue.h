// msprof queue: queue length of each stream.
#pragma once

#include <memory>

#include "tools/msprof/verb.h"

namespace ms::tools::msprof {

std::unique_ptr<Verb> queue_verb();

}  // namespace ms::tools::msprof
