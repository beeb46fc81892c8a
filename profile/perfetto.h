// Field numbers and constants of Perfetto's trace format, shared by the reader (ingest/perfetto.h) and the writer
// (report/perfetto_trace.h). A trace is a sequence of TracePacket messages in protobuf's wire format
// (perfetto_trace.proto of Perfetto).
#pragma once

#include <cstdint>
#include <string_view>

namespace ms::profile::perfetto {

inline constexpr uint32_t kTracePacket = 1;  // field of Trace

namespace packet {
inline constexpr uint32_t kClockSnapshot = 6, kTimestamp = 8, kSequence = 10, kTrackEvent = 11, kInternedData = 12,
                          kSequenceFlags = 13, kStateCleared = 41, kPreviousPacketDropped = 42, kPackedPackets = 50,
                          kZstdPackets = 133, kTimestampClock = 58, kDefaults = 59, kTrackDescriptor = 60;
}
inline constexpr uint64_t kStateCleared = 1, kNeedsState = 2;  // bits of kSequenceFlags

namespace clock_snapshot {
inline constexpr uint32_t kClocks = 1, kPrimaryClock = 2;
inline constexpr uint32_t kClockId = 1, kTimestamp = 2, kIsIncremental = 3, kUnitMultiplier = 4;  // fields of a clock
}  // namespace clock_snapshot
// Clock ids; those from kFirstSequenceClock on belong to one sequence of packets.
inline constexpr uint32_t kRealtimeClock = 1, kBoottimeClock = 6, kFirstSequenceClock = 64, kLastSequenceClock = 127;

namespace packet_defaults {
inline constexpr uint32_t kTrackEvent = 11, kTimestampClock = 58;
}

// Fields of interned_data; each row is {iid 1, text 2}.
namespace interned {
inline constexpr uint32_t kCategories = 1, kNames = 2, kAnnotationNames = 3, kStrings = 29;
inline constexpr uint32_t kIid = 1, kText = 2;
}  // namespace interned

namespace track_descriptor {
inline constexpr uint32_t kUuid = 1, kName = 2, kProcess = 3, kThread = 4, kParent = 5, kCounter = 8, kStaticName = 10,
                          kChildOrdering = 11, kSiblingOrder = 12;
inline constexpr uint64_t kExplicitOrder = 3;                                     // value of kChildOrdering
inline constexpr uint32_t kProcessPid = 1, kProcessName = 6, kProcessLabels = 8;  // fields of a process
inline constexpr uint32_t kThreadPid = 1, kThreadTid = 2, kThreadName = 5;        // fields of a thread
inline constexpr uint32_t kCounterMultiplier = 4, kCounterIncremental = 5;        // fields of a counter
}  // namespace track_descriptor

namespace track_event {
inline constexpr uint32_t kCategoryIids = 3, kAnnotations = 4, kType = 9, kNameIid = 10, kTrack = 11, kCategories = 22,
                          kName = 23, kCounterValue = 30, kDoubleCounterValue = 44, kFlows = 47, kLastFlows = 48;
inline constexpr uint64_t kSliceBegin = 1, kSliceEnd = 2, kInstant = 3, kCounter = 4;  // values of kType
}  // namespace track_event

namespace annotation {
inline constexpr uint32_t kNameIid = 1, kBool = 2, kUnsigned = 3, kInteger = 4, kDouble = 5, kString = 6, kJson = 9,
                          kName = 10, kArray = 12, kStringIid = 17;
}

// Arguments that the store keeps, with Kineto's names where it has one.
enum class Key : uint8_t {
  kNone,  // any other argument
  kDevice,
  kStream,
  kCorrelation,
  kExternalId,
  kCollectiveName,
  kInElements,
  kOutElements,
  kDtype,
  kGroupName,
  kGroupRanks,
  kSeq,
  kCommsId,
  kSourceRank,
  kDestinationRank,
  kAsync,
  kFlops,
  kMicrobatch,
  kChunk,
  kBytes,
  kInputDims,
  kInputTypes,
  kSyncKind,
  kWaitOnStream,
  kWaitOnCorrelation,
  kCallStack,
  kAddress,
  kMemoryBytes,
  kDeviceType,
  kDeviceId,
  kTotalAllocated,
  kTotalReserved,
  kTag,
  // Arguments that Kineto does not have: the side of an event, and facts about the trace of a rank.
  kSide,
  kRank,
  kWorldSize,
  kBackend,
  kBaseUnixNs,
  kOriginNs,
  kOwn,
  kCount
};

inline constexpr std::string_view kKeyNames[] = {
    "",
    "device",
    "stream",
    "correlation",
    "External id",
    "Collective name",
    "In msg nelems",
    "Out msg nelems",
    "dtype",
    "Process Group Name",
    "Process Group Ranks",
    "Seq",
    "Comms Id",
    "Src Rank",
    "Dst Rank",
    "Is async",
    "flops",
    "microbatch",
    "chunk",
    "bytes",
    "Input Dims",
    "Input type",
    "cuda_sync_kind",
    "wait_on_stream",
    "wait_on_cuda_event_record_corr_id",
    "Call stack",
    "Addr",
    "Bytes",
    "Device Type",
    "Device Id",
    "Total Allocated",
    "Total Reserved",
    "Tag",
    "msprof side",
    "rank",
    "world_size",
    "backend",
    "base_unix_ns",
    "origin_ns",
    "msuite",
};
static_assert(std::size(kKeyNames) == static_cast<size_t>(Key::kCount));

// Name and category of the instant event that carries facts about the whole trace.
inline constexpr std::string_view kTraceInstant = "msuite";

}  // namespace ms::profile::perfetto
