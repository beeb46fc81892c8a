// The files of FSDP's ranks (torch/rank_files.h) of a Hugging Face model whose config.json is known, as a ckpt::Source
// with a family: for results that are named or cut as the model says (ms, mg, dist, ucp, gguf).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "ckpt/source.h"
#include "convert/hf_named.h"

namespace ms::convert {

// Adam's moments, step, groups and the scheduler of the learning rate come along where optim_.. and extra_state_.. hold
// them; that they do not is said in `decisions`, as is all else that is not simply taken over. Throws kNotFound (no
// config.json), what read_rank_files throws, kCorruptData (a tensor is missing or of another shape than config.json
// says), kUnsupported (a tensor that the family does not have, such as LoRA's; optimizer state that cannot be
// attributed to parameters, unless options.drop_optimizer).
std::unique_ptr<ckpt::Source> open_rank_files(const std::string& folder, const HfNamedOptions& options,
                                              std::vector<std::string>& decisions);

}  // namespace ms::convert
