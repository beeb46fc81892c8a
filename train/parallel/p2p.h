// Messages between pipeline stages: hidden states forward, their gradients backward. Sends never block: a sent tensor
// is kept until it has left, so no order of sends and receives can deadlock. Messages of one direction between two
// stages arrive in the order in which they were sent (core/layout/schedule_check.h proves that a schedule expects
// them so).
#pragma once

#include <list>

#include "core/tensor.h"
#include "train/rank_state.h"

namespace ms::train {

class P2PCommunicator {
 public:
  explicit P2PCommunicator(RankState& state) : state_(state) {}

  // A receive that is posted and may still be under way. take() waits and gives the tensor.
  class Arrival {
   public:
    core::Tensor take() {
      work_.wait();
      return std::move(tensor_);
    }

   private:
    friend class P2PCommunicator;
    core::Tensor tensor_;  // before work_: destroyed after it
    core::Work work_;
  };
  // stage: the other one.
  Arrival post_forward(const core::Dims& shape, int stage);
  Arrival post_backward(const core::Dims& shape, int stage);
  void send_forward(core::Tensor hidden, int stage);
  void send_backward(core::Tensor gradient, int stage);
  void finish();  // waits until everything sent has left

 private:
  struct Pending {
    core::Tensor tensor;  // before work: destroyed after it
    core::Work work;
  };
  Arrival post(const core::Dims& shape, int stage, int tag);
  void send(core::Tensor tensor, int stage, int tag);

  RankState& state_;
  std::list<Pending> pending_;
};

}  // namespace ms::train
