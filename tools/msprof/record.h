// msprof record: runs a program and records it.
#pragma once

#include <memory>

#include "tools/msprof/verb.h"

namespace ms::tools::msprof {

std::unique_ptr<Verb> record_verb();

}  // namespace ms::tools::msprof
