// msprof info: contents of the traces.
#pragma once

#include <memory>

#include "tools/msprof/verb.h"

namespace ms::tools::msprof {

std::unique_ptr<Verb> info_verb();

}  // namespace ms::tools::msprof
