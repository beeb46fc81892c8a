// Writes a plain PyTorch DCP checkpoint, as FSDP2 users save and load one:
//
//   dcp.save({"model": model_state, "optim": optimizer_state}, ...)   of torch.distributed.checkpoint.state_dict's
//                                                                     get_state_dict
//
// Weights have Hugging Face's names. AdamW's moments and step are stored under the names of the weights, in the
// source's parameter groups, whose settings are stored both by position and by name (flatten_optimizer_state_dict).
// Tensors are cut along the first axis, as by FSDP. dcp.h reads the result.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ckpt/shard_table.h"
#include "ckpt/sink.h"
#include "convert/placed_result.h"
#include "core/io/json.h"

namespace ms::convert {

struct DcpTargetOptions {
  std::string folder;          // created by the sink
  int data_parallel_size = 1;  // number of ranks that each tensor is cut for; one file per rank
  nlohmann::json config;       // written as config.json; names the family
  bool with_optimizer = false;
  WriteOptions writing;
};

struct DcpTarget {
  ckpt::ShardTable shards;
  std::unique_ptr<ckpt::Sink> sink;
};

// dtype: of a canonical parameter. FSDP stores no separate master weights, so fp32 weights are filled from the source's
// masters, if it has them. Appends to `decisions` what is not simply copied. Throws kInvalidArgument (the folder
// exists), kUnsupported (optimizer state that is not Adam's, or does not cover all parameters).
DcpTarget make_dcp_target(const ckpt::Source& source, const DcpTargetOptions& options,
                          const std::function<core::DType(const std::string& key)>& dtype,
                          std::vector<std::string>& decisions);

}  // namespace ms::convert
