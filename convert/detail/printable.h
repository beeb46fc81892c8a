// core/printable.h, as convert's readers name it.
#pragma once

#include "core/printable.h"

namespace ms::convert::detail {

using core::printable;

}  // namespace ms::convert::detail
