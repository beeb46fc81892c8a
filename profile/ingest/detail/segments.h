// What stands between the values of events: traces repeat a few layouts, so the text from the end of a value to the
// first byte of the next, `", "cat": "`, is parsed once, remembered, and from then on only compared.
//
// A segment's meaning follows from its bytes and from where the value before it stood, so an equal segment after the
// same kind of value means the same: nothing is guessed but which one comes next.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace ms::profile::detail {

// Where a segment begins.
enum class Place : uint8_t { kEvent, kAfterValue, kAfterString, kInArgs, kAfterArg, kAfterArgString };

struct alignas(64) Segment {
  enum class Then : uint8_t { kString, kOther, kOpenArgs, kCloseArgs, kCloseEvent, kCloseBoth };
  static constexpr uint32_t kMaxBytes = 64;
  static constexpr size_t kWays = 4;

  using Ways = std::array<Segment*, kWays>;  // what followed, the latest first; null: nothing known

  char text[kMaxBytes] = {};
  uint64_t mask = 0;  // a bit for each of its bytes
  uint32_t size = 0;
  uint32_t args_end = 0;    // of kCloseBoth: what is behind the brace of the arguments
  uint64_t present = 0;     // bit of the Arg that follows
  uint32_t value_size = 0;  // of the value that followed last
  uint16_t target = 0;      // offset in ScannedEvent of the value that follows
  Then then = Then::kOther;
  Place place = Place::kEvent;
  Place after = Place::kAfterValue;  // of what stands behind the value that follows
  bool kept = false;                 // false: too long or too odd to be remembered
  Ways next{};
  Ways next_skipped{};  // of kOpenArgs: what followed when the arguments were skipped
};

class SegmentTable {
 public:
  SegmentTable() : slots_(4 * kMost) { segments_.reserve(kMost); }  // they stay where they are

  // What begins events.
  Segment::Ways& first() { return first_; }
  // A segment that was parsed, added if it is new; null if the table is full.
  Segment* keep(const Segment& parsed);
  Segment& scratch() { return scratch_; }

 private:
  static constexpr size_t kMost = 1024;  // a file of ever new layouts is read as fast as without

  Segment scratch_;
  Segment::Ways first_{};
  std::vector<Segment> segments_;
  std::vector<uint16_t> slots_;  // by hash: index and one; 0: free
};

}  // namespace ms::profile::detail
