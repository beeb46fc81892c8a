// msprof slice: writes a part of a trace as a trace.
#pragma once

#include <memory>

#include "tools/msprof/verb.h"

namespace ms::tools::msprof {

std::unique_ptr<Verb> slice_verb();

}  // namespace ms::tools::msprof
