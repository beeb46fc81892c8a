// msckpt families: the families of Hugging Face models that convert knows.
#pragma once

#include "tools/msckpt/verb.h"

namespace ms::tools::msckpt {

Verb add_families(CLI::App& app);

}  // namespace ms::tools::msckpt
