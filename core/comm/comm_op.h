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

}  // namespace ms::core
