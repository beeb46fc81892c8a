#include "train/parallel/p2p.h"

namespace ms::train {
namespace {

enum Tag { kForwardTag = 0, kBackwardTag = 1 };

}  // namespace

int P2PCommunicator::before() const {
  return (state_.groups.at.pp + state_.groups.grid.pp - 1) % state_.groups.grid.pp;
}
int P2PCommunicator::behind() const { return (state_.groups.at.pp + 1) % state_.groups.grid.pp; }

P2PCommunicator::Arrival P2PCommunicator::post(const core::Dims& shape, int peer, int tag) {
  Arrival arrival;
  arrival.tensor_ = core::Tensor(state_.ops.arena, state_.config.params_dtype(), shape, core::MemoryTag::kAct);
  arrival.work_ = state_.groups.pp.irecv(arrival.tensor_.view(), peer, tag);
  return arrival;
}

void P2PCommunicator::send(core::Tensor tensor, int peer, int tag) {
  pending_.remove_if([](Pending& pending) { return pending.work.test(); });
  Pending& pending = pending_.emplace_back();
  pending.tensor = std::move(tensor);
  pending.work = state_.groups.pp.isend(pending.tensor.view(), peer, tag);
}

P2PCommunicator::Arrival P2PCommunicator::post_forward(const core::Dims& shape) {
  return post(shape, before(), kForwardTag);
}
P2PCommunicator::Arrival P2PCommunicator::post_backward(const core::Dims& shape) {
  return post(shape, behind(), kBackwardTag);
}
void P2PCommunicator::send_forward(core::Tensor hidden) { send(std::move(hidden), behind(), kForwardTag); }
void P2PCommunicator::send_backward(core::Tensor gradient) { send(std::move(gradient), before(), kBackwardTag); }

void P2PCommunicator::finish() {
  for (Pending& pending : pending_) pending.work.wait();
  pending_.clear();
}

}  // namespace ms::train
