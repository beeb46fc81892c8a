// msprof overlap: which classes of device work run at the same time.
#pragma once

#include <memory>

#include "tools/msprof/verb.h"

namespace ms::tools::msprof {

std::unique_ptr<Verb> overlap_verb();

}  // namespace ms::tools::msprof
