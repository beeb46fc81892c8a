// msckpt convert: converts a checkpoint from one format to another (convert/convert.h).
#pragma once

#include "tools/msckpt/verb.h"

namespace ms::tools::msckpt {

Verb add_convert(CLI::App& app);

}  // namespace ms::tools::msckpt
