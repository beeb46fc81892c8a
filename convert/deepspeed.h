// Opens what DeepSpeed's engine saved of a Hugging Face model under ZeRO 1, 2 or 3, or a universal checkpoint, as a
// ckpt::Source of weights, fp32 masters and Adam's moments.
//
//   ROOT/latest                                                        a tag: "global_step100"
//   ROOT/TAG/mp_rank_00_model_states.pt                                ZeRO 1 and 2: the weights
//   ROOT/TAG/zero_pp_rank_D_mp_rank_00_model_states.pt                 ZeRO 3: shapes of the weights, and frozen
//   weights ROOT/TAG/[bf16_]zero_pp_rank_D_mp_rank_00_optim_states.pt          per data-parallel rank: flat partitions
//
//   ROOT/latest_universal                                              a tag
//   ROOT/TAG/mp_rank_00_model_states.pt, or that of ZeRO 3's first rank
//   ROOT/TAG/zero/NAME/{fp32,exp_avg,exp_avg_sq,step}.pt               per weight
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

// Returns the entry that identifies such a checkpoint: "latest", "mp_rank_00_model_states.pt"; empty if there is none.
std::string deepspeed_sign(const std::string& folder);

// path: ROOT, in which `latest` names the tag to read, or ROOT/TAG. Appends to `decisions` one sentence for each thing
// that was not simply copied.
//
// Throws kNotFound (no config.json, no files), kCorruptData (ranks are missing, partitions do not match param_shapes, a
// tensor is missing or differs in shape from config.json), kUnsupported (tensor- or pipeline-parallel parts, experts,
// another optimizer than Adam, optimizer state with frozen weights unless it is dropped).
std::unique_ptr<ckpt::Source> open_deepspeed(const std::string& path, const HfNamedOptions& options,
                                             std::vector<std::string>& decisions);

// The same for a universal checkpoint. path: ROOT, in which `latest_universal` names the tag to read, or ROOT/TAG.
std::string universal_sign(const std::string& folder);
std::unique_ptr<ckpt::Source> open_universal(const std::string& path, const HfNamedOptions& options,
                                             std::vector<std::string>& decisions);

}  // namespace ms::convert
