// The flags for reading a checkpoint of a foreign format: of inspect, diff, plan, verify, merge and reshard.
#pragma once

#include "convert/detect.h"
#include "tools/msckpt/verb.h"

namespace ms::tools::msckpt {

void add_source_flags(CLI::App& verb, convert::OpenOptions& options);

}  // namespace ms::tools::msckpt
