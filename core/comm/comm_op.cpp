#include "core/comm/comm_op.h"

#include <array>

namespace ms::core {

std::string_view comm_op_name(CommOp op) {
  constexpr std::array<std::string_view, kNumCommOps> kNames = {
      "allreduce", "reduce_scatter", "allgather", "bcast", "gather", "alltoall", "send", "recv", "barrier"};
  return kNames[static_cast<size_t>(op)];
}

int64_t ring_bytes(CommOp op, int64_t payload_bytes, int64_t n) {
  switch (op) {
    case CommOp::kAllreduce:
      return 2 * (n - 1) * payload_bytes / n;
    case CommOp::kReduceScatter:
    case CommOp::kAllgather:
    case CommOp::kGather:
    case CommOp::kAlltoall:
      return (n - 1) * payload_bytes / n;
    case CommOp::kBcast:
    case CommOp::kSend:
      return payload_bytes;
    case CommOp::kRecv:
    case CommOp::kBarrier:
      return 0;
  }
  return 0;
}

int64_t reduction_scratch_bytes(CommOp op, int64_t bytes, int64_t n) {
  if (n == 1) return 0;
  if (op == CommOp::kAllreduce && bytes <= kSmallAllreduceBytes) return n * bytes;  // of every peer, and a copy
  const int64_t block = bytes / n;
  return (n - 1) * (block > kReductionChunkBytes ? 2 * kReductionChunkBytes : block);
}

}  // namespace ms::core
