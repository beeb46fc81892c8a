// Reads a DCP checkpoint of any model as a set of named tensors, with the shards as they were saved.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "convert/named_source.h"
#include "convert/torch/dcp_reader.h"

namespace ms::convert {

// Weights keep the names of the saved state_dict: the outer dictionaries that all of them share ("model") are removed.
// Adam's moments get their roles under the names of the weights; other optimizer state gets role kBuffer under its full
// path. Entries that are not tensors are counted in `decisions`. Throws as DcpReader.
NamedShards read_dcp_named(const std::string& folder, bool drop_optimizer, std::vector<std::string>& decisions);

// What is needed to write another DCP checkpoint with the same entries under the same keys.
struct DcpEntries {
  struct Place {
    std::string key;
    DcpPath path;
  };
  struct Object {  // not a tensor: an optimizer setting, scheduler state, a counter
    Place place;
    DcpReader::RawObject content;
  };
  std::map<std::pair<core::TensorRole, std::string>, Place> tensors;  // by role and name in read_dcp_named
  std::vector<Object> objects;
};
// with_settings: include the optimizer's param_groups. Throws as DcpReader, and kCorruptData if the objects together
// exceed 256 MiB.
DcpEntries read_dcp_entries(const std::string& folder, bool with_settings);

}  // namespace ms::convert
