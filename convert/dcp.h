// Opens a plain checkpoint of torch.distributed.checkpoint (DCP), as FSDP users save a Hugging Face model, as a
// ckpt::Source of weights and AdamW's moments.
//
// Keys depend on the saving program: {"model": model.state_dict(), "optim": ...} makes "model.model.norm.weight" and
// "optim.state.model.norm.weight.exp_avg". The prefix before the family's own names is found by looking for the
// embedding. Parts that wrappers insert (_orig_mod., _fsdp_wrapped_module., _checkpoint_wrapped_module.) are removed.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "ckpt/source.h"
#include "convert/hf_named.h"

namespace ms::convert {

// Returns "a .metadata of PyTorch DCP"; empty if `folder` is not such a checkpoint, or is Megatron's.
std::string dcp_sign(const std::string& folder);

// Appends to `decisions` one sentence for each thing that was not simply copied. Throws kNotFound (no config.json),
// kCorruptData (a tensor or a part of one is missing, damaged, or differs in shape from config.json; several candidates
// for the embedding), kUnsupported (no tensor of this family; weights of a type that cannot be converted).
std::unique_ptr<ckpt::Source> open_dcp(const std::string& folder, const HfNamedOptions& options,
                                       std::vector<std::string>& decisions);

}  // namespace ms::convert
