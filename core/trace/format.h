// Constants and encodings of the native trace file (profile/FORMAT.md), shared by the writer here and the reader in
// profile/ingest.
//
//   file  = "MSTRACE1" chunk*
//   chunk = u32 kChunkMagic | u32 body_bytes | u64 XXH3-64 of body | body
//   body  = u8 kind | u8 version | u16 0 | u32 raw_bytes | u64 sequence | u64 first_event | u32 num_events | u32 0 |
//           zstd frame of the payload (raw_bytes long)
//
// All integers are little endian. Every chunk can be read alone: it has its own strings, lanes, stacks and time base.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace ms::core::trace {

static_assert(std::endian::native == std::endian::little, "the trace file is little endian and written as it lies");

inline constexpr std::string_view kFileMagic = "MSTRACE1";
inline constexpr uint32_t kChunkMagic = 0x4B43534D;  // "MSCK"
inline constexpr size_t kChunkPrefixBytes = 16;
inline constexpr size_t kBodyHeaderBytes = 32;
inline constexpr uint8_t kFormatVersion = 2;
inline constexpr size_t kMaxChunkBytes = 1 << 20;  // limit of raw_bytes and body_bytes
inline constexpr size_t kMaxChunkEvents = 32768;
inline constexpr size_t kMaxStringBytes = 16384;  // longer names are truncated when recorded
inline constexpr int kMaxGridBits = 32;           // times of a lane are multiples of 2^n ns; largest n

enum class ChunkKind : uint8_t { kMeta, kEvents, kClock, kFooter };

// Kind of an event; Kineto's category in quotes.
enum class EventKind : uint8_t {
  kUserAnnotation,  // "user_annotation"
  kCpuOp,           // "cpu_op"
  kKernel,          // "kernel", class COMPUTATION
  kRuntime,         // "cuda_runtime"
  kMemcpy,          // "gpu_memcpy"
  kComm,            // "kernel" with the arguments of a collective, class COMMUNICATION
  kCommDetail,      // "gpu_user_annotation": the wait and transfer parts of a kComm; not additional work
  kMemory,          // "cpu_instant_event" [memory]
  kCounter,         // ph C
};
inline constexpr int kNumEventKinds = 9;

enum class LaneKind : uint8_t { kThread, kStream };

// Which optional columns an event has.
enum EventFlag : uint8_t {
  kHasFlops = 1,
  kHasBytes = 2,
  kHasCorrelation = 4,
  kHasStack = 8,
  kHasShape = 16,
  kIsAsync = 32,  // kComm: posted and not waited for at once
  kInTicks = 64,  // in memory only: start and duration are ticks (tick_clock.h)
};

inline uint64_t zigzag(int64_t value) {
  return (static_cast<uint64_t>(value) << 1) ^ static_cast<uint64_t>(value >> 63);
}
inline int64_t unzigzag(uint64_t value) { return static_cast<int64_t>(value >> 1) ^ -static_cast<int64_t>(value & 1); }

// LEB128: 7 bits per byte, low bits first.
inline void put_varint(std::string& out, uint64_t value) {
  while (value >= 0x80) {
    out.push_back(static_cast<char>(value | 0x80));
    value >>= 7;
  }
  out.push_back(static_cast<char>(value));
}
inline void put_signed(std::string& out, int64_t value) { put_varint(out, zigzag(value)); }

template <class T>
void put_fixed(std::string& out, T value) {
  char bytes[sizeof(T)];
  std::memcpy(bytes, &value, sizeof(T));
  out.append(bytes, sizeof(T));
}

}  // namespace ms::core::trace
