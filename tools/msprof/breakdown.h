// msprof breakdown: where device time goes.
#pragma once

#include <memory>

#include "tools/msprof/verb.h"

namespace ms::tools::msprof {

std::unique_ptr<Verb> breakdown_verb();

}  // namespace ms::tools::msprof
