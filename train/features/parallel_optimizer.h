// MindSpore's optimizer parallelism, hsdp(shard_size, threshold, optimizer_level), as another name for the stages of
// ZeRO: of the data-parallel ranks so many divide parameters that are not small (train/optim/bucket.h).
// Sources: mindspore.parallel.auto_parallel.AutoParallel.hsdp; enable_parallel_optimizer and parallel_optimizer_config
// of mindspore.set_auto_parallel_context.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "core/dtype.h"
#include "train/features/feature.h"

namespace ms::train {

struct ModelParallelConfig;

struct ParallelOptimizerConfig {
  bool enable_parallel_optimizer = false;
  std::string optimizer_level;
  std::optional<int64_t> parallel_optimizer_threshold;

  template <class Visitor>
  static void fields(Visitor&& field) {
    using C = ParallelOptimizerConfig;
    field("enable_parallel_optimizer", &C::enable_parallel_optimizer,
          "MindSpore's word for ZeRO: divide what --optimizer-level says over --optimizer-weight-shard-size "
          "data-parallel ranks, of parameters from --parallel-optimizer-threshold KiB on");
    field("optimizer_level", &C::optimizer_level,
          "With --enable-parallel-optimizer: level1 (ZeRO-1: master weights and optimizer state; the default), level2 "
          "(ZeRO-2: gradients, too) or level3 (ZeRO-3: weights, too)");
    field(
        "parallel_optimizer_threshold", &C::parallel_optimizer_threshold,
        "With --use-distributed-optimizer: parameters of which a rank holds fewer KiB are not divided: all ranks keep "
        "their state, and their gradients are summed in one message; 0: none. With --enable-parallel-optimizer the "
        "default is 64, as MindSpore's");
  }
};

// Sharding::least_divided_elems of parameters of that type.
int64_t least_divided_elems(const ModelParallelConfig& config, core::DType dtype);

Feature parallel_optimizer_feature();

}  // namespace ms::train
