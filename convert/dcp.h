// A plain checkpoint of torch.distributed.checkpoint (DCP), as FSDP users save it of a Hugging Face model: a
// ckpt::Source of weights and AdamW's moments.
//
// Keys are what the program called things: {"model": model.state_dict(), "optim": ...} makes "model.model.norm.weight"
// and "optim.state.model.norm.weight.exp_avg". What stands before the family's own names is found by looking for the
// embedding, and what wrappers put into names (_orig_mod., _fsdp_wrapped_module., _checkpoint_wrapped_module.) is left
// out.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "ckpt/source.h"
#include "convert/hf_named.h"

namespace ms::convert {

// "a .metadata of PyTorch DCP"; empty if `folder` is none, or Megatron's.
std::string dcp_sign(const std::string& folder);

// What was not simply taken over is appended to `decisions`, one sentence each. Throws kNotFound (no config.json),
// kCorruptData (a tensor or a part of one is missing, damaged, or of another shape than config.json says; the embedding
// under several names), kUnsupported (no tensor of this family; weights of a type we do not compute with).
std::unique_ptr<ckpt::Source> open_dcp(const std::string& folder, const HfNamedOptions& options,
                                       std::vector<std::string>& decisions);

}  // namespace ms::convert
