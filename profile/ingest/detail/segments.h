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

struct Segment {
  enum class Then : uint8_t { kString, kOther, kOpenArgs, kCloseArgs, kCloseEvent, kCloseBoth };
  static constexpr uint32_t kMaxBytes = 64;
  static constexpr uint16_t kSkip = UINT16_MAX, kId2 = UINT16_MAX - 1;  // targets
  static constexpr size_t kWays = 4;

  char text[kMaxBytes] = {};
  uint64_t mask = 0;  // a bit for each of its bytes
  uint32_t size = 0;
  uint32_t args_end = 0;         // of kCloseBoth: what is behind the brace of the arguments
  uint16_t target = kSkip;       // offset in ScannedEvent of the value that follows
  uint8_t argument = UINT8_MAX;  // Arg of the value that follows
  Then then = Then::kOther;
  Place place = Place::kEvent;
  bool kept = false;                           // false: too long or too odd to be remembered
  std::array<uint16_t, kWays> next{};          // what followed, the latest first; 0: nothing known
  std::array<uint16_t, kWays> next_skipped{};  // of kOpenArgs: what followed when the arguments were skipped
};

class SegmentTable {
 public:
  SegmentTable() : segments_(1), slots_(4 * kMost) {}

  Segment& operator[](uint16_t i) { return segments_[i]; }  // 0: none; its `next` begin events

  // The index of a segment that was parsed, added if it is new; 0 if the table is full.
  uint16_t keep(const Segment& parsed);
  Segment& scratch() { return scratch_; }

 private:
  static constexpr size_t kMost = 1024;  // a file of ever new layouts is read as fast as without

  Segment scratch_;
  std::vector<Segment> segments_;
  std::vector<uint16_t> slots_;  // by hash; 0: free
};

}  // namespace ms::profile::detail
