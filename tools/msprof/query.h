// msprof query: runs an SQL query over the traces.
#pragma once

#include <memory>

#include "tools/msprof/verb.h"

namespace ms::tools::msprof {

std::unique_ptr<Verb> query_verb();

}  // namespace ms::tools::msprof
