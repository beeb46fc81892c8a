// msckpt families: lists the Hugging Face model families that convert supports.
#pragma once

#include "tools/msckpt/verb.h"

namespace ms::tools::msckpt {

Verb add_families(CLI::App& app);

}  // namespace ms::tools::msckpt
