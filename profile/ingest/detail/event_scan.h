// Finds the parts of one Chrome trace event in a buffer: where each field lies, without copying or converting.
//
// One pass by 32-byte blocks; values that nobody needs are skipped at any depth without recursion. The words of the
// events that matter are listed once, here.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

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
};

// Arguments that analyses need (traces.md 4.3, 5.2), by their spelling.
#define MS_TRACE_ARGUMENTS(A)                                                                                          \
  A(kStream, "stream")                                                                                                 \
  A(kDevice, "device")                                                                                                 \
  A(kCorrelation, "correlation") A(kExternalId, "External id") A(kOldExternalId, "external id") A(kBytes, "bytes")     \
      A(kFlops, "flops") A(kName, "name") A(kLabels, "labels") A(kCollectiveName, "Collective name")                   \
          A(kDtype, "dtype") A(kGroupName, "Process Group Name") A(kGroupRanks, "Process Group Ranks") A(kSeq, "Seq")  \
              A(kCommsId, "Comms Id") A(kSourceRank, "Src Rank") A(kDestinationRank, "Dst Rank")                       \
                  A(kInElements, "In msg nelems") A(kOutElements, "Out msg nelems") A(kInputDims, "Input Dims")        \
                      A(kInputType, "Input type") A(kConcreteInputs, "Concrete Inputs") A(kAddress, "Addr")            \
                          A(kMemoryBytes, "Bytes") A(kDeviceType, "Device Type") A(kDeviceId, "Device Id")             \
                              A(kTotalAllocated, "Total Allocated") A(kTotalReserved, "Total Reserved") A(kTag, "Tag") \
                                  A(kSyncKind, "cuda_sync_kind") A(kWaitOnStream, "wait_on_stream")                    \
                                      A(kWaitOnCorrelation, "wait_on_cuda_event_record_corr_id")                       \
                                          A(kAsync, "Asynchronous") A(kStack, "Stack") A(kTaskType, "Task Type")       \
                                              A(kConnectionId, "connection_id")

enum class Arg : uint8_t {
#define MS_NAME(id, text) id,
  MS_TRACE_ARGUMENTS(MS_NAME)
#undef MS_NAME
      kCount
};

struct ScannedEvent {
  const char* end = nullptr;  // behind the closing brace
  Value ph, name, cat, ts, dur, pid, tid, id, scope;
  Value args;                                                     // the whole object, with its braces
  uint64_t present = 0;                                           // bit of each Arg that is set
  std::array<Value, static_cast<size_t>(Arg::kCount)> arguments;  // valid where `present` says so

  bool has(Arg arg) const { return (present >> static_cast<unsigned>(arg) & 1) != 0; }
  Value get(Arg arg) const { return has(arg) ? arguments[static_cast<size_t>(arg)] : Value{}; }
};
static_assert(static_cast<size_t>(Arg::kCount) <= 64);

enum class Scan : uint8_t { kWhole, kCut, kWrong };  // kCut: the buffer ends first

// `begin` is at '{'. Fills `event`; its values point into the buffer.
Scan scan_event(const char* begin, const char* end, ScannedEvent& event);

// Skips one value of any kind from its first byte; `next` is behind it.
Scan skip_value(const char* begin, const char* end, const char*& next, Value* value = nullptr);

// The first byte that is no white space, or `end`.
const char* skip_space(const char* begin, const char* end);

}  // namespace ms::profile::detail
