// Formats a proof as text and as JSON.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "ckpt/prove.h"

namespace ms::ckpt {

// {"ok": false, "faults": [..], "summary": [..], "dropped": [..], "notes": [..], "elements": 1, "tensors": [..]}; each
// tensor has its logical hash and statistics.
nlohmann::json proof_json(const ProofReport& report);

// The statistics; tensors that differ only in layer and expert share a line:
// "decoder.layers.#.mlp.linear_fc2.weight (param): 32 tensors, rms 0.0198 to 0.0204, -0.11 to 0.12, 0 zeros".
std::vector<std::string> statistics_lines(const ProofReport& report);

}  // namespace ms::ckpt
