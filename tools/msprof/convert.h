// msprof convert: writes traces in another format.
#pragma once

#include <memory>

#include "tools/msprof/verb.h"

namespace ms::tools::msprof {

std::unique_ptr<Verb> convert_verb();

}  // namespace ms::tools::msprof
