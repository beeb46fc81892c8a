// The file of a rank's flight recorder (profile/FORMAT.md): a header, its groups, and a ring of its last communication
// operations. The rank writes it through a shared mapping, so it has every operation even if the process is killed.
//
// All numbers are in the byte order of the machine: a file is read where it was written.
#pragma once

#include <atomic>
#include <cstdint>

namespace ms::core::flight {

inline constexpr char kMagic[8] = {'M', 'S', 'F', 'L', 'I', 'G', 'H', 'T'};
inline constexpr uint32_t kVersion = 1;
inline constexpr uint32_t kMaxGroups = 64;

enum class State : uint8_t { kPosted = 0, kStarted = 1, kCompleted = 2 };
enum class Ending : uint32_t { kRunning = 0, kEnded = 1, kFailed = 2 };

// Where a process is: two with equal values see each other's process ids.
struct Home {
  char boot[40];     // boot_id of the kernel
  char host[65];     // because a cloned virtual machine may have the same boot_id
  uint64_t pids[2];  // PID namespace; 0: unknown
};

struct Group {
  char name[32];       // cut if longer
  int32_t context;     // communicator.h
  int32_t size;        // members
  int64_t first_rank;  // in the area of ranks: the world ranks of the members, in group-rank order
};

struct Record {
  std::atomic<uint64_t> number;  // 1 for the first operation of the rank; 0 while it is being written
  int64_t sequence;              // of a collective: in its group; of a message: with this peer, direction and tag
  int64_t in_elements, out_elements, payload_bytes;
  int64_t posted_ns, started_ns, completed_ns;  // CLOCK_MONOTONIC; 0: not yet. started: all peers' data had come
  int64_t iteration;                            // of the training loop
  int32_t group;                                // index; -1: the table was full
  int32_t peer;                                 // world rank of the other end of a message; -1: a collective
  int32_t microbatch;                           // -1: none
  uint8_t op, dtype, tag;                       // CommOp, DType; tag of a message
  std::atomic<uint8_t> state;                   // State
  char caller[40];                              // what the rank was doing: "forward", cut if longer
};
static_assert(sizeof(Record) == 128);

struct Header {
  char magic[8];
  uint32_t version, header_bytes, group_bytes, record_bytes;
  uint32_t max_groups, capacity;  // of the table of groups, and of the ring
  int32_t rank, world_size;
  int64_t pid, pid_started;  // /proc/PID/stat: starttime, so that no other process is taken for it
  int64_t groups_at, ranks_at, records_at, size_bytes;  // offsets in the file, and its size
  int64_t opened_ns, opened_realtime_ns;                // the same moment on both clocks
  uint64_t job;                                         // the same number on all ranks of a run
  Home home;
  std::atomic<uint32_t> num_groups;
  std::atomic<uint32_t> ending;                          // Ending
  std::atomic<uint64_t> posted;                          // operations posted so far; the last one has this number
  std::atomic<uint64_t> waits_for;                       // number of the operation in whose wait the rank is; 0: none
  std::atomic<uint64_t> last_wait;                       // the same, kept after the wait
  std::atomic<int64_t> waits_since_ns, waited_until_ns;  // of last_wait
  std::atomic<int64_t> failed_ns;                        // when the rank has failed; 0: not
  std::atomic<int64_t> iteration;
};
static_assert(sizeof(Header) <= 512 && std::atomic<uint64_t>::is_always_lock_free);

}  // namespace ms::core::flight
