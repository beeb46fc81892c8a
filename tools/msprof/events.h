// msprof events: events as CSV.
#pragma once

#include <memory>

#include "tools/msprof/verb.h"

namespace ms::tools::msprof {

std::unique_ptr<Verb> events_verb();

}  // namespace ms::tools::msprof
