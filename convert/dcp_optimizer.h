// Reads what a DCP checkpoint stores about an optimizer besides moments: param_groups, steps, and a torch.optim
// scheduler.
//
// torch.distributed.checkpoint.state_dict writes groups by position, as "optim.param_groups.0.lr" with the parameter
// names in "optim.param_groups.0.params", or with flatten_optimizer_state_dict by name, as
// "optim.param_groups.model.norm.weight.lr".
#pragma once

#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "convert/optimizer_groups.h"
#include "convert/torch/dcp_reader.h"
#include "core/io/json.h"

namespace ms::convert {

struct DcpOptimizer {
  std::vector<NamedGroup> groups;  // by position; groups by name are merged if their settings are equal, in the order
                                   // of `names`
  std::set<std::string> used;      // keys of the checkpoint that were read
};

// optimizer: the prefix before the names of weights in the optimizer's state, "optim.state."; names: the family's, in
// model order. Steps come from the state if groups have none. Throws kUnsupported if parameters of one group have
// different steps.
DcpOptimizer read_dcp_optimizer(const DcpReader& reader, std::string_view optimizer,
                                std::span<const std::string> names);

// Reads the state of a torch.optim scheduler saved in the same checkpoint: {"key": "lr_scheduler", "state": {..}}.
// Returns nullopt if there is none, or if JSON cannot hold it, which is reported. Adds the keys that were read to
// `used`.
std::optional<nlohmann::json> read_dcp_scheduler(const DcpReader& reader, std::set<std::string>& used,
                                                 std::vector<std::string>& decisions);

// Returns the element of a scalar tensor, if it is a number.
std::optional<double> read_dcp_scalar(const DcpReader& reader, const DcpReader::Tensor& tensor);

}  // namespace ms::convert
