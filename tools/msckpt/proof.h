// Logs a proof (ckpt/prove.h).
#pragma once

#include <string>

#include "ckpt/prove.h"

namespace ms::tools::msckpt {

// Logs a proof about the checkpoint at `path`: faults as errors, then dropped tensors, unusual statistics, and the
// statistics of all tensors.
void log_proof(const std::string& path, const ckpt::ProofReport& report);

}  // namespace ms::tools::msckpt
