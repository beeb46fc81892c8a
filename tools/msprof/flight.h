// msprof flight: which rank makes a run hang, from the ranks' flight recorders.
#pragma once

#include <memory>

#include "tools/msprof/verb.h"

namespace ms::tools::msprof {

std::unique_ptr<Verb> flight_verb();

}  // namespace ms::tools::msprof
