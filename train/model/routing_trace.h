// Writes what routers choose, as Megatron does (megatron/core/transformer/moe/router_trace.py), one line for each layer
// and micro-batch of this rank:
//
//   {"step": 0, "stage": "pre_dispatch", "block": "decoder", "layer": 3, "rank": 0, "num_tokens": 2, "topk": 2,
//    "top_indices": [[1, 4], [0, 6]]}
//
// step: completed iterations before this one. layer: counted over all pipeline stages. The experts of a token ascend.
// Choices beyond a capacity are in it, too. With tensor parallelism each rank has its part of the tokens.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/io/file.h"
#include "core/tensor.h"
#include "core/trace/expert_names.h"

namespace ms::train {

class RoutingTrace {
 public:
  // Creates the folder, and the file anew. Throws kIo.
  RoutingTrace(const std::string& folder, int rank, std::optional<int64_t> max_steps);

  // experts: int32 [tokens, k]. padding [tokens]: 1 for a token that is left out; empty: none is. Lines are kept until
  // end_step. Does nothing after the last step.
  void add(const core::trace::ExpertLayer& layer, const core::TensorView& experts,
           std::span<const uint8_t> padding = {});
  // Writes the lines of this step. A write that fails ends the trace with a warning, not the run.
  void end_step(int64_t step);

 private:
  struct Record {
    core::trace::ExpertLayer layer;
    int64_t tokens = 0, topk = 0;
    std::vector<int32_t> experts;
  };
  void write_line(int64_t step, const Record& record);

  int rank_;
  int64_t steps_left_;  // INT64_MAX: no limit
  core::File file_;
  int64_t size_bytes_ = 0;
  std::vector<Record> records_;  // of the step
  std::string text_;
};

}  // namespace ms::train
