// What passes between pipeline stages: hidden states forward, their gradients back. Sends never block: a sent tensor is
// kept until it has left, so no order of sends and receives can deadlock.
#pragma once

#include <list>

#include "core/tensor.h"
#include "train/rank_state.h"

namespace ms::train {

class StageLinks {
 public:
  explicit StageLinks(RankState& state) : state_(state) {}

  core::Tensor receive_forward(const core::Dims& shape);   // from the stage before
  core::Tensor receive_backward(const core::Dims& shape);  // from the stage behind
  void send_forward(core::Tensor hidden);
  void send_backward(core::Tensor gradient);
  void finish();  // waits until everything sent has left

 private:
  struct Pending {
    core::Tensor tensor;  // before work: destroyed after it
    core::Work work;
  };
  core::Tensor receive(const core::Dims& shape, int peer, int tag);
  void send(core::Tensor tensor, int peer, int tag);

  RankState& state_;
  std::list<Pending> pending_;
};

}  // namespace ms::train
