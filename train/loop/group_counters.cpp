#include "train/loop/group_counters.h"

#include <string>
#include <string_view>

#include "core/error.h"

namespace ms::train {
namespace {

// "tp calls", .. in the order of layout::Group; a recorder keeps views of its names.
std::array<std::string, layout::kNumTrainingGroups> names(std::string_view what) {
  std::array<std::string, layout::kNumTrainingGroups> names;
  for (size_t number = 0; number < names.size(); ++number)
    names[number] = core::cat(layout::group_name(static_cast<layout::Group>(number)), ' ', what);
  return names;
}

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
  static const auto calls_names = names("calls"), bytes_names = names("bytes");
  const int64_t now = core::trace::now_ns();
  for (size_t group = 0; group < counters.size(); ++group) {
    int64_t calls = 0, bytes = 0;
    for (const core::CommCounter& counter : counters[group]) {
      calls += counter.calls;
      bytes += counter.ring_bytes;
    }
    if (calls == 0) continue;
    recorder.counter(calls_names[group], now, static_cast<double>(calls));
    recorder.counter(bytes_names[group], now, static_cast<double>(bytes));
  }
}

}  // namespace ms::train
