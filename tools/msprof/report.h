// msprof report: one HTML file with all results.
#pragma once

#include <memory>

#include "tools/msprof/verb.h"

namespace ms::tools::msprof {

std::unique_ptr<Verb> report_verb();

}  // namespace ms::tools::msprof
