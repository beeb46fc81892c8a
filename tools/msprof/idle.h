// msprof idle: why each stream waits.
#pragma once

#include <memory>

#include "tools/msprof/verb.h"

namespace ms::tools::msprof {

std::unique_ptr<Verb> idle_verb();

}  // namespace ms::tools::msprof
