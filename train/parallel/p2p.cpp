#include "train/parallel/p2p.h"

namespace ms::train {
namespace {

enum Tag { kForwardTag = 0, kBackwardTag = 1 };

}  // namespace

P2PCommunicator::Arrival P2PCommunicator::post(const core::Dims& shape, int stage, int tag) {
  Arrival arrival;
  arrival.tensor_ = core::Tensor(state_.ops.arena, state_.config.params_dtype(), shape, core::MemoryTag::kAct);
  arrival.work_ = state_.groups.pp.irecv(arrival.tensor_.view(), stage, tag);
  return arrival;
}

void P2PCommunicator::send(core::Tensor tensor, int stage, int tag) {
  pending_.remove_if([](Pending& pending) { return pending.work.test(); });
  Pending& pending = pending_.emplace_back();
  pending.tensor = std::move(tensor);
  pending.work = state_.groups.pp.isend(pending.tensor.view(), stage, tag);
}

P2PCommunicator::Arrival P2PCommunicator::post_forward(const core::Dims& shape, int stage) {
  return post(shape, stage, kForwardTag);
}
P2PCommunicator::Arrival P2PCommunicator::post_backward(const core::Dims& shape, int stage) {
  return post(shape, stage, kBackwardTag);
}
void P2PCommunicator::send_forward(core::Tensor hidden, int stage) { send(std::move(hidden), stage, kForwardTag); }
void P2PCommunicator::send_backward(core::Tensor gradient, int stage) {
  send(std::move(gradient), stage, kBackwardTag);
}

void P2PCommunicator::finish() {
  for (Pending& pending : pending_) pending.work.wait();
  pending_.clear();
}

}  // namespace ms::train
