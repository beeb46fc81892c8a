// The kinds of operations of a process group, and the bytes that counters report for them.
#pragma once

#include <cstdint>
#include <string_view>

namespace ms::core {

enum class CommOp : uint8_t {
  kAllreduce,
  kReduceScatter,
  kAllgather,
  kBcast,
  kGather,
  kAlltoall,
  kSend,
  kRecv,
  kBarrier
};
inline constexpr int kNumCommOps = 9;
std::string_view comm_op_name(CommOp op);  // "allreduce", ...

// Bytes that a rank sends in a ring of n ranks, whatever the actual algorithm. payload_bytes: the full buffer of the
// call. Of a broadcast: what its root sends.
int64_t ring_bytes(CommOp op, int64_t payload_bytes, int64_t n);

// Up to this size every rank of an all-reduce sends its whole buffer to all and reduces locally: one message latency
// instead of two.
inline constexpr int64_t kSmallAllreduceBytes = 8192;
// Group size up to which every rank sends to every other, whatever the message size; in larger groups small messages
// spread in rounds.
inline constexpr int kDirectMembers = 8;
// Of a large reduction: what a peer sends at once.
inline constexpr int64_t kReductionChunkBytes = int64_t{1} << 20;
// Memory that a reduction of `bytes` needs besides its input and output on each of n ranks: at most two chunks of every
// peer, whatever its size.
int64_t reduction_scratch_bytes(CommOp op, int64_t bytes, int64_t n);

}  // namespace ms::core
