// Python pickles, as convert's readers name them: core/io/pickle.h.
#pragma once

#include "core/io/pickle.h"

namespace ms::convert {

using core::Pickle;
using core::PickleKind;
using core::PickleValue;

}  // namespace ms::convert
