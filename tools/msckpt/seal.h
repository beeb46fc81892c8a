// msckpt seal: writes checksums of a checkpoint of any format beside its data (ckpt/seal.h).
#pragma once

#include "tools/msckpt/verb.h"

namespace ms::tools::msckpt {

Verb add_seal(CLI::App& app);

}  // namespace ms::tools::msckpt
