// Micro-batches of random tokens, for what measures the model without data.
#pragma once

#include <cstdint>
#include <vector>

#include "train/config.h"
#include "train/data/sampler.h"

namespace ms::train {

// rank: decides which tokens, together with --seed.
std::vector<Microbatch> random_batch(const TrainerConfig& config, int64_t micro_batch_size, int64_t num_microbatches,
                                     int rank);

}  // namespace ms::train
