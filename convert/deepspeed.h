// What DeepSpeed's engine saved of a Hugging Face model under ZeRO 1, 2 or 3: a ckpt::Source of weights, fp32 masters
// and Adam's moments.
//
//   ROOT/latest                                                        a tag: "global_step100"
//   ROOT/TAG/mp_rank_00_model_states.pt                                ZeRO 1 and 2: the weights
//   ROOT/TAG/zero_pp_rank_D_mp_rank_00_model_states.pt                 ZeRO 3: their shapes, and frozen ones
//   ROOT/TAG/[bf16_]zero_pp_rank_D_mp_rank_00_optim_states.pt          of each data-parallel rank: flat partitions
//
//   ROOT/latest_universal                                              a tag
//   ROOT/TAG/mp_rank_00_model_states.pt, or that of ZeRO 3's first rank
//   ROOT/TAG/zero/NAME/{fp32,exp_avg,exp_avg_sq,step}.pt               of each weight
//
// Sources: DeepSpeed's deepspeed/runtime/engine.py (_save_checkpoint, _save_zero_checkpoint, _get_zero_param_shapes),
// deepspeed/runtime/zero/stage_1_and_2.py and stage3.py (state_dict), and its own reader,
// deepspeed/utils/zero_to_fp32.py.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "ckpt/source.h"
#include "convert/hf_named.h"

namespace ms::convert {

// What in a folder says that it is one: "latest", "mp_rank_00_model_states.pt"; empty if nothing does.
std::string deepspeed_sign(const std::string& folder);

// path: ROOT, of which the tag that `latest` names is read, or ROOT/TAG. What was not simply taken over is appended to
// `decisions`, one sentence each.
//
// Throws kNotFound (no config.json, no files), kCorruptData (ranks are missing, partitions do not hold what
// param_shapes say, a tensor is missing or has another shape than config.json says), kUnsupported (tensor or pipeline
// parallel parts, experts, another optimizer than Adam, state of a frozen weight, unless it is dropped).
std::unique_ptr<ckpt::Source> open_deepspeed(const std::string& path, const HfNamedOptions& options,
                                             std::vector<std::string>& decisions);

// The same of a universal checkpoint; path: ROOT, of which the tag that `latest_universal` names is read, or ROOT/TAG.
std::string universal_sign(const std::string& folder);
std::unique_ptr<ckpt::Source> open_universal(const std::string& path, const HfNamedOptions& options,
                                             std::vector<std::string>& decisions);

}  // namespace ms::convert
