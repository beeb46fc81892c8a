// Tensor parallelism with fewer query groups than ranks (megatron/core/transformer/attention.py, "Assemble the full QKV
// through an AG"): linear_qkv is cut evenly all the same, so that tp / groups neighbours have a part each of what it
// gives for one group: its queries, then their gates if there are any, then its key, then its value. No weight is
// replicated, and checkpoints have the even cut. The parts are gathered among those ranks; each takes its own heads of
// the queries, and the key and value that all of them read. Backward adds up what the ranks' heads give for key and
// value, and hands each rank the gradient of its part.
#pragma once

#include <cstdint>
#include <optional>

#include "core/tensor.h"
#include "train/ops/attention.h"
#include "train/rank_state.h"

namespace ms::train {

class SharedQueryGroup {
 public:
  explicit SharedQueryGroup(RankState& state);  // whose ranks share groups

  // packed [seq, batch, (heads + 2 groups) * head_dim / tp], this rank's part -> q [seq, batch, heads / tp, head_dim],
  // k and v [seq, batch, 1, head_dim]. With an output gate 2 heads + 2 groups, and a gate like q.
  ops::QkvTensors gather(core::Tensor packed);
  // Gradients of these -> that of packed. dgate: undefined without a gate.
  core::Tensor scatter(ops::QkvGradients gradients, core::Tensor dgate = {});

 private:
  // Calls body(part, from, at, count) for the pieces of a group's row, elements [begin, begin + size) of it: they are
  // elements [from, from + count) of a part, and [at, at + count) of the piece.
  template <class Body>
  void for_each_piece(int64_t begin, int64_t size, const Body& body) const;
  // Copies between the parts [parts, seq * batch, width] and this rank's q, k, v and gate.
  template <class Copy>
  void for_each_copy(const core::TensorView& parts, const core::Tensor& q, const core::Tensor& k, const core::Tensor& v,
                     const core::Tensor& gate, const Copy& copy);

  RankState& state_;
  core::Communicator& ranks_;
  int64_t heads_, head_dim_;  // heads: of this rank
  int64_t width_;             // of a part
  bool has_gate_;
};

// Empty where each rank has whole groups.
std::optional<SharedQueryGroup> shared_query_group(RankState& state);

}  // namespace ms::train
