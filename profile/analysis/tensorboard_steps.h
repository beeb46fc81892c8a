// Step times as PyTorch's TensorBoard plugin shows them: each instant of a step counts for the first role that is
// active.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "profile/analysis/device.h"

namespace ms::profile {

enum class StepRole : uint8_t { kKernel, kMemcpy, kMemset, kCommunication, kRuntime, kDataLoader, kCpuExec, kOther };
inline constexpr int kNumStepRoles = 8;
const char* step_role_name(StepRole role);  // "Kernel", ..., "CPU Exec", "Other"

struct TensorboardStep {
  int64_t number = 0, total = 0;  // ns
  std::array<int64_t, kNumStepRoles> ns{};
};

// Steps are extended to their device work; trailing steps in which the profiler stopped are omitted.
std::vector<TensorboardStep> tensorboard_steps(const RankTrace& trace, const DeviceView& view);

}  // namespace ms::profile
