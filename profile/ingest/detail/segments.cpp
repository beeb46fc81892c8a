#include "profile/ingest/detail/segments.h"

#include <cstring>

#include "kernels/checksum.h"

namespace ms::profile::detail {

uint16_t SegmentTable::keep(const Segment& parsed) {
  const auto place = static_cast<uint64_t>(parsed.place);
  size_t slot = (kernels::xxh3(parsed.text, parsed.size) + place) % slots_.size();
  for (; slots_[slot] != 0; slot = (slot + 1) % slots_.size()) {
    const Segment& known = segments_[slots_[slot]];
    if (known.place == parsed.place && known.size == parsed.size &&
        std::memcmp(known.text, parsed.text, parsed.size) == 0) {
      return slots_[slot];
    }
  }
  if (segments_.size() > kMost) return 0;
  slots_[slot] = static_cast<uint16_t>(segments_.size());
  segments_.push_back(parsed);
  return slots_[slot];
}

}  // namespace ms::profile::detail
