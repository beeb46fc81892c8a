#include "profile/ingest/detail/packet_clocks.h"

#include <algorithm>
#include <vector>

#include "profile/ingest/detail/protobuf.h"

namespace ms::profile::detail {
namespace {

namespace fields = perfetto::clock_snapshot;

constexpr uint64_t kLimit = uint64_t{1} << 62;

// timestamp * multiplier in ns; nullopt above the limit.
std::optional<uint64_t> scaled(uint64_t timestamp, uint64_t multiplier) {
  uint64_t ns = 0;
  if (__builtin_mul_overflow(timestamp, multiplier, &ns) || ns >= kLimit) return std::nullopt;
  return ns;
}

struct Reading {
  uint32_t id = 0;
  uint64_t timestamp = 0, multiplier = 1;
  bool incremental = false;
};

std::optional<Reading> read_reading(std::string_view message) {
  Reading reading;
  FieldReader in(message);
  while (in.next()) {
    if (in.field() == fields::kClockId) reading.id = static_cast<uint32_t>(in.integer());
    if (in.field() == fields::kTimestamp) reading.timestamp = in.integer();
    if (in.field() == fields::kIsIncremental) reading.incremental = in.integer() != 0;
    if (in.field() == fields::kUnitMultiplier) reading.multiplier = std::max<uint64_t>(in.integer(), 1);
  }
  const auto ns = scaled(reading.timestamp, reading.multiplier);
  if (!in.ok() || !ns) return std::nullopt;
  reading.timestamp = *ns;
  return reading;
}

}  // namespace

bool PacketClocks::read_snapshot(uint32_t sequence, std::string_view snapshot) {
  std::vector<Reading> readings;
  uint32_t primary = trace_clock_;
  FieldReader in(snapshot);
  while (in.next()) {
    if (in.field() == fields::kPrimaryClock) primary = static_cast<uint32_t>(in.integer());
    if (in.field() != fields::kClocks) continue;
    const std::optional<Reading> reading = read_reading(in.bytes());
    if (!reading) return false;
    readings.push_back(*reading);
  }
  if (!in.ok()) return false;
  if (clocks_.empty()) trace_clock_ = primary;
  std::optional<int64_t> now;  // trace time
  for (const Reading& reading : readings) {
    const auto known = clocks_.find(key(sequence, reading.id));
    const auto own = static_cast<int64_t>(reading.timestamp);
    if (reading.id == trace_clock_) {
      now = own;
      break;
    }
    if (!now && known != clocks_.end() && known->second.related) now = own + known->second.offset;
  }
  if (now && (*now <= -static_cast<int64_t>(kLimit) || *now >= static_cast<int64_t>(kLimit))) now.reset();
  for (const Reading& reading : readings) {
    Clock& clock = clocks_[key(sequence, reading.id)];
    clock.multiplier = reading.multiplier;
    clock.incremental = reading.incremental;
    clock.last = reading.timestamp;
    if (!now) continue;
    clock.related = true;
    clock.offset = *now - static_cast<int64_t>(reading.timestamp);
    if (reading.id == perfetto::kRealtimeClock && !unix_base_) unix_base_ = -clock.offset;
  }
  return true;
}

std::optional<PacketClocks::Time> PacketClocks::to_trace(uint32_t sequence, uint32_t id, uint64_t timestamp) {
  const auto found = id == 0 || id == trace_clock_ ? clocks_.end() : clocks_.find(key(sequence, id));
  if (found == clocks_.end()) {
    if (timestamp >= kLimit) return std::nullopt;
    return Time{static_cast<int64_t>(timestamp), id == 0 || id == trace_clock_};
  }
  Clock& clock = found->second;
  std::optional<uint64_t> ns = scaled(timestamp, clock.multiplier);
  if (ns && clock.incremental) ns = scaled(clock.last + *ns, 1);
  if (!ns) return std::nullopt;
  if (clock.incremental) clock.last = *ns;
  const int64_t time = static_cast<int64_t>(*ns) + clock.offset;
  if (time <= -static_cast<int64_t>(kLimit) || time >= static_cast<int64_t>(kLimit)) return std::nullopt;
  return Time{time, clock.related};
}

}  // namespace ms::profile::detail
