// A plain checkpoint of PyTorch DCP as the target of a conversion, as FSDP2 users save and load one:
//
//   dcp.save({"model": model_state, "optim": optimizer_state}, ...)   of torch.distributed.checkpoint.state_dict's
//                                                                     get_state_dict
//
// Weights have Hugging Face's names; AdamW's moments and step stand under the names of the weights, in the source's
// groups of parameters, whose settings are there by position and by name (flatten_optimizer_state_dict). Cut as FSDP
// does it, along the first axis. dcp.h reads it.
#pragma once

#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "ckpt/shard_table.h"
#include "ckpt/sink.h"
#include "convert/placed_result.h"

namespace ms::convert {

struct DcpTargetOptions {
  std::string folder;          // to be made
  int data_parallel_size = 1;  // ranks that each tensor is cut for; a file for each
  nlohmann::json config;       // config.json, which goes beside, and says the family
  bool with_optimizer = false;
  WriteOptions writing;
};

struct DcpTarget {
  ckpt::ShardTable shards;
  std::unique_ptr<ckpt::Sink> sink;
};

// dtype: of a canonical parameter; FSDP has no master weights besides, so where the source has them, fp32 weights are
// filled from those. Appends to `decisions` what is not simply copied. Throws kInvalidArgument (a folder that is
// there), kUnsupported (optimizer state that is not Adam's, or not of all parameters).
DcpTarget make_dcp_target(const ckpt::Source& source, const DcpTargetOptions& options,
                          const std::function<core::DType(const std::string& key)>& dtype,
                          std::vector<std::string>& decisions);

}  // namespace ms::convert
