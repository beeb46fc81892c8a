#include "profile/ingest/detail/segments.h"

#include <cstring>

#include "kernels/checksum.h"

namespace ms::profile::detail {

Segment* SegmentTable::keep(const Segment& parsed) {
  const auto place = static_cast<uint64_t>(parsed.place);
  size_t slot = (kernels::xxh3(parsed.text, parsed.size) + place) % slots_.size();
  for (; slots_[slot] != 0; slot = (slot + 1) % slots_.size()) {
    Segment& known = segments_[slots_[slot] - size_t{1}];
    if (known.place == parsed.place && known.size == parsed.size &&
        std::memcmp(known.text, parsed.text, parsed.size) == 0) {
      return &known;
    }
  }
  if (segments_.size() == kMax) return nullptr;
  segments_.push_back(parsed);
  slots_[slot] = static_cast<uint16_t>(segments_.size());
  return &segments_.back();
}

}  // namespace ms::profile::detail
