// How verbs print a proof (ckpt/prove.h).
#pragma once

#include <string>

#include "ckpt/prove.h"

namespace ms::tools::msckpt {

// Logs what was proved about the checkpoint at `path`: faults as errors, then what was dropped, what looks odd, and the
// statistics of its tensors.
void log_proof(const std::string& path, const ckpt::ProofReport& report);

}  // namespace ms::tools::msckpt
