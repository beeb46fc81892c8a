#include "train/parallel/p2p.h"

namespace ms::train {
namespace {

enum Tag { kForwardTag = 0, kBackwardTag = 1 };

}  // namespace

int StageLinks::before() const { return (state_.groups.at.pp + state_.groups.grid.pp - 1) % state_.groups.grid.pp; }
int StageLinks::behind() const { return (state_.groups.at.pp + 1) % state_.groups.grid.pp; }

StageLinks::Arrival StageLinks::post(const core::Dims& shape, int peer, int tag) {
  Arrival arrival;
  arrival.tensor_ = core::Tensor(state_.ops.arena, state_.config.params_dtype(), shape, core::MemoryTag::kAct);
  arrival.work_ = state_.groups.pp.irecv(arrival.tensor_.view(), peer, tag);
  return arrival;
}

void StageLinks::send(core::Tensor tensor, int peer, int tag) {
  pending_.remove_if([](Pending& pending) { return pending.work.test(); });
  Pending& pending = pending_.emplace_back();
  pending.tensor = std::move(tensor);
  pending.work = state_.groups.pp.isend(pending.tensor.view(), peer, tag);
}

StageLinks::Arrival StageLinks::post_forward(const core::Dims& shape) { return post(shape, before(), kForwardTag); }
StageLinks::Arrival StageLinks::post_backward(const core::Dims& shape) { return post(shape, behind(), kBackwardTag); }
void StageLinks::send_forward(core::Tensor hidden) { send(std::move(hidden), behind(), kForwardTag); }
void StageLinks::send_backward(core::Tensor gradient) { send(std::move(gradient), before(), kBackwardTag); }

void StageLinks::finish() {
  for (Pending& pending : pending_) pending.work.wait();
  pending_.clear();
}

}  // namespace ms::train
