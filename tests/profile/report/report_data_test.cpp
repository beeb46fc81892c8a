// The JSON that the page draws, exactly.
#include "profile/report/report_data.h"

#include <gtest/gtest.h>

#include <string>

#include "profile/ingest/load.h"
#include "profile/report/html_text.h"
#include "profile/sections.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/trace_maker.h"

namespace ms::profile {
namespace {

// Of one step: two kernels with their launches, a copy, memory; rank 1 computes 100 ns longer, so rank 0 waits.
void write_rank(const std::filesystem::path& folder, int rank) {
  const int64_t more = rank == 1 ? 100 : 0;
  test::TraceMaker maker(folder, rank, 2);
  maker.host("ProfilerStep#7", 0, 1000);
  maker.host("forward", 10, 300);
  maker.launch(1, 20, 30);
  maker.kernel("gemm", 100, 300 + more, 1);
  maker.comm("allreduce", "dp", {0, 1}, 300 + more, 500);
  maker.copy("Memcpy DtoH", 600, 650);
  maker.memory(50, 0x10, 4096, 4096);
  maker.memory(700, 0x10, -4096, 0);
  maker.finish();
}

TEST(ReportData, ChartsAreTheFiguresOfTheTables) {
  const test::TemporaryFolder folder;
  for (const int rank : {0, 1}) write_rank(folder.path(), rank);
  const Store store = load({folder.path().string()}, {});
  const Results results = analyze(store, sections::every());
  // Span 100..650; computing 200, exposed communication 200, a copy of 50, idle 100. Rank 0 waits 100 of its allreduce.
  EXPECT_EQ(
      charts_json(store, results, {{0, 0, "finding 1"}, {1, 1, ""}}),
      R"x({"ranks":[{"rank":0,"why":"finding 1","steps":[[7,1000,550,200,200,50,100]],"steps_in_trace":1,"curves":[)x"
      R"x({"name":"host memory","unit":"bytes","t":[50,650],"v":[4096,0]},)x"
      R"x({"name":"queue of device 0 stream 7","unit":"launches","t":[20,80],"v":[1,0]}]},)x"
      R"x({"rank":1,"why":"","steps":[[7,1000,550,300,100,50,100]],"steps_in_trace":1,"curves":[)x"
      R"x({"name":"host memory","unit":"bytes","t":[50,650],"v":[4096,0]},)x"
      R"x({"name":"queue of device 0 stream 7","unit":"launches","t":[20,80],"v":[1,0]}]}],)x"
      R"x("kernels":[{"name":"gemm","class":0,"ranks":2,"spread":[200,200,200,300,300],"at":[200,300]},)x"
      R"x({"name":"allreduce(dp)","class":1,"ranks":2,"spread":[100,100,100,200,200],"at":[200,100]},)x"
      R"x({"name":"Memcpy DtoH","class":2,"ranks":2,"spread":[50,50,50,50,50],"at":[50,50]}],)x"
      R"x("waits":{"most":100,"collectives":1,"rows":["9","0"]},)x"
      R"x("experts":{"most":0.00,"layers_in_trace":0,"experts_of_layer":0,"rows":[]}})x"
      "\n");
}

// Of the second of two ranks: layer 0 has 90 and 0 tokens, layer 1 20 and 10.
TEST(ReportData, LoadOfExpertsIsInNinthsOfTheLargestOfMean) {
  const test::TemporaryFolder folder;
  test::TraceMaker maker(folder.path(), 1, 2);
  maker.kernel("gemm", 100, 300);
  const int64_t tokens[2][2] = {{90, 0}, {20, 10}};
  for (int64_t layer = 0; layer < 2; ++layer) {
    for (int64_t expert = 0; expert < 2; ++expert)
      maker.counter(core::cat("moe layer ", layer, " expert ", 2 + expert, " rows"), 200,
                    static_cast<double>(tokens[layer][expert]));
  }
  maker.finish();
  const Store store = load({folder.path().string()}, {});
  const std::string charts = charts_json(store, analyze(store, sections::every()), {{0, 1, ""}});
  EXPECT_EQ(charts.substr(charts.find("\"experts\"")),
            R"x("experts":{"most":2.00,"layers_in_trace":2,"experts_of_layer":4,"rows":[)x"
            R"x({"name":"layer 0","wait":0,"load":"--9x"},{"name":"layer 1","wait":0,"load":"--63"}]}})x"
            "\n");
}

TEST(ReportData, TimelineHoldsLanesNestedAndFlows) {
  const test::TemporaryFolder folder;
  write_rank(folder.path(), 0);
  const Store store = load({folder.path().string()}, {});
  const DeviceView view = view_devices(*store.ranks[0]);
  EXPECT_EQ(timeline_json(make_timeline({{store.ranks[0].get(), &view, {}}})),
            R"x({"span":1000,"names":[[3,"ProfilerStep#7"],[3,"forward"],[3,"cudaLaunchKernel"],[0,"gemm"],)x"
            R"x([1,"allreduce(dp)"],[2,"Memcpy DtoH"]],"ranks":[{"rank":0,"events":6,"slices":6,"lanes":[)x"
            R"x({"name":"stream 7","device":true,"depth":1,"t":[100],"d":[200],"n":[3]},)x"
            R"x({"name":"stream dp","device":true,"depth":1,"t":[300],"d":[200],"n":[4]},)x"
            R"x({"name":"stream 21","device":true,"depth":1,"t":[600],"d":[50],"n":[5]},)x"
            R"x({"name":"main","device":false,"depth":3,"t":[0,10,10],"d":[1000,290,10],"n":[0,1,2],"z":[0,1,2]}],)x"
            R"x("flows":[5,0]}]})x"
            "\n");
}

TEST(ReportData, TimelineFitsIntoItsBytes) {
  const test::TemporaryFolder folder;
  test::TraceMaker maker(folder.path(), 0, 1);
  for (int i = 0; i < 5000; ++i) {
    maker.kernel(core::cat("k<", i % 100, "<", std::string(20, '<'), ">>"), 100 * i, 100 * i + 50);
  }
  maker.finish();
  const Store store = load({folder.path().string()}, {});
  const DeviceView view = view_devices(*store.ranks[0]);
  const std::string all = timeline_script({{store.ranks[0].get(), &view, {}}}, 1'000'000);
  EXPECT_NE(all.find("\"slices\":5000"), std::string::npos);
  for (const size_t bytes : {size_t{30'000}, size_t{5000}}) {
    EXPECT_LE(timeline_script({{store.ranks[0].get(), &view, {}}}, bytes).size(), bytes);
  }
}

}  // namespace
}  // namespace ms::profile
