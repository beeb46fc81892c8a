// What a DCP checkpoint says of an optimizer beside moments: its param_groups, steps, and a scheduler of torch.optim.
//
// torch.distributed.checkpoint.state_dict writes groups by position, "optim.param_groups.0.lr" with the names of the
// parameters in "optim.param_groups.0.params", or with flatten_optimizer_state_dict by name,
// "optim.param_groups.model.norm.weight.lr".
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "convert/optimizer_groups.h"
#include "convert/torch/dcp_reader.h"

namespace ms::convert {

struct DcpOptimizer {
  std::vector<NamedGroup> groups;  // by position; of groups by name, those of equal settings, in the order of `names`
  std::set<std::string> used;      // keys of the checkpoint that they were read from
};

// optimizer: what stands before the names of weights in the optimizer's state, "optim.state."; names: of the family, in
// the order of the model. Steps are those of the state where groups state none. Throws kUnsupported if parameters of
// one group count other steps.
DcpOptimizer read_dcp_optimizer(const DcpReader& reader, std::string_view optimizer,
                                std::span<const std::string> names);

// The state of a scheduler of torch.optim that was saved beside: {"key": "lr_scheduler", "state": {..}}. Nothing if
// there is none, or if it holds what JSON cannot, which is said. The keys that were read are added to `used`.
std::optional<nlohmann::json> read_dcp_scheduler(const DcpReader& reader, std::set<std::string>& used,
                                                 std::vector<std::string>& decisions);

// The one element of a scalar tensor, if it is a number.
std::optional<double> read_dcp_scalar(const DcpReader& reader, const DcpReader::Tensor& tensor);

}  // namespace ms::convert
