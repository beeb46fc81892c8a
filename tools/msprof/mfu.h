// msprof mfu: FLOP/s, and the share of the peak.
#pragma once

#include <memory>

#include "tools/msprof/verb.h"

namespace ms::tools::msprof {

std::unique_ptr<Verb> mfu_verb();

}  // namespace ms::tools::msprof
