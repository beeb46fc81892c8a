// A DCP checkpoint as a set of named tensors, whatever model it holds: shards as they were saved.
#pragma once

#include <string>
#include <vector>

#include "convert/named_source.h"

namespace ms::convert {

// Weights are called as in the state_dict that was saved: the dictionaries that all of them have in common ("model")
// are left out of the names. Adam's moments are of their roles under the names of the weights, other optimizer state of
// role kBuffer under its whole path. What is no tensor is counted in `decisions`. Throws as DcpReader.
NamedShards read_dcp_named(const std::string& folder, bool drop_optimizer, std::vector<std::string>& decisions);

}  // namespace ms::convert
