// Translates the --ckpt-*, --save-* and --non-persistent-* flags into the options of ckpt::Saver and ckpt::LocalTier.
#pragma once

#include "ckpt/local.h"
#include "ckpt/writer.h"
#include "core/layout/rank_grid.h"
#include "train/config.h"

namespace ms::train {

// root, the kind of writing, who writes for whom, and the retention; the caller adds memory, threads and who it is.
// Throws kInvalidArgument for a flag that is none of its values.
ckpt::Saver::Options saver_options(const CheckpointConfig& config, const layout::RankGrid& grid);

// The same for --non-persistent-ckpt-type local.
ckpt::LocalTier::Options local_options(const CheckpointConfig& config, const layout::RankGrid& grid);

}  // namespace ms::train
