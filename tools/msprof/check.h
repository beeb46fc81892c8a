// msprof check: thresholds for pipelines.
#pragma once

#include <memory>

#include "tools/msprof/verb.h"

namespace ms::tools::msprof {

std::unique_ptr<Verb> check_verb();

}  // namespace ms::tools::msprof
