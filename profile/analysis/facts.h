// Contents of a rank's trace: counts, times, steps, without interpretation.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "profile/analysis/device.h"

namespace ms::profile {

struct Facts {
  int64_t events = 0;                // of every phase
  std::map<char, int64_t> by_phase;  // X, i, C
  std::map<std::string, int64_t> by_category;
  int64_t distinct_slice_names = 0;
  int64_t device_events = 0, device_events_with_launch = 0;
  std::array<int64_t, kNumDeviceClasses> device_events_by_class{};
  std::vector<int64_t> steps;          // sorted by time
  int64_t first_ts = 0, last_end = 0;  // of slices, file time
  int64_t comm_bytes = 0;              // in elements times the size of dtype, of all communicator calls
};

Facts facts(const RankTrace& trace, const DeviceView& view);

}  // namespace ms::profile
