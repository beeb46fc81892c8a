// Opens FSDP rank files (torch/rank_files.h) of a Hugging Face model with a known config.json as a ckpt::Source with a
// family, for targets that depend on the model (ms, mg, dist, ucp, gguf).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "ckpt/source.h"
#include "convert/hf_named.h"

namespace ms::convert {

// Includes Adam's moments, step, groups and the learning rate scheduler if optim_.. and extra_state_.. contain them;
// anything missing or not simply copied is noted in `decisions`. Throws kNotFound (no config.json), what
// read_rank_files throws, kCorruptData (a tensor is missing or differs in shape from config.json), kUnsupported (a
// tensor that the family does not have, such as LoRA's; optimizer state that cannot be assigned to parameters, unless
// options.drop_optimizer).
std::unique_ptr<ckpt::Source> open_rank_files(const std::string& folder, const HfNamedOptions& options,
                                              std::vector<std::string>& decisions);

}  // namespace ms::convert
