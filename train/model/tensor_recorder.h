// Collects what modules compute in a step, as boxes of whole tensors (core/layout/recorded_tensors.h), whatever the
// layout: sequence and context parallelism cut rows, tensor parallelism columns, data parallelism and micro-batches
// samples.
//
// RankState refers to the recorder of a rank, if the run has one; modules say what they have computed where they have
// it. Between steps, and in steps that are not recorded, that costs a comparison.
#pragma once

#include <cstdint>
#include <regex>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/sharded_tensor.h"
#include "core/tensor.h"
#include "train/data/sampler.h"
#include "train/rank_state.h"

namespace ms::train {

class TensorRecorder {
 public:
  // Where this rank's part of a tensor is.
  enum class Split : uint8_t {
    kRows,          // positions, with sequence parallelism; without it all TP ranks have the same
    kColumns,       // equal parts of the columns, in the order of the TP ranks
    kGatedColumns,  // the same of two halves, [gate | up]
    kVocabulary,    // the same of the vocabulary's columns, without padding
  };
  struct Place {
    int tp_size = 1, tp_rank = 0;
    bool sequence_parallel = false;
    int64_t vocab_size = 0;
  };
  struct Recorded {
    core::ShardedTensor meta;
    std::vector<std::byte> data;
  };
  struct Step {
    bool outputs = false, gradients = false;  // of outputs
    int64_t first_sample = 0, samples = 0;    // of the global batch
    double gradient_factor = 1;               // 1 / the loss scale: what recorded gradients are multiplied by
    double perturbation = 0;                  // of the embedding's output; 0: none
  };

  // filter: of the names that are recorded.
  TensorRecorder(Place place, std::regex filter) : place_(place), filter_(std::move(filter)) {}

  // Begins a step of which something is recorded.
  void begin(const Step& step);
  // Ends it, and hands over what has been recorded.
  std::vector<Recorded> take();
  // The micro-batch to which what follows belongs.
  void enter(const Microbatch& microbatch) { microbatch_ = &microbatch; }

  // x: [seq', batch, ..], the last axes are columns. The module's name is prefix and name together. What is computed
  // again is not recorded again.
  void output(std::string_view prefix, std::string_view name, const core::TensorView& x, Split split) {
    if (step_.outputs) record(core::cat(prefix, name, ":output"), x, split);
  }
  void gradient(std::string_view prefix, std::string_view name, const core::TensorView& x, Split split) {
    if (step_.gradients) record(core::cat(prefix, name, ":grad"), x, split, step_.gradient_factor);
  }
  bool wants(std::string_view name) const { return std::regex_search(name.begin(), name.end(), filter_); }

  // Multiplies each element of the embedding's output, [seq', batch, hidden], by 1 + or - the step's perturbation; the
  // sign is a function of sample, position and column, so that it is the same in every layout.
  void perturb(const core::TensorView& hidden) const;

 private:
  // factor: in fp32 unless it is 1, since fp16 has no room for small gradients: that is why they are scaled.
  void record(std::string name, const core::TensorView& x, Split split, double factor = 1);
  // x: rows of the whole that follow one another.
  void add_columns(core::ShardedTensor& whole, const core::TensorView& x, Split split);
  void add(const core::ShardedTensor& whole, int64_t column, int64_t columns, const core::TensorView& x,
           int64_t first_column);
  int64_t first_row(const core::TensorView& x) const {
    return place_.sequence_parallel ? place_.tp_rank * x.dim(0) : 0;
  }

  Place place_;
  std::regex filter_;
  Step step_;
  const Microbatch* microbatch_ = nullptr;
  std::set<std::pair<std::string, int64_t>> seen_;  // name and first sample
  std::vector<Recorded> recorded_;
};

// What a module says, if its rank has a recorder.
inline void record_output(const RankState& state, std::string_view prefix, std::string_view name,
                          const core::TensorView& x, TensorRecorder::Split split) {
  if (state.tensors != nullptr) state.tensors->output(prefix, name, x, split);
}
inline void record_gradient(const RankState& state, std::string_view prefix, std::string_view name,
                            const core::TensorView& x, TensorRecorder::Split split) {
  if (state.tensors != nullptr) state.tensors->gradient(prefix, name, x, split);
}

}  // namespace ms::train
