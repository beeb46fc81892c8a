// The longest communication operation without waits: its size, rate, and the best rate seen.
#include "profile/analysis/comm_detail.h"

#include <gmock/gmock.h>

#include "tests/support/job_traces.h"

namespace ms::profile {
namespace {

using testing::HasSubstr;

// kUnit is 0.1 ms; elements are fp32.
class CommDetailTest : public JobTest {
 protected:
  // Rank 0 waits for rank 1 from 10 to 50 in an all-reduce of 1 MB that ends at 110.
  void load_late_rank() {
    {
      Rank zero = rank(0, 2), one = rank(1, 2);
      zero.kernel("gemm", 0, 10);
      one.kernel("gemm", 0, 50);
      zero.maker.comm("allreduce", "dp", {0, 1}, 10 * kUnit, 110 * kUnit, 250'000);
      one.maker.comm("allreduce", "dp", {0, 1}, 50 * kUnit, 110 * kUnit, 250'000);
      for (Rank* r : {&zero, &one}) {
        // Half as many bytes in 1 ms, a quarter in 0.1 ms, and an all-gather as long as both together.
        r->maker.comm("allreduce", "dp", {0, 1}, 200 * kUnit, 210 * kUnit, 125'000);
        r->maker.comm("allreduce", "dp", {0, 1}, 220 * kUnit, 221 * kUnit, 62'500);
        r->maker.comm("allgather", "tp", {0, 1}, 300 * kUnit, 311 * kUnit, 250'000'000);
      }
      zero.maker.finish();
      one.maker.finish();
    }
    load_all();
  }
};

TEST_F(CommDetailTest, LargestCommunicationIsCountedWithoutWaits) {
  load_late_rank();
  // 2 x (110 - 50) units = 12 ms for 2 x 1 MB: 0.17 GB/s. Best: 0.5 MB in 1 ms; 0.25 MB is less than half of 1 MB.
  EXPECT_EQ(largest_communication(devices_, cross_),
            "allreduce of 1.00 MB in group dp [0, 1]: 12.00 ms in 2 calls, hidden or not, 0.17 GB/s, best 0.50 GB/s "
            "seen");
}

TEST_F(CommDetailTest, WaitsStayInWhereTheyAreNotKnown) {
  load_late_rank();
  // 100 + 60 units.
  EXPECT_THAT(largest_communication(devices_, CrossRank()), HasSubstr("allreduce of 1.00 MB in group dp [0, 1]: 16.00 "
                                                                      "ms in 2 calls"));
}

TEST_F(CommDetailTest, NothingIsSaidWithoutCommunication) {
  {
    Rank zero = rank(0, 1);
    zero.kernel("gemm", 0, 10);
    zero.maker.finish();
  }
  store_ = load({folder_.path().string()}, {});
  const DeviceView view = view_devices(*store_.ranks[0]);
  EXPECT_EQ(largest_communication({{store_.ranks[0].get(), &view}}, CrossRank()), "");
}

}  // namespace
}  // namespace ms::profile
