// msprof steps: the step table, in the columns of the Ascend cluster tool or of TensorBoard.
#pragma once

#include <memory>

#include "tools/msprof/verb.h"

namespace ms::tools::msprof {

std::unique_ptr<Verb> steps_verb();

}  // namespace ms::tools::msprof
