// msprof experts: how evenly tokens are spread over experts and ranks, and what unevenness costs.
#pragma once

#include <memory>

#include "tools/msprof/verb.h"

namespace ms::tools::msprof {

std::unique_ptr<Verb> experts_verb();

}  // namespace ms::tools::msprof
