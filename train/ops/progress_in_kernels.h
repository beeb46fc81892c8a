// Communication that advances from within kernels.
#pragma once

#include <optional>

#include "core/comm/communicator.h"
#include "kernels/progress.h"

namespace ms::ops {

// While it exists, kernels of this thread advance an endpoint's messages: large ones take several rounds.
class ProgressInKernels {
 public:
  explicit ProgressInKernels(core::Endpoint& endpoint) {
    if (endpoint.size() == 1) return;
    scope_.emplace([](void* of) { static_cast<core::Endpoint*>(of)->progress_within_kernel(); }, &endpoint);
  }

 private:
  std::optional<kernels::ProgressScope> scope_;
};

}  // namespace ms::ops
