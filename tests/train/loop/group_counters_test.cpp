#include "train/loop/group_counters.h"

#include <gtest/gtest.h>

#include "tests/support/thread_comm.h"

namespace ms::train {
namespace {

TEST(GroupCounters, CountEachGroupApartSinceTheLastReset) {
  test::run_thread_ranks(4, [](core::Endpoint& endpoint) {
    ProcessGroups groups(endpoint, {.tp = 2, .pp = 2});
    const auto count = [&](layout::Group group, core::CommOp op) {
      return read_counters(groups)[static_cast<size_t>(group)][static_cast<size_t>(op)];
    };
    groups.tp.allreduce(1.0);
    groups.world.allreduce(1.0);
    EXPECT_EQ(count(layout::Group::kTp, core::CommOp::kAllreduce).calls, 1);
    EXPECT_EQ(count(layout::Group::kTp, core::CommOp::kAllreduce).payload_bytes, 8);
    EXPECT_EQ(count(layout::Group::kPp, core::CommOp::kAllreduce).calls, 0);
    reset_counters(groups);
    groups.embedding->allreduce(1.0);
    EXPECT_EQ(count(layout::Group::kTp, core::CommOp::kAllreduce).calls, 0);
    EXPECT_EQ(count(layout::Group::kEmbedding, core::CommOp::kAllreduce).calls, 1);
  });
}

}  // namespace
}  // namespace ms::train
