// msprof pipeline: stages and bubbles.
#pragma once

#include <memory>

#include "tools/msprof/verb.h"

namespace ms::tools::msprof {

std::unique_ptr<Verb> pipeline_verb();

}  // namespace ms::tools::msprof
