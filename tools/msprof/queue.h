// msprof queue: how full the queue of each stream was.
#pragma once

#include <memory>

#include "tools/msprof/verb.h"

namespace ms::tools::msprof {

std::unique_ptr<Verb> queue_verb();

}  // namespace ms::tools::msprof
