// How long the parts of the model take on the ranks of this run, which --automated-pipeline divides into stages.
//
// Every rank runs the run's own modules on its own groups, threads and dtype, on random tokens and freshly drawn
// weights: one layer of each kind (layers with the same window, with or without rotary embedding, are of one kind), on
// the first stage the embedding too, on the last one the loss. All ranks measure at the same time, so that cores and
// memory that they share are as busy as in a step; the communication of tensor parallelism is part of the times,
// messages between stages are not. With --swap-attention a layer takes no less than the tier of --swap-dir needs for
// what it moves, at the speed with which all ranks write and read there together.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/layout/pipeline_search.h"
#include "core/thread_pool.h"
#include "train/config.h"
#include "train/parallel/process_groups.h"

namespace ms::train {

// Collective. The times for each of these micro-batch sizes, the same on all ranks: the least of a rank over a few
// repetitions, means over the ranks. Their spread: by how much the sums of the least of every other repetition differ,
// 0.01 to 0.1. About 10 s at most for each size, unless two repetitions take longer. config:
// resolved and valid. The memory that it takes is returned before it ends: weights, gradients and optimizer state of
// the parts, and activations of one layer, or of the loss. A signal to end shortens it. What cannot be built is thrown
// on all ranks together.
std::vector<layout::ModelTimes> measure_parts(const TrainerConfig& config, ProcessGroups& groups,
                                              core::ThreadPool& pool, std::span<const int64_t> micro_batch_sizes);

}  // namespace ms::train
