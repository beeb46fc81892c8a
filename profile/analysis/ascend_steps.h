// The step table of an Ascend profile (step_trace_time.csv), computed from the vendor's overlap lanes if the trace has
// them, else from device tasks.
#pragma once

#include <vector>

#include "profile/analysis/device.h"
#include "profile/ascend.h"

namespace ms::profile {

// One row per step of the host. Without steps and overlap lanes, the rows of the vendor's own table; else one row for
// the whole trace, with an empty number. Empty if the trace is not Ascend's.
std::vector<AscendStep> ascend_steps(const RankTrace& trace, const DeviceView& view);

}  // namespace ms::profile
