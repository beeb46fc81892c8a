#include "profile/analysis/steps.h"

#include <algorithm>
#include <charconv>
#include <map>

#include "core/error.h"

namespace ms::profile {

const StepColumn kStepColumns[kNumStepTimes] = {
    {"Computing", "computing", &StepTimes::computing},
    {"Communication(Not Overlapped)", "communication_not_overlapped", &StepTimes::communication_not_overlapped},
    {"Overlapped", "overlapped", &StepTimes::overlapped},
    {"Communication", "communication", &StepTimes::communication},
    {"Free", "free", &StepTimes::free},
    {"Stage", "stage", &StepTimes::stage},
    {"Bubble", "bubble", &StepTimes::bubble},
    {"Communication(Not Overlapped and Exclude Receive)", "communication_not_overlapped_exclude_receive",
     &StepTimes::communication_not_overlapped_exclude_receive},
    {"Preparing", "preparing", &StepTimes::preparing},
};

namespace {

bool is_receive(const RankTrace& trace, uint32_t event) {
  if (const uint32_t comm = trace.events.comm[event]; comm != 0) {
    return trace.names[trace.comms[comm].op] == "recv";
  }
  return trace.names[trace.events.name[event]].starts_with("hcom_receive");
}

}  // namespace

std::vector<StepRow> step_rows(const RankTrace& trace, const DeviceView& view) {
  struct Parts {
    std::vector<Interval> computing, communication;
    int64_t start = INT64_MAX, end = INT64_MIN, receives = 0;
  };
  std::vector<Parts> parts(view.steps.size());
  for (const DeviceEvent& device : view.devices) {
    if (device.step == kNoStep || device.device_class == DeviceClass::kMemory) continue;
    Parts& step = parts[static_cast<size_t>(device.step)];
    const Interval interval{trace.events.ts[device.event], trace.events.end(device.event)};
    (device.device_class == DeviceClass::kComputation ? step.computing : step.communication).push_back(interval);
    step.start = std::min(step.start, interval.start);
    step.end = std::max(step.end, interval.end);
    if (is_receive(trace, device.event)) step.receives += interval.end - interval.start;
  }
  std::vector<StepRow> rows;
  for (size_t i = 0; i < parts.size(); ++i) {
    const Step& step = view.steps[i];
    StepRow row;
    row.step = step.number;
    row.host_ns = step.end - step.start;
    StepTimes& t = row.times;
    const int64_t start = parts[i].start == INT64_MAX ? step.start : parts[i].start;
    const int64_t end = std::max(parts[i].end, step.end);
    const IntervalSet c(std::move(parts[i].computing)), n(std::move(parts[i].communication));
    t.computing = c.length();
    t.communication = n.length();
    t.overlapped = intersect(c, n).length();
    t.communication_not_overlapped = t.communication - t.overlapped;
    t.free = end - start - (t.computing + t.communication_not_overlapped);
    t.bubble = parts[i].receives;
    t.stage = end - start - t.bubble;
    t.communication_not_overlapped_exclude_receive = std::max<int64_t>(0, t.communication_not_overlapped - t.bubble);
    t.preparing = start - step.start;
    MS_CHECK(t.free >= 0, "step ", step.number, ": free ", t.free, " ns");
    rows.push_back(row);
  }
  return rows;
}

LayoutIndex layout_index(const RankTrace& trace) {
  LayoutIndex out;
  for (size_t i = 1; i < trace.comms.size(); ++i) {
    const CommArgs& comm = trace.comms[i];
    const std::string& group = trace.names[comm.group];
    int64_t* index = group == "tp" ? &out.tp : group == "pp" ? &out.pp : group == "dp" ? &out.dp : nullptr;
    if (index == nullptr) continue;
    // "[0, 2]": the position of this rank.
    const std::string& text = trace.names[comm.ranks];
    int64_t position = 0;
    for (const char *p = text.data(), *end = p + text.size(); p < end;) {
      int64_t rank = 0;
      const auto [next, error] = std::from_chars(p, end, rank);
      if (error != std::errc()) {
        ++p;
        continue;
      }
      if (rank == trace.rank) *index = position;
      ++position;
      p = next;
    }
  }
  return out;
}

ClusterSteps cluster_steps(const std::vector<RankSteps>& ranks) {
  std::map<int64_t, std::vector<std::pair<const RankSteps*, const StepTimes*>>> by_step;
  for (const RankSteps& rank : ranks) {
    for (const StepRow& row : rank.rows) by_step[row.step].emplace_back(&rank, &row.times);
  }
  ClusterSteps out;
  for (const auto& [step, members] : by_step) {
    std::map<int64_t, StageRow> stages;  // by pipeline position
    for (const auto& [rank, times] : members) {
      StageRow& stage = stages[rank->layout.pp];
      stage.step = step;
      stage.ranks.push_back(rank->rank);
      for (const StepColumn& column : kStepColumns) {
        stage.times.*column.time = std::max(stage.times.*column.time, times->*column.time);
      }
    }
    for (auto& [pp, stage] : stages) out.stages.push_back(std::move(stage));
    if (members.size() < 2) continue;
    const auto spread = [&members = members](int64_t StepTimes::*time) {
      int64_t low = INT64_MAX, high = INT64_MIN, sum = 0;
      for (const auto& [rank, times] : members) {
        low = std::min(low, times->*time);
        high = std::max(high, times->*time);
        sum += times->*time;
      }
      return sum == 0
                 ? -1.0
                 : static_cast<double>(high - low) * static_cast<double>(members.size()) / static_cast<double>(sum);
    };
    out.spread.push_back({step, spread(&StepTimes::computing), spread(&StepTimes::communication_not_overlapped),
                          spread(&StepTimes::free)});
  }
  return out;
}

}  // namespace ms::profile
