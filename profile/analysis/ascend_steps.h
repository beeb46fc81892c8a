// The step table of an Ascend profile from its own overlap lanes, exactly (traces.md 5.4).
#pragma once

#include <vector>

#include "profile/analysis/device.h"
#include "profile/ascend.h"

namespace ms::profile {

// One row a step of the host. Without any, and without overlap lanes, the rows of the vendor's own table; else the
// whole trace as one, with an empty number. Empty for a trace of another kind.
std::vector<AscendStep> ascend_steps(const RankTrace& trace, const DeviceView& view);

}  // namespace ms::profile
