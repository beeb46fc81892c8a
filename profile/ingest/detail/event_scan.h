// Scans one Chrome trace event in a buffer and returns where each field lies, without copying or converting.
//
// One pass in blocks of 64 or 32 bytes. The text between values is compared with the text seen there before
// (segments.h); values that are not needed are skipped at any depth without recursion. Field and argument names are
// listed only here.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "profile/ingest/detail/segments.h"

namespace ms::profile::detail {

// Number of readable bytes required after the buffer's end.
inline constexpr size_t kScanPadding = 64;

enum class Kind : uint8_t { kNone, kString, kNumber, kLiteral, kObject, kArray };  // kLiteral: true, null, NaN, ...

struct Value {
  const char* data = nullptr;  // of a string: after its opening quote
  uint32_t size = 0;
  Kind kind = Kind::kNone;
  bool escaped = false;  // a string that contains backslashes

  std::string_view text() const { return {data, size}; }
  explicit operator bool() const { return kind != Kind::kNone; }
  // The first eight bytes, padded with zeros.
  uint64_t head() const {
    uint64_t bytes = 0;
    std::memcpy(&bytes, data, sizeof(bytes));  // readable: see kScanPadding
    return size >= sizeof(bytes) ? bytes : bytes & ((uint64_t{1} << (8 * size)) - 1);
  }
};

// Arguments that analyses use; their spelling is in event_scan.inl.
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
  kMicrobatch,
  kChunk,
  kCount
};

struct ScannedEvent {
  const char* end = nullptr;  // after the closing brace
  Value ph, name, cat, ts, dur, pid, tid, id, id2, scope;
  Value args;                                                     // the whole object, including its braces
  Value other;                                                    // the last field without a name here
  uint64_t present = 0;                                           // bit of each Arg that is set
  std::array<Value, static_cast<size_t>(Arg::kCount)> arguments;  // valid where `present` says so

  bool has(Arg arg) const { return (present >> static_cast<unsigned>(arg) & 1) != 0; }
  Value get(Arg arg) const { return has(arg) ? arguments[static_cast<size_t>(arg)] : Value{}; }
};
static_assert(static_cast<size_t>(Arg::kCount) <= 64);

enum class Scan : uint8_t { kWhole, kCut, kWrong };  // kCut: the buffer ends first

// Decides whether the arguments of an event are scanned; called at their opening brace, with the fields before it.
// Arguments that are not wanted are skipped as a whole, several times faster.
struct ArgumentFilter {
  virtual bool wants_arguments(const ScannedEvent& event) = 0;

 protected:
  ~ArgumentFilter() = default;
};

class EventScanner {
 public:
  EventScanner();

  // `begin` points at '{'. Fills `event`; its values point into the buffer. filter: null scans all arguments.
  Scan scan(const char* begin, const char* end, ScannedEvent& event, ArgumentFilter* filter = nullptr) {
    return scan_(begin, end, event, filter, segments_);
  }

 private:
  using Function = Scan(const char*, const char*, ScannedEvent&, ArgumentFilter*, SegmentTable&);

  Function* scan_;  // for the active instruction set
  SegmentTable segments_;
};

// Skips one value of any kind; begin points at its first byte, `next` is set to the byte after it.
Scan skip_value(const char* begin, const char* end, const char*& next, Value* value = nullptr);

// The first byte that is not white space, or `end`.
const char* skip_space(const char* begin, const char* end);

}  // namespace ms::profile::detail
