#include "profile/report/own_info.h"

#include "core/error.h"

namespace ms::profile {

std::string own_info(const RankTrace& trace, int64_t origin) {
  std::string clocks;
  for (const ClockPoint& point : trace.clocks) {
    clocks += core::cat(clocks.empty() ? "" : ", ", "{\"at_ns\": ", point.at, ", \"offset_ns\": ", point.offset,
                        ", \"error_ns\": ", point.error, "}");
  }
  return core::cat("{\"origin_ns\": ", origin, ", \"clocks\": [", clocks, "], \"meta\": ", trace.meta, "}");
}

}  // namespace ms::profile
