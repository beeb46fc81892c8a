// Host threads cut into pieces: the innermost event at every moment, the name to report, and the place in the program.
#include "profile/analysis/host_pieces.h"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "profile/ingest/load.h"
#include "tests/profile/analysis/small_trace.h"
#include "tests/support/temporary_folder.h"

namespace ms::profile {
namespace {

using test::event;
using test::kernel;
using test::launch;

class HostPiecesTest : public testing::Test {
 protected:
  // "start-end innermost named place" of each piece of the first work lane near `idle`, in us.
  std::string pieces_of(const std::string& events, const IntervalSet& idle = IntervalSet({{0, 1'000'000}})) {
    std::ofstream(folder_.path() / "trace.json") << R"({"traceEvents":[)" << events << "]}";
    store_ = load({folder_.path().string()}, {});
    const RankTrace& trace = *store_.ranks[0];
    const DeviceView view = view_devices(trace);
    const HostPieces pieces(trace, view, idle);
    const auto name = [&](uint32_t i) { return i == kNoEvent ? std::string("-") : trace.names[trace.events.name[i]]; };
    std::string out;
    for (const HostPiece& p : pieces.of_lane(pieces.work_lanes().at(0))) {
      out += std::to_string(p.start / 1000) + "-" + std::to_string(p.end / 1000) + " " + name(p.event) + " " +
             name(p.named) + " " + name(p.place) + "\n";
    }
    return out;
  }
  ms::test::TemporaryFolder folder_;
  Store store_;
};

TEST_F(HostPiecesTest, LaunchIsNamedByTheNearestOperatorAndPlacedInTheModule) {
  EXPECT_EQ(pieces_of(event("user_annotation", "ProfilerStep#1", 0, 100, "") + "," +
                      event("python_function", "nn.Module:Linear_0", 10, 60, "") + "," +
                      event("python_function", "torch/nn/functional.py(1):linear", 12, 56, "") + "," +
                      event("cpu_op", "aten::linear", 20, 30, "") + "," + event("cpu_op", "aten::addmm", 25, 20, "") +
                      "," + launch(1, 30, 10) + "," + kernel(1, 50, 40)),
            "10-12 nn.Module:Linear_0 nn.Module:Linear_0 nn.Module:Linear_0\n"
            "12-20 torch/nn/functional.py(1):linear torch/nn/functional.py(1):linear nn.Module:Linear_0\n"
            "20-25 aten::linear aten::linear nn.Module:Linear_0\n"
            "25-30 aten::addmm aten::addmm nn.Module:Linear_0\n"
            "30-40 cudaLaunchKernel aten::addmm nn.Module:Linear_0\n"
            "40-45 aten::addmm aten::addmm nn.Module:Linear_0\n"
            "45-50 aten::linear aten::linear nn.Module:Linear_0\n"
            "50-68 torch/nn/functional.py(1):linear torch/nn/functional.py(1):linear nn.Module:Linear_0\n"
            "68-70 nn.Module:Linear_0 nn.Module:Linear_0 nn.Module:Linear_0\n");
}

TEST_F(HostPiecesTest, WithoutModulesThePlaceIsTheOutermostOperator) {
  EXPECT_EQ(pieces_of(event("cpu_op", "aten::linear", 20, 30, "") + "," + event("cpu_op", "aten::addmm", 25, 20, "") +
                      "," + event("cpu_op", "aten::copy_", 30, 10, "")),
            "20-25 aten::linear aten::linear aten::linear\n"
            "25-30 aten::addmm aten::addmm aten::linear\n"
            "30-40 aten::copy_ aten::copy_ aten::linear\n"
            "40-45 aten::addmm aten::addmm aten::linear\n"
            "45-50 aten::linear aten::linear aten::linear\n");
}

TEST_F(HostPiecesTest, KeepsOverlappingPiecesAndTheirNeighbours) {
  std::string events;
  for (int i = 0; i < 8; ++i) {
    events += (i > 0 ? "," : "") + event("cpu_op", "op" + std::to_string(i), 10 * i, 8, "");
  }
  const auto kept = [&](std::vector<Interval> idle) {
    std::string names;
    std::istringstream lines(pieces_of(events, IntervalSet(std::move(idle))));
    for (std::string time, event, rest; lines >> time >> event; std::getline(lines, rest)) names += event.substr(2);
    return names;
  };
  EXPECT_EQ(kept({}), "");
  EXPECT_EQ(kept({{33'000, 34'000}}), "34");                    // within op3
  EXPECT_EQ(kept({{38'200, 39'800}}), "34");                    // between op3 and op4
  EXPECT_EQ(kept({{36'000, 42'000}}), "345");                   // from op3 to op4
  EXPECT_EQ(kept({{38'500, 39'000}, {39'200, 39'500}}), "34");  // two between op3 and op4
  EXPECT_EQ(kept({{1'000, 2'000}, {65'000, 66'000}}), "0167");  // far apart
  EXPECT_EQ(kept({{90'000, 95'000}}), "7");                     // after the last
}

TEST(IsUserFrame, LeavesOutBuiltinsTheStandardLibraryAndPyTorch) {
  for (const char* name : {"train.py(10): main", "vllm/worker.py(3): run", "nn.Module: Linear_0"}) {
    EXPECT_TRUE(is_user_frame(name)) << name;
  }
  for (const char* name : {"<built-in method item of Tensor>", "<string>(2): dynamic_func", "threading.py(3): wait",
                           "torch/nn/modules/module.py(1743): _call_impl", "inspect.py(3050): _bind"}) {
    EXPECT_FALSE(is_user_frame(name)) << name;
  }
}

}  // namespace
}  // namespace ms::profile
