#include "train/loop/group_counters.h"

#include <string_view>

namespace ms::train {
namespace {

// In the order of layout::Group.
constexpr std::array<std::string_view, layout::kNumTrainingGroups> kCallsNames = {"tp calls", "pp calls", "dp_cp calls",
                                                                                  "model calls", "embedding calls"};
constexpr std::array<std::string_view, layout::kNumTrainingGroups> kBytesNames = {"tp bytes", "pp bytes", "dp_cp bytes",
                                                                                  "model bytes", "embedding bytes"};

template <class Body>
void for_each_group(ProcessGroups& groups, const Body& body) {
  for (size_t number = 0; number < layout::kNumTrainingGroups; ++number) {
    if (core::Communicator* comm = groups.of_training(static_cast<layout::Group>(number))) body(number, *comm);
  }
}

}  // namespace

void reset_counters(ProcessGroups& groups) {
  for_each_group(groups, [](size_t, core::Communicator& comm) { comm.reset_counters(); });
}

GroupCounters read_counters(ProcessGroups& groups) {
  GroupCounters counters{};
  for_each_group(groups, [&](size_t group, const core::Communicator& comm) {
    for (size_t op = 0; op < core::kNumCommOps; ++op) counters[group][op] = comm.counter(static_cast<core::CommOp>(op));
  });
  return counters;
}

void record_counters(const GroupCounters& counters, core::trace::Recorder& recorder) {
  if (!recorder.active() || recorder.options().level == core::trace::Level::kLevel0) return;
  const int64_t now = core::trace::now_ns();
  for (size_t group = 0; group < counters.size(); ++group) {
    int64_t calls = 0, bytes = 0;
    for (const core::CommCounter& counter : counters[group]) {
      calls += counter.calls;
      bytes += counter.ring_bytes;
    }
    if (calls == 0) continue;
    recorder.counter(kCallsNames[group], now, static_cast<double>(calls));
    recorder.counter(kBytesNames[group], now, static_cast<double>(bytes));
  }
}

}  // namespace ms::train
