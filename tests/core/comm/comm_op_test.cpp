#include "core/comm/comm_op.h"

#include <gtest/gtest.h>

#include <set>

namespace ms::core {
namespace {

TEST(CommOp, EveryOperationHasANameOfItsOwn) {
  std::set<std::string_view> names;
  for (int op = 0; op < kNumCommOps; ++op) names.insert(comm_op_name(static_cast<CommOp>(op)));
  EXPECT_EQ(names.size(), static_cast<size_t>(kNumCommOps));
}

// A ring of n ranks passes n - 1 of n blocks on, an all-reduce twice (reduce-scatter, then all-gather).
TEST(CommOp, RingBytesAreThoseThatARankSends) {
  EXPECT_EQ(ring_bytes(CommOp::kAllreduce, 4096, 4), 2 * 3 * 1024);
  EXPECT_EQ(ring_bytes(CommOp::kReduceScatter, 4096, 4), 3 * 1024);
  EXPECT_EQ(ring_bytes(CommOp::kAllgather, 4096, 4), 3 * 1024);
  EXPECT_EQ(ring_bytes(CommOp::kAlltoall, 4096, 4), 3 * 1024);
  EXPECT_EQ(ring_bytes(CommOp::kSend, 4096, 4), 4096);
  EXPECT_EQ(ring_bytes(CommOp::kRecv, 4096, 4), 0);
  for (const CommOp op : {CommOp::kAllreduce, CommOp::kReduceScatter, CommOp::kAllgather, CommOp::kAlltoall})
    EXPECT_EQ(ring_bytes(op, 4096, 1), 0) << comm_op_name(op);
}

}  // namespace
}  // namespace ms::core
