// msprof launch: delays between launches and their kernels.
#pragma once

#include <memory>

#include "tools/msprof/verb.h"

namespace ms::tools::msprof {

std::unique_ptr<Verb> launch_verb();

}  // namespace ms::tools::msprof
