// The critical path of one rank on traces small enough to check by hand.
#include "profile/analysis/critical_path.h"

#include <gtest/gtest.h>

#include "core/io/file.h"
#include "profile/ingest/load.h"
#include "tests/profile/analysis/small_trace.h"
#include "tests/support/temporary_folder.h"

namespace ms::profile {
namespace {

using test::event;
using test::kernel;

class CriticalPathTest : public testing::Test {
 protected:
  CriticalPath path_of(const std::string& events, bool hta = false) {
    core::write_text_atomically(folder_ / "trace.json", "[" + events + "]");
    const Store store = load({folder_ / "trace.json"}, {.keep_file_order = hta});
    return critical_path(*store.ranks[0], view_devices(*store.ranks[0]), {.hta = hta});
  }
  static std::string launch(int correlation, int ts, const std::string& name = "cudaLaunchKernel") {
    return test::launch(correlation, ts, 2, name);
  }

  ms::test::TemporaryFolder folder_;
};

TEST_F(CriticalPathTest, FromALaunchAlongTheStream) {
  // 10 us until the kernel starts, its 20, 5 between kernels, 30.
  const CriticalPath path =
      path_of(launch(1, 0) + "," + launch(2, 12) + "," + kernel(1, 10, 20) + "," + kernel(2, 35, 30));
  EXPECT_TRUE(path.success);
  EXPECT_EQ(path.length, 65'000);
  EXPECT_EQ(path.nodes, 8);
}

TEST_F(CriticalPathTest, AKernelThatStartsBeforeItsPredecessorEndsDidNotWaitForTheEnd) {
  const std::string events = launch(1, 0) + "," + launch(2, 12) + "," + kernel(1, 10, 20) + "," + kernel(2, 26, 30);
  const CriticalPath path = path_of(events);
  EXPECT_TRUE(path.success) << path.problem;
  EXPECT_EQ(path.length, 56'000);
  EXPECT_EQ(path.bound_ns[static_cast<size_t>(PathBound::kComputing)], 46'000);
  EXPECT_EQ(path_of(events, true).length, 60'000) << "HTA takes both for one after another";
}

TEST_F(CriticalPathTest, OfAGraphOfKernelsHtaKnowsTheLastInTheFile) {
  const std::string events = launch(1, 0, "cudaGraphLaunch") + "," + kernel(1, 10, 20) + "," + kernel(1, 35, 30);
  EXPECT_EQ(path_of(events).nodes, 6);
  EXPECT_EQ(path_of(events, true).nodes, 4);
  // HTA does not count this call as filling the queue either, so no launch delay leads from it to the kernel.
  EXPECT_EQ(path_of(events, true).length, 30'000);
}

TEST_F(CriticalPathTest, AnOperatorThatNamesAStreamIsNoneToHta) {
  const std::string events =
      event("cpu_op", "triton_add", 0, 10, R"("stream": 0)") + "," + launch(1, 2) + "," + kernel(1, 20, 5);
  EXPECT_EQ(path_of(events).nodes, 6);
  EXPECT_EQ(path_of(events, true).nodes, 4);
}

TEST_F(CriticalPathTest, LoadersOfDataAreNoneToHta) {
  const std::string events =
      event("user_annotation", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 0, 10, "") + "," +
      launch(1, 12) + "," + kernel(1, 20, 5);
  EXPECT_EQ(path_of(events).nodes, 6);
  EXPECT_EQ(path_of(events, true).nodes, 4);
}

TEST_F(CriticalPathTest, WhatWaitsForAnEventStartsBehindTheKernelBeforeItsRecord) {
  const auto on_stream = [](int correlation, int ts, int dur, int stream) {
    return event(
        "kernel", "gemm", ts, dur,
        R"("device": 0, "stream": )" + std::to_string(stream) + R"(, "correlation": )" + std::to_string(correlation));
  };
  const std::string wait =
      R"("device": 0, "stream": 20, "correlation": 4, "cuda_sync_kind": "Stream Wait Event", "wait_on_stream": 7, )"
      R"("wait_on_cuda_event_record_corr_id": 3)";
  const CriticalPath path =
      path_of(launch(1, 0) + "," + launch(2, 12) + "," + launch(3, 15, "cudaEventRecord") + "," +
              launch(4, 18, "cudaStreamWaitEvent") + "," + launch(5, 21) + "," + on_stream(1, 10, 20, 7) + "," +
              on_stream(2, 35, 30, 7) + "," + event("cuda_sync", "Stream Wait Event", 20, 1, wait) + "," +
              on_stream(5, 70, 40, 20));
  EXPECT_TRUE(path.success) << path.problem;
  EXPECT_EQ(path.edges_by_type[static_cast<size_t>(PathEdge::kSync)], 1);
  EXPECT_EQ(path.length, 105'000) << "65 to the end of the second kernel of stream 7, then 40";
}

}  // namespace
}  // namespace ms::profile
