// mstrain --benchmark: the time of each operator of the configured model on this rank, and its share of what the
// machine can do.
//
// It runs real steps of the trainer's own modules on random tokens and freshly drawn weights, and times every operator
// they call. The list is therefore what a step does, with its shapes, dtypes, chunks, recomputation and layout, and
// needs no upkeep when the model changes. No data set or checkpoint is read, no file is written.
#pragma once

#include <string>
#include <vector>

#include "core/comm/communicator.h"
#include "core/io/json.h"
#include "core/thread_pool.h"
#include "train/config.h"
#include "train/loop/ceilings.h"
#include "train/loop/operator_times.h"

namespace ms::train {

struct BenchmarkReport {
  struct Row {
    OperatorRow work;
    std::string layer;  // of a product with a weight: "linear_qkv", "output_layer"; where shapes agree, joined by '/'
  };
  std::vector<Row> rows;  // in the order in which a step first calls them
  Ceilings ceilings;
  int64_t steps = 0;         // that were measured, after one that was not
  double step_seconds = 0;   // median
  double other_seconds = 0;  // of that outside operators: communication, waits, allocation
  int64_t num_microbatches = 0, micro_batch_size = 0, seq_length = 0;
  int threads = 0;
  core::DType dtype = core::DType::kFp32;
  int signal = 0;  // that ended it early; the rest is empty then

  // Share of the ceiling: of multiply-adds where FLOPs are counted, else of memory. Above 1 where operands stay in
  // caches, or where bf16 products run on units that fp32 has not.
  double share(const OperatorRow& row) const;
  std::string table() const;
  nlohmann::json json() const;
};

// Collective. At most 20 steps and at least one, about 10 s. config: as parsed; iterations, learning rate and what is
// read or saved do not matter. Throws on all ranks together, as the trainer does for its configuration.
BenchmarkReport run_benchmark(TrainerConfig config, core::Endpoint& endpoint, core::ThreadPool& pool);

}  // namespace ms::train
