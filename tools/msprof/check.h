// msprof check: thresholds for CI pipelines; exit code 10 if one is exceeded.
#pragma once

#include <memory>

#include "tools/msprof/verb.h"

namespace ms::tools::msprof {

std::unique_ptr<Verb> check_verb();

}  // namespace ms::tools::msprof
