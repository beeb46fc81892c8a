// A DCP checkpoint as a set of named tensors, whatever model it holds: shards as they were saved.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "convert/named_source.h"
#include "convert/torch/dcp_reader.h"

namespace ms::convert {

// Weights are called as in the state_dict that was saved: the dictionaries that all of them have in common ("model")
// are left out of the names. Adam's moments are of their roles under the names of the weights, other optimizer state of
// role kBuffer under its whole path. What is no tensor is counted in `decisions`. Throws as DcpReader.
NamedShards read_dcp_named(const std::string& folder, bool drop_optimizer, std::vector<std::string>& decisions);

// What another DCP checkpoint needs to hold the same entries under the same keys.
struct DcpEntries {
  struct Place {
    std::string key;
    DcpPath path;
  };
  struct Object {  // no tensor: a setting of the optimizer, the state of a scheduler, a counter
    Place place;
    DcpReader::RawObject content;
  };
  std::map<std::pair<core::TensorRole, std::string>, Place> tensors;  // by what read_dcp_named calls them
  std::vector<Object> objects;
};
// with_settings: also the optimizer's param_groups. Throws as DcpReader, and kCorruptData for objects of more than 256
// MiB together.
DcpEntries read_dcp_entries(const std::string& folder, bool with_settings);

}  // namespace ms::convert
