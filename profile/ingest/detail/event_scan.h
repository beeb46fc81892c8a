// Finds the parts of one Chrome trace event in a buffer: where each field lies, without copying or converting.
//
// One pass by blocks of 64 or 32 bytes, with what stands between values compared to what stood there before
// (segments.h); values that nobody needs are skipped at any depth without recursion. The words of the events that
// matter are listed once, here.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "profile/ingest/detail/segments.h"

namespace ms::profile::detail {

// Readable bytes that must follow the buffer's end.
inline constexpr size_t kScanPadding = 64;

enum class Kind : uint8_t { kNone, kString, kNumber, kLiteral, kObject, kArray };  // kLiteral: true, null, NaN, ...

struct Value {
  const char* data = nullptr;  // of a string: behind its quote
  uint32_t size = 0;
  Kind kind = Kind::kNone;
  bool escaped = false;  // a string with backslashes

  std::string_view text() const { return {data, size}; }
  explicit operator bool() const { return kind != Kind::kNone; }
  // The first eight bytes, zeros behind the end.
  uint64_t head() const {
    uint64_t bytes = 0;
    std::memcpy(&bytes, data, sizeof(bytes));  // readable: see kScanPadding
    return size >= sizeof(bytes) ? bytes : bytes & ((uint64_t{1} << (8 * size)) - 1);
  }
};

// Arguments that analyses need (traces.md 4.3, 5.2); their spelling is in event_scan.inl.
enum class Arg : uint8_t {
  kStream,
  kDevice,
  kCorrelation,
  kExternalId,
  kOldExternalId,
  kBytes,
  kFlops,
  kName,
  kCollectiveName,
  kDtype,
  kGroupName,
  kGroupRanks,
  kSeq,
  kCommsId,
  kSourceRank,
  kDestinationRank,
  kInElements,
  kOutElements,
  kInputDims,
  kInputType,
  kAddress,
  kMemoryBytes,
  kDeviceType,
  kDeviceId,
  kTotalAllocated,
  kTotalReserved,
  kTag,
  kSyncKind,
  kWaitOnStream,
  kWaitOnCorrelation,
  kAsync,
  kCallStack,
  kTaskType,
  kConnectionId,
  kBandwidth,
  kConcreteInputs,
  kCount
};

struct ScannedEvent {
  const char* end = nullptr;  // behind the closing brace
  Value ph, name, cat, ts, dur, pid, tid, id, id2, scope;
  Value args;                                                     // the whole object, with its braces
  Value other;                                                    // the last that has no name here
  uint64_t present = 0;                                           // bit of each Arg that is set
  std::array<Value, static_cast<size_t>(Arg::kCount)> arguments;  // valid where `present` says so

  bool has(Arg arg) const { return (present >> static_cast<unsigned>(arg) & 1) != 0; }
  Value get(Arg arg) const { return has(arg) ? arguments[static_cast<size_t>(arg)] : Value{}; }
};
static_assert(static_cast<size_t>(Arg::kCount) <= 64);

enum class Scan : uint8_t { kWhole, kCut, kWrong };  // kCut: the buffer ends first

// Whether the arguments of an event are worth reading, asked at their opening brace with the fields before them.
// Without, they are skipped as one, several times faster.
struct ArgumentFilter {
  virtual bool wants_arguments(const ScannedEvent& event) = 0;

 protected:
  ~ArgumentFilter() = default;
};

class EventScanner {
 public:
  EventScanner();

  // `begin` is at '{'. Fills `event`; its values point into the buffer. filter: null reads all arguments.
  Scan scan(const char* begin, const char* end, ScannedEvent& event, ArgumentFilter* filter = nullptr) {
    return scan_(begin, end, event, filter, segments_);
  }

 private:
  using Function = Scan(const char*, const char*, ScannedEvent&, ArgumentFilter*, SegmentTable&);

  Function* scan_;  // of the instruction set
  SegmentTable segments_;
};

// Skips one value of any kind from its first byte; `next` is behind it.
Scan skip_value(const char* begin, const char* end, const char*& next, Value* value = nullptr);

// The first byte that is no white space, or `end`.
const char* skip_space(const char* begin, const char* end);

}  // namespace ms::profile::detail
