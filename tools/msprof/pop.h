// msprof pop: POP efficiencies.
#pragma once

#include <memory>

#include "tools/msprof/verb.h"

namespace ms::tools::msprof {

std::unique_ptr<Verb> pop_verb();

}  // namespace ms::tools::msprof
