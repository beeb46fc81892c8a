#include "train/parallel/p2p.h"

namespace ms::train {
namespace {

enum Tag { kForwardTag = 0, kBackwardTag = 1 };

}  // namespace

core::Tensor StageLinks::receive(const core::Dims& shape, int peer, int tag) {
  core::Tensor tensor(state_.ops.arena, state_.config.params_dtype(), shape, core::MemoryTag::kAct);
  state_.groups.pp.recv(tensor.view(), peer, tag);
  return tensor;
}

void StageLinks::send(core::Tensor tensor, int peer, int tag) {
  pending_.remove_if([](Pending& pending) { return pending.work.test(); });
  Pending& pending = pending_.emplace_back();
  pending.tensor = std::move(tensor);
  pending.work = state_.groups.pp.isend(pending.tensor.view(), peer, tag);
}

core::Tensor StageLinks::receive_forward(const core::Dims& shape) {
  return receive(shape, state_.groups.at.pp - 1, kForwardTag);
}
core::Tensor StageLinks::receive_backward(const core::Dims& shape) {
  return receive(shape, state_.groups.at.pp + 1, kBackwardTag);
}
void StageLinks::send_forward(core::Tensor hidden) { send(std::move(hidden), state_.groups.at.pp + 1, kForwardTag); }
void StageLinks::send_backward(core::Tensor gradient) {
  send(std::move(gradient), state_.groups.at.pp - 1, kBackwardTag);
}

void StageLinks::finish() {
  for (Pending& pending : pending_) pending.work.wait();
  pending_.clear();
}

}  // namespace ms::train
