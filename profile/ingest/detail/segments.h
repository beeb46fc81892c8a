// Remembers the text between the values of events: traces repeat a few layouts, so the text from the end of a value to
// the first byte of the next, `", "cat": "`, is parsed once and from then on only compared.
//
// The meaning of a segment depends only on its bytes and on the kind of value before it, so an equal segment after the
// same kind of value has the same meaning. Only the choice of the segment to compare first is a guess.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace ms::profile::detail {

// What precedes a segment.
enum class Place : uint8_t { kEvent, kAfterValue, kAfterString, kInArgs, kAfterArg, kAfterArgString };

struct alignas(64) Segment {
  enum class Then : uint8_t { kString, kOther, kOpenArgs, kCloseArgs, kCloseEvent, kCloseBoth };
  static constexpr uint32_t kMaxBytes = 64;
  static constexpr size_t kWays = 4;

  using Ways = std::array<Segment*, kWays>;  // segments seen next, latest first; null: none yet

  char text[kMaxBytes] = {};
  uint64_t mask = 0;  // one bit per byte of the text
  uint32_t size = 0;
  uint32_t args_end = 0;    // of kCloseBoth: offset after the closing brace of the arguments
  uint64_t present = 0;     // bit of the Arg that follows
  uint32_t value_size = 0;  // size of the last value that followed
  uint16_t target = 0;      // offset in ScannedEvent of the value that follows
  Then then = Then::kOther;
  Place place = Place::kEvent;
  Place after = Place::kAfterValue;  // of the segment after the value that follows
  bool kept = false;                 // false: too long or too irregular to remember
  Ways next{};
  Ways next_skipped{};  // of kOpenArgs: segments seen next when the arguments were skipped
};

class SegmentTable {
 public:
  SegmentTable() : slots_(4 * kMax) { segments_.reserve(kMax); }  // reserved: pointers stay valid

  // Segments that begin events.
  Segment::Ways& first() { return first_; }
  // Adds a parsed segment if it is new; null if the table is full.
  Segment* keep(const Segment& parsed);
  Segment& scratch() { return scratch_; }

 private:
  static constexpr size_t kMax = 1024;  // bounds the cost of a file whose layouts never repeat

  Segment scratch_;
  Segment::Ways first_{};
  std::vector<Segment> segments_;
  std::vector<uint16_t> slots_;  // hash table: index + 1; 0: free
};

}  // namespace ms::profile::detail
