// msprof kernels: which kernels take the time.
#pragma once

#include <memory>

#include "tools/msprof/verb.h"

namespace ms::tools::msprof {

std::unique_ptr<Verb> kernels_verb();

}  // namespace ms::tools::msprof
