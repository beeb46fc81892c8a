// Defines which options of a conversion apply to which formats.
#pragma once

#include "convert/convert_options.h"

namespace ms::convert {

// Throws kInvalidArgument for an option that neither the source's nor the target's format uses, naming the flag and the
// formats that use it: no option is parsed and ignored.
void refuse_options_without_effect(const ConvertOptions& options, Format from, Format to);

}  // namespace ms::convert
