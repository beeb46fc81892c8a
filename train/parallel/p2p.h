// Messages between pipeline stages: hidden states forward, their gradients backward. The stages form a ring: with
// virtual stages the last one sends a chunk's output to the first, for its next chunk. Sends never block: a sent tensor
// is kept until it has left, so no order of sends and receives can deadlock. Messages of one direction between two
// stages arrive in the order of the schedule, which both stages follow.
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
  Arrival post_forward(const core::Dims& shape);   // from the stage before
  Arrival post_backward(const core::Dims& shape);  // from the stage behind
  void send_forward(core::Tensor hidden);
  void send_backward(core::Tensor gradient);
  void finish();  // waits until everything sent has left

 private:
  struct Pending {
    core::Tensor tensor;  // before work: destroyed after it
    core::Work work;
  };
  Arrival post(const core::Dims& shape, int peer, int tag);
  int before() const;  // in the ring
  int behind() const;
  void send(core::Tensor tensor, int peer, int tag);

  RankState& state_;
  std::list<Pending> pending_;
};

}  // namespace ms::train
