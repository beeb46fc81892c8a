// The masks of samples that a run was trained with, which its checkpoints note: weights do not tell, and a run that
// continues may have been given others.
#pragma once

#include <string>

#include "ckpt/source.h"
#include "core/io/json.h"
#include "train/config.h"

namespace ms::train {

// Notes in a checkpoint's `common` what its configuration does not say: the cells of --attention-mask-grid.
void note_mask(const TrainerConfig& config, nlohmann::json& common);

// In what the masks differ: "--prefix-length is 4 but the checkpoint was made with 8; ..". Empty: in nothing, or of a
// checkpoint that mstrain has not written. config: resolved.
std::string mask_differences(const ckpt::CheckpointInfo& info, const TrainerConfig& config);

// One warning of them. No error: flags of data may change between runs, and masks may be meant to.
void warn_of_other_mask(const ckpt::CheckpointInfo& info, const TrainerConfig& config);

}  // namespace ms::train
