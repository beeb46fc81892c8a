// Ascend's folders: tables by column names, and trace_view's lanes by thread names.
#include "profile/ingest/ascend.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sqlite3.h>

#include <filesystem>

#include "core/error.h"
#include "profile/analysis/ascend_steps.h"
#include "profile/analysis/breakdown.h"
#include "profile/ingest/load.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/thrown.h"

namespace ms::profile {
namespace {

class AscendTest : public testing::Test {
 protected:
  void write(const std::string& name, const std::string& text) {
    const auto output = folder_.path() / "host_1_ascend_pt" / "ASCEND_PROFILER_OUTPUT";
    std::filesystem::create_directories(output);
    test::write_file((output / name).string(), text);
  }
  Store read() { return load({folder_.path().string()}, {}); }

  test::TemporaryFolder folder_;
};

TEST_F(AscendTest, TablesAreReadByTheNamesOfTheirColumns) {
  write("kernel_details.csv",
        "Duration(us),Name,New Column,Start Time(us),Accelerator Core\n"
        "10.125,a,x,1699529622790614.812\t,AI_CORE\n.875,\"b\nc\",x,1699529622790700.001\t,AI_VECTOR_CORE\n"
        "1,short\n1,d,x,N/A,AI_CORE\n2,\"e \"\"f\"\"\",x,1699529622790800,AI_CORE\n");
  write("memory_record.csv", "Component,Timestamp(us),Total Allocated(MB)\nPTA,1,5.5\nPTA,2,\nAPP,3,N/A\n");
  test::write_file(folder_ / "host_1_ascend_pt/profiler_info_3.json", "{\"rank_id\": 3}");
  const Store store = read();
  ASSERT_EQ(store.ranks.size(), 1u);
  const RankTrace& trace = *store.ranks[0];
  EXPECT_EQ(trace.rank, 3);
  ASSERT_TRUE(trace.ascend->kernels.has_value());
  EXPECT_EQ(trace.ascend->kernels->rows, 3);
  EXPECT_EQ(trace.ascend->kernels->by_core.at("AI_CORE").ns, 12'125);
  EXPECT_EQ(store.stats.issues().at("short_row").count, 1);
  EXPECT_EQ(store.stats.issues().at("bad_number").count, 1);
  EXPECT_EQ(trace.events.size(), 3u);
  EXPECT_EQ(trace.names[trace.events.name[1]], "b\nc");
  EXPECT_EQ(trace.names[trace.events.name[2]], "e \"f\"");
  EXPECT_EQ(breakdown(trace, view_devices(trace))->computing, 13'000);
  EXPECT_EQ(trace.ascend->memory.at("PTA").rows, 2);
  EXPECT_EQ(trace.ascend->memory.at("PTA").allocated_mb, 5.5);
  EXPECT_EQ(trace.ascend->memory.at("APP").allocated_mb, std::nullopt);
}

TEST_F(AscendTest, ADatabaseWithoutCoresStillListsWhatIsComputation) {
  write("ascend_pytorch_profiler_0.db", "");  // creates the folder
  const auto path = folder_.path() / "host_1_ascend_pt/ASCEND_PROFILER_OUTPUT/ascend_pytorch_profiler_0.db";
  sqlite3* database = nullptr;
  ASSERT_EQ(sqlite3_open(path.c_str(), &database), SQLITE_OK);
  const char* rows =
      "CREATE TABLE STRING_IDS(id, value); INSERT INTO STRING_IDS VALUES (1, 'KERNEL_AIVEC'), (2, 'STARS_COMMON'),"
      "  (3, 'Notify Wait'), (4, 'N/A'), (5, 'add');"
      "CREATE TABLE TASK(startNs, endNs, connectionId, globalTaskId, taskType, streamId);"
      "INSERT INTO TASK VALUES (1000, 1400, 0, 1, 1, 2), (1500, 1507, 0, 2, 2, 2), (2000, 2900, 0, 3, 3, 2),"
      "  (3000, 3090, 0, 4, 1, 2);"
      "CREATE TABLE COMPUTE_TASK_INFO(name, globalTaskId, taskType); INSERT INTO COMPUTE_TASK_INFO VALUES"
      "  (5, 1, 4), (5, 2, 4);";
  EXPECT_EQ(sqlite3_exec(database, rows, nullptr, nullptr, nullptr), SQLITE_OK);
  sqlite3_close(database);
  const Store store = read();
  EXPECT_EQ(breakdown(*store.ranks[0], view_devices(*store.ranks[0]))->computing, 407);
  EXPECT_EQ(store.ranks[0]->ascend->task_types.at("Notify Wait (no computation)"), 1);
}

TEST_F(AscendTest, WithoutATraceTheStepsAreTheVendors) {
  write("kernel_details.csv",
        "Name,Start Time(us),Duration(us),Accelerator Core\na,100,10,AI_CORE\nb,200,20,AI_CORE\n");
  Store store = read();
  std::vector<AscendStep> steps = ascend_steps(*store.ranks[0], view_devices(*store.ranks[0]));
  ASSERT_EQ(steps.size(), 1u);
  EXPECT_EQ(steps[0].step, "");
  EXPECT_EQ(steps[0].computing, 30'000);
  write("step_trace_time.csv",
        "Step,Computing,Communication(Not Overlapped),Overlapped,Communication,Free,Stage,Bubble,"
        "Communication(Not Overlapped and Exclude Receive),Preparing\n13,30.5,0,0,0,80,110.5,0,0,7.25\n");
  store = read();
  steps = ascend_steps(*store.ranks[0], view_devices(*store.ranks[0]));
  ASSERT_EQ(steps.size(), 1u);
  EXPECT_EQ(steps[0].step, "13");
  EXPECT_EQ(steps[0].computing, 30'500);
  EXPECT_EQ(steps[0].preparing, 7'250);
}

TEST_F(AscendTest, AMissingColumnIsNamed) {
  write("kernel_details.csv", "Name,Start Time(us)\na,1\n");
  EXPECT_THAT([&] { read(); }, testing::ThrowsMessage<core::Error>(testing::AllOf(
                                   testing::HasSubstr("\"Duration(us)\""), testing::HasSubstr("kernel_details.csv"))));
}

TEST_F(AscendTest, LanesMeanWhatTheirThreadsAreCalled) {
  const auto name = [](int pid, int tid, const char* process, const char* thread) {
    return core::cat(R"({"ph": "M", "name": "process_name", "pid": )", pid, R"(, "args": {"name": ")", process,
                     R"("}}, {"ph": "M", "name": "thread_name", "pid": )", pid, R"(, "tid": )", tid,
                     R"(, "args": {"name": ")", thread, "\"}},\n");
  };
  const auto slice = [](int pid, int tid, const char* what, double ts, double dur, const std::string& args = "") {
    return core::cat(R"({"ph": "X", "pid": )", pid, R"(, "tid": )", tid, R"(, "name": ")", what, R"(", "ts": ")", ts,
                     R"(", "dur": )", dur, R"(, "args": {)", args, "}},\n");
  };
  write(
      "trace_view.json",
      "[" + slice(1, 5, "ProfilerStep#7", 100, 100, "") + slice(2, 3, "MatMul", 120, 10, R"("Task Type": "AI_CORE")") +
          slice(2, 3, "wait", 130, 9, R"("Task Type": "Notify Wait")") + slice(3, 0, "hcom_allReduce__1_0_1", 125, 15) +
          slice(3, 1, "Memcpy", 126, 5) + slice(4, 0, "Computing", 120, 10) + slice(4, 1, "Communication", 125, 15) +
          slice(4, 2, "Communication(Not Overlapped)", 130, 10) + slice(4, 3, "Free", 140, 20) +
          R"({"ph": "s", "cat": "async_npu", "name": "torch_to_npu", "id": "9", "pid": 1, "tid": 5, "ts": "110"},
               {"ph": "f", "cat": "async_npu", "name": "torch_to_npu", "id": 9, "pid": 2, "tid": 3, "ts": "120", "bp": "e"},)" +
          name(1, 5, "Python", "Thread 5") + name(2, 3, "Ascend Hardware", "Stream 3") +
          name(3, 0, "HCCL", "Group 0 Communication") + name(3, 1, "HCCL", "Plane 0") +
          name(4, 0, "Overlap Analysis", "Computing") + name(4, 1, "Overlap Analysis", "Communication") +
          name(4, 2, "Overlap Analysis", "Communication(Not Overlapped)") + name(4, 3, "Overlap Analysis", "Free") +
          "]");
  const Store store = read();
  const RankTrace& trace = *store.ranks[0];
  const auto b = breakdown(trace, view_devices(trace));
  EXPECT_EQ(b->computing, 10'000);
  EXPECT_EQ(b->communication, 15'000);
  EXPECT_EQ(b->exposed_communication, 10'000);
  EXPECT_EQ(b->events, 2);
  EXPECT_EQ(trace.ascend->task_types.at("Notify Wait"), 1);
  std::vector<AscendStep> steps = ascend_steps(trace, view_devices(trace));
  ASSERT_EQ(steps.size(), 1u);
  EXPECT_EQ(steps[0].free, 20'000);
  EXPECT_EQ(steps[0].stage, 40'000);
  EXPECT_EQ(steps[0].overlapped, 5'000);
}

}  // namespace
}  // namespace ms::profile
