#include "profile/analysis/activity.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <set>

namespace ms::profile {
namespace {

constexpr int64_t kRounding = 2000;  // ns; traces in whole microseconds round starts and durations independently

class Builder {
 public:
  Builder(const RankDevices& rank, const RankClock& clock, RankActivities& out)
      : trace_(*rank.trace), view_(*rank.view), clock_(clock), out_(out) {}

  void build() {
    add_unmatched();
    std::sort(out_.comms.begin(), out_.comms.end(), [](auto& a, auto& b) { return a.start < b.start; });
    std::vector<Interval> computing, copying;
    for (const DeviceEvent& device : view_.devices) {
      if (device.device_class == DeviceClass::kComputation) computing.push_back(interval_of(device.event));
      if (device.device_class == DeviceClass::kMemory) copying.push_back(interval_of(device.event));
    }
    const IntervalSet c(std::move(computing)), m(std::move(copying));
    std::vector<Interval> communicating;
    for (const CommSpan& comm : out_.comms) communicating.push_back({comm.start, comm.end});
    const IntervalSet n(std::move(communicating)), cn = unite(c, n), busy = unite(cn, m);
    std::vector<Interval> all = busy.intervals();
    for (const Step& step : view_.steps) all.push_back({common(step.start), common(step.end)});
    if (all.empty()) return;
    Interval span{INT64_MAX, INT64_MIN};
    for (const Interval& i : all) span = {std::min(span.start, i.start), std::max(span.end, i.end)};

    add(c, Doing::kComputing);
    add_communication(subtract(n, c));
    add(subtract(m, cn), Doing::kCopying);
    IntervalSet idle = subtract(IntervalSet({span}), busy);
    for (const auto& [doing, phase] :
         {std::pair(Doing::kLoadingData, HostPhase::kData), std::pair(Doing::kSaving, HostPhase::kCheckpoint)}) {
      std::vector<Interval> shifted;
      const HostPhases phases = host_phases(trace_, phase);
      for (const Interval& i : phases.time.intervals()) shifted.push_back({common(i.start), common(i.end)});
      const IntervalSet time(std::move(shifted));
      add(intersect(idle, time), doing);
      idle = subtract(idle, time);
    }
    add(idle, Doing::kIdle);
    std::sort(out_.activities.begin(), out_.activities.end(), [](auto& a, auto& b) { return a.start < b.start; });
  }

 private:
  int64_t common(int64_t ts) const { return clock_.to_reference(unix_time(trace_, ts)); }
  // Convert both ends: under drift, events that touch in the file must touch here too.
  Interval interval_of(uint32_t event) const {
    return {common(trace_.events.ts[event]), common(trace_.events.end(event))};
  }

  // Operations without a partner in the traces wait for no known rank.
  void add_unmatched() {
    std::set<uint32_t> matched;
    for (const CommSpan& comm : out_.comms) matched.insert(comm.event);
    for (const DeviceEvent& device : view_.devices) {
      if (device.device_class != DeviceClass::kCommunication || matched.count(device.event) != 0) continue;
      const Interval time = interval_of(device.event);
      out_.comms.push_back(
          {time.start, time.end, time.start, time.end, 0, device.event, trace_.events.lane[device.event]});
    }
  }

  void add(const IntervalSet& time, Doing doing) {
    for (const Interval& i : time.intervals()) out_.activities.push_back({i.start, i.end, doing, 0});
  }

  void add_communication(const IntervalSet& exposed) {
    std::set<std::pair<int64_t, uint32_t>> open;  // by end
    uint32_t next = 0;
    const auto count = static_cast<uint32_t>(out_.comms.size());
    for (const Interval& interval : exposed.intervals()) {
      for (int64_t t = interval.start; t < interval.end;) {
        for (; next < count && out_.comms[next].start <= t; ++next) open.insert({out_.comms[next].end, next});
        while (!open.empty() && open.begin()->first <= t) open.erase(open.begin());
        int64_t until = interval.end;
        if (next < count) until = std::min(until, out_.comms[next].start);
        if (!open.empty()) {
          until = std::min(until, open.begin()->first);
          out_.activities.push_back({t, until, Doing::kCommunicating, waited_for(open, t, interval.end)});
        }
        t = until;
      }
    }
  }

  // The open operation that delays the rank at t; computing continues at `resumes`.
  uint32_t waited_for(const std::set<std::pair<int64_t, uint32_t>>& open, int64_t t, int64_t resumes) const {
    uint32_t chosen = open.begin()->second;
    int64_t latest = t;
    for (const auto& [end, comm] : open) {
      if (end > resumes + kRounding) break;
      if (out_.comms[comm].ready <= latest) continue;
      latest = out_.comms[comm].ready;
      chosen = comm;
    }
    return chosen;
  }

  const RankTrace& trace_;
  const DeviceView& view_;
  const RankClock& clock_;
  RankActivities& out_;
};

}  // namespace

namespace {

// Properties shared by the messages between two ranks.
class Links {
 public:
  Links(const std::vector<CommInstance>& messages, const CrossRank& cross) {
    for (const CommInstance& message : messages) {
      const CommPart &send = message.parts[0], &receive = message.parts[1];
      const int64_t s = cross.clocks.ranks[send.rank].to_reference(send.start), sent = s + (send.end - send.start);
      const int64_t r = cross.clocks.ranks[receive.rank].to_reference(receive.start);
      const int64_t received = r + (receive.end - receive.start);
      Link& link = links_[{send.rank, receive.rank}];
      if (sent + kRounding <= r) ++link.returned_before;
      if (s < r && r < sent) ++link.waited;
      link.apart |= std::abs(received - sent) > kRounding;
      const int64_t transfer = std::max<int64_t>(0, std::min(sent, received) - std::max(s, r));
      const auto [best, added] = link.transfers.try_emplace(message.bytes, transfer);
      if (!added) best->second = std::min(best->second, transfer);
    }
    for (auto& [ends, link] : links_) {  // more bytes cannot take less time
      int64_t best = INT64_MAX;
      for (auto size = link.transfers.rbegin(); size != link.transfers.rend(); ++size) {
        best = size->second = std::min(best, size->second);
      }
    }
  }

  // Whether sends are synchronous: of those whose receiver came later, almost none returned before it came; if there
  // are none, all ended together with their receives. "Almost": a start may be recorded late on a busy machine.
  bool synchronous(const CommInstance& message) const {
    const Link& link = of(message);
    if (link.waited + link.returned_before > 0) return link.waited > 4 * link.returned_before;
    return !link.apart;
  }
  // The shortest time in which the link carried at least as many bytes.
  int64_t best_transfer(const CommInstance& message) const { return of(message).transfers.at(message.bytes); }

 private:
  struct Link {
    int64_t returned_before = 0, waited = 0;
    bool apart = false;
    std::map<int64_t, int64_t> transfers;  // by bytes
  };
  const Link& of(const CommInstance& message) const {
    return links_.at({message.parts[0].rank, message.parts[1].rank});
  }
  std::map<std::pair<uint32_t, uint32_t>, Link> links_;
};

}  // namespace

size_t RankActivities::at(int64_t time) const {
  return static_cast<size_t>(
      std::partition_point(activities.begin(), activities.end(), [&](const Activity& a) { return a.end <= time; }) -
      activities.begin());
}

std::vector<RankActivities> activities(const std::vector<RankDevices>& ranks, const MatchedComms& comms,
                                       const CrossRank& cross) {
  std::vector<RankActivities> out(ranks.size());
  const auto start_of = [&](const CommPart& part) { return cross.clocks.ranks[part.rank].to_reference(part.start); };
  uint32_t operation = 0;
  const auto add = [&](const CommPart& part, int64_t ready, uint32_t waits_for, const CommInstance* message,
                       bool waits = true, bool awaited = true) {
    const int64_t start = start_of(part), end = cross.clocks.ranks[part.rank].to_reference(part.end);
    CommSpan span{start, end, std::clamp(ready, start, end), end, waits_for, part.event, 0, message != nullptr};
    span.lane = ranks[part.rank].trace->events.lane[part.event];
    span.operation = operation;
    span.waits = waits;
    span.awaited = awaited;
    if (message != nullptr) {
      span.source = message->parts[0].rank;
      span.destination = message->parts[1].rank;
    }
    out[part.rank].comms.push_back(span);
  };
  for (const CommInstance& instance : comms.collectives) {
    ++operation;
    const CommPart* last = &instance.parts[0];
    for (const CommPart& part : instance.parts) {
      if (start_of(part) > start_of(*last)) last = &part;
    }
    if (instance.kind == CommKind::kRooted) {  // data moves only towards the root, or from it
      const bool outward = instance.type == "broadcast" || instance.type == "scatter";
      for (const CommPart& part : instance.parts) {
        const bool root = static_cast<int>(part.rank) == instance.root;
        if (instance.root < 0 || root == outward) {
          add(part, start_of(part), part.rank, nullptr, false, instance.root >= 0);
          continue;
        }
        const CommPart* awaited = last;
        for (const CommPart& other : instance.parts) {
          if (outward && static_cast<int>(other.rank) == instance.root) awaited = &other;
        }
        add(part, start_of(*awaited), awaited->rank, nullptr, true, !outward);
      }
      continue;
    }
    for (const CommPart& part : instance.parts) add(part, start_of(*last), last->rank, nullptr);
  }
  const Links links(comms.messages, cross);
  for (const CommInstance& message : comms.messages) {
    ++operation;
    const CommPart &send = message.parts[0], &receive = message.parts[1];
    const bool waits = links.synchronous(message);
    add(send, waits ? start_of(receive) : start_of(send), receive.rank, &message, waits);
    add(receive, start_of(send), send.rank, &message);
    for (const CommPart* part : {&send, &receive}) {
      CommSpan& span = out[part->rank].comms.back();
      span.done = std::min(span.end, span.ready + links.best_transfer(message));
    }
  }
  for (size_t r = 0; r < ranks.size(); ++r) Builder(ranks[r], cross.clocks.ranks[r], out[r]).build();
  return out;
}

}  // namespace ms::profile
