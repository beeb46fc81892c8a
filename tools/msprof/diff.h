// msprof diff: compares two runs.
#pragma once

#include <memory>

#include "tools/msprof/verb.h"

namespace ms::tools::msprof {

std::unique_ptr<Verb> diff_verb();

}  // namespace ms::tools::msprof
