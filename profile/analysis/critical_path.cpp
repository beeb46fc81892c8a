#include "profile/analysis/critical_path.h"

#include <algorithm>
#include <map>
#include <regex>
#include <set>
#include <unordered_map>

#include "core/error.h"
#include "core/expression.h"
#include "profile/analysis/hta_streams.h"
#include "profile/analysis/operators.h"

namespace ms::profile {
namespace {

using core::cat;
using core::Error;
using core::ErrorCode;

constexpr uint32_t kNoEvent = UINT32_MAX;
constexpr int64_t kLongestKernelDelay = 1'500'000;  // ns; a longer gap between kernels has another cause
constexpr int64_t kRounding = 1'000;                // ns: traces in whole microseconds
constexpr size_t kMaxName = 1024;                   // of names that are matched: matching is recursive

struct Edge {
  uint32_t from = 0, to = 0;
  int64_t weight = 0;
  PathEdge type = PathEdge::kOperator;
  uint32_t event = kNoEvent;  // event that the weight is attributed to
};

// Nodes 2 i and 2 i + 1 are the start and the end of the i-th event of `events`.
class Graph {
 public:
  Graph(const RankTrace& trace, bool hta) : trace_(trace), hta_(hta) {}

  void add_event(uint32_t event) {
    if (index_.try_emplace(event, static_cast<uint32_t>(events_.size())).second) events_.push_back(event);
  }
  bool has(uint32_t event) const { return index_.count(event) != 0; }
  uint32_t start(uint32_t event) const { return 2 * index_.at(event); }
  uint32_t end(uint32_t event) const { return 2 * index_.at(event) + 1; }
  uint32_t event_of(uint32_t node) const { return events_[node / 2]; }
  bool is_start(uint32_t node) const { return node % 2 == 0; }
  int64_t time(uint32_t node) const {
    const uint32_t event = events_[node / 2];
    return is_start(node) ? trace_.events.ts[event] : trace_.events.end(event);
  }
  void add_edge(Edge edge) {
    if (edge.weight < 0) {
      if (edge.weight < -kRounding && !hta_ && problem_.empty()) {
        problem_ = cat(name(edge.from), " must end before ", name(edge.to), ", and ends ", -edge.weight, " ns later");
      }
      edge.weight = 0;
    }
    edges_.push_back(edge);
  }
  size_t num_nodes() const { return 2 * events_.size(); }
  const std::vector<Edge>& edges() const { return edges_; }
  const std::string& problem() const { return problem_; }
  std::string name(uint32_t node) const {
    return cat(trace_.names[trace_.events.name[event_of(node)]], is_start(node) ? " (start)" : " (end)", " at ",
               time(node), " ns");
  }

 private:
  const RankTrace& trace_;
  const bool hta_;
  std::vector<uint32_t> events_;
  std::unordered_map<uint32_t, uint32_t> index_;
  std::vector<Edge> edges_;
  std::string problem_;
};

class Builder {
 public:
  Builder(const RankTrace& trace, const DeviceView& view, const PathOptions& options)
      : trace_(trace),
        events_(trace.events),
        view_(view),
        options_(options),
        classes_(trace),
        graph_(trace, options.hta) {}

  CriticalPath build() {
    find_window();
    collect();
    for (const std::vector<uint32_t>& thread : threads_) walk(thread);
    lock_runtime();
    add_devices();
    return solve();
  }

 private:
  const std::string& name(uint32_t event) const { return trace_.names[events_.name[event]]; }
  bool in_window(int64_t ts) const { return ts >= out_.window_start && ts <= out_.window_end; }

  void find_window() {
    if (options_.annotation.empty()) {
      out_.window_start = trace_.first_ts;
      out_.window_end = trace_.last_end;
      return;
    }
    std::vector<bool> wanted(trace_.names.size());
    for (NameId id = 0; id < trace_.names.size(); ++id) {
      wanted[id] = trace_.names[id].find(options_.annotation) != std::string::npos;
    }
    int64_t found = 0;
    for (uint32_t i = 0; i < events_.size(); ++i) {
      if (!wanted[events_.name[i]] || trace_.side(i) == Side::kPseudo) continue;
      if (found >= options_.first && found <= options_.last) {
        if (found == options_.first) out_.window_start = events_.ts[i];
        out_.window_end = std::max(out_.window_end, events_.end(i));
      }
      ++found;
    }
    if (found > options_.first) return;
    throw Error(ErrorCode::kNotFound, found == 0 ? cat("--annotation ", options_.annotation,
                                                       ": no event has this in its name; \"\" takes the whole trace")
                                                 : cat("--instance ", options_.first, ": there are ", found, " of ",
                                                       options_.annotation, ", counted from 0"));
  }

  bool is_blocking(uint32_t event) const {
    std::string_view call = name(event);
    if (call.starts_with("hip") && !options_.hta) {
      call.remove_prefix(3);
    } else if (call.starts_with("cuda")) {
      call.remove_prefix(4);
    } else {
      return false;
    }
    return call == "DeviceSynchronize" || call == "StreamSynchronize" || call == "EventQuery" ||
           call == "EventSynchronize" || call == "Memcpy" || call == "MemcpyAsync";
  }

  bool takes_lock(uint32_t event) const {
    const std::string& call = name(event);
    return call == "cudaLaunchKernel" || call == "cudaHostAlloc" || call == "cudaMemcpyAsync";
  }

  // Collects operators, launches and data loading in the window, by thread, in nesting order.
  void collect() {
    std::vector<bool> loads(trace_.names.size()), step(trace_.names.size());
    const std::string data_load =
        options_.data_load.value_or(options_.hta ? "" : "enumerate\\((DataLoader|DataPipe)\\)#");
    if (!data_load.empty()) {
      const std::regex expression =
          core::user_expression(data_load, /*ignore_case=*/false, ErrorCode::kInvalidArgument, "--data-load");
      for (NameId id = 0; id < trace_.names.size(); ++id) {
        const std::string_view part = std::string_view(trace_.names[id]).substr(0, kMaxName);
        loads[id] = std::regex_search(part.begin(), part.end(), expression);
      }
    }
    for (NameId id = 0; id < trace_.names.size(); ++id) step[id] = trace_.names[id].starts_with("ProfilerStep#");
    std::set<size_t> forward, backward;
    std::vector<std::vector<uint32_t>> lanes = nested_events(trace_, Nesting::kAll);
    for (size_t lane = 0; lane < lanes.size(); ++lane) {
      std::erase_if(lanes[lane], [&](uint32_t i) {
        if (!in_window(events_.ts[i]) || events_.dur[i] <= 0) return true;
        const std::string& text = name(i);
        if (text.find("autograd") != std::string::npos) backward.insert(lane);
        if (text.find("forward") != std::string::npos) forward.insert(lane);
        const Side side = trace_.side(i);
        const bool work = side == Side::kLaunch || (side == Side::kOperator && !step[events_.name[i]]);
        if (options_.hta && trace_.details[events_.details[i]].names_stream) return true;  // HTA treats it as a kernel
        return !work && !loads[events_.name[i]];
      });
      for (const uint32_t i : lanes[lane]) {
        graph_.add_event(i);
        if (loads[events_.name[i]]) loading_.insert(i);
      }
    }
    // The autograd thread runs while the forward thread waits for it: treat both as one thread.
    if (forward.size() == 1 && backward.size() == 1 && *forward.begin() != *backward.begin()) {
      std::vector<uint32_t>& main = lanes[*forward.begin()];
      std::vector<uint32_t>& other = lanes[*backward.begin()];
      std::vector<uint32_t> merged(main.size() + other.size());
      std::merge(main.begin(), main.end(), other.begin(), other.end(), merged.begin(),
                 [&](uint32_t a, uint32_t b) { return events_.ts[a] < events_.ts[b]; });
      if (nests_well(merged)) {
        main = std::move(merged);
        other.clear();
      }
    }
    for (std::vector<uint32_t>& lane : lanes) {
      if (!lane.empty()) threads_.push_back(std::move(lane));
    }
  }

  bool nests_well(const std::vector<uint32_t>& thread) const {
    std::vector<int64_t> open;
    for (const uint32_t i : thread) {
      while (!open.empty() && open.back() <= events_.ts[i]) open.pop_back();
      if (!open.empty() && events_.end(i) - open.back() > kRounding) return false;
      open.push_back(events_.end(i));
    }
    return true;
  }

  // Links the nodes of one thread in time order, with an edge between consecutive ones.
  void walk(const std::vector<uint32_t>& thread) {
    constexpr uint32_t kNone = UINT32_MAX;
    uint32_t last = kNone, last_top = kNone;
    std::vector<uint32_t> open;
    const auto leave = [&] {
      const uint32_t event = open.back(), node = graph_.end(event);
      open.pop_back();
      // From its own start, or after its last child, this is the event's own work. A call that only takes the runtime's
      // lock does not wait.
      const bool only_locks = takes_lock(event) && last == graph_.start(event);
      link(last, node, event, is_blocking(event) && !only_locks);
      last = node;
      if (open.empty()) {
        last_top = node;
        last = kNone;
      }
    };
    for (const uint32_t event : thread) {
      while (!open.empty() && events_.end(open.back()) <= events_.ts[event]) leave();
      const uint32_t node = graph_.start(event);
      if (open.empty()) {
        if (last_top != kNone) graph_.add_edge({last_top, node, 0, PathEdge::kDependency, kNoEvent});
      } else {
        link(last, node, open.back(), false);
      }
      open.push_back(event);
      last = node;
    }
    while (!open.empty()) leave();
  }

  void link(uint32_t from, uint32_t to, uint32_t owner, bool waits) {
    const int64_t weight = waits ? 0 : graph_.time(to) - graph_.time(from);
    graph_.add_edge({from, to, weight, PathEdge::kOperator, owner});
  }

  // Calls that take the runtime's lock and overlap across threads: they held the lock in the order of their ends.
  void lock_runtime() {
    struct Call {
      uint32_t event;
      uint16_t lane;
    };
    std::vector<Call> calls;
    for (uint32_t i = 0; i < events_.size(); ++i) {
      if (!graph_.has(i) || trace_.side(i) != Side::kLaunch) continue;
      if (takes_lock(i)) calls.push_back({i, events_.lane[i]});
    }
    std::vector<Call> overlapping;
    const auto flush = [&] {
      std::set<uint16_t> lanes;
      for (const Call& call : overlapping) lanes.insert(call.lane);
      if (lanes.size() > 1) {
        std::sort(overlapping.begin(), overlapping.end(),
                  [&](const Call& a, const Call& b) { return events_.end(a.event) < events_.end(b.event); });
        for (size_t i = 0; i + 1 < overlapping.size(); ++i) {
          const uint32_t end = graph_.end(overlapping[i].event), next = overlapping[i + 1].event;
          graph_.add_edge({end, graph_.end(next), 0, PathEdge::kDependency, kNoEvent});
          if (overlapping[i].lane != overlapping[i + 1].lane && events_.ts[next] <= events_.end(overlapping[i].event)) {
            graph_.add_edge({graph_.start(next), end, 0, PathEdge::kDependency, kNoEvent});
          }
        }
      }
      overlapping.clear();
    };
    int64_t end = INT64_MIN;
    for (const Call& call : calls) {  // by start
      if (events_.ts[call.event] >= end) flush();
      end = std::max(overlapping.empty() ? INT64_MIN : end, events_.end(call.event));
      overlapping.push_back(call);
    }
    flush();
  }

  struct Launch {
    uint32_t kernel = 0;
    int64_t ts = 0;
    uint16_t thread = 0;
  };

  // Of the kernels that one graph launch starts, HTA sees only the last in the file.
  bool is_known(const DeviceEvent& device) const {
    if (device.launch == kNoLaunch || last_of_launch_.empty()) return device.launch != kNoLaunch;
    return last_of_launch_.at(device.launch) == events_.file_order[device.event];
  }

  // Computes the length of each stream's queue after a launch and after the start of its kernel.
  void count_queues() {
    struct Change {
      int64_t ts;
      int step;
      uint32_t device;
    };
    std::map<uint16_t, std::vector<Change>> streams;
    for (uint32_t d = 0; d < view_.devices.size(); ++d) {
      const DeviceEvent& device = view_.devices[d];
      if (device.launch == kNoLaunch || (options_.hta && !hta_queues(name(device.launch)))) continue;
      const uint16_t stream = events_.lane[device.event];
      streams[stream].push_back({events_.ts[device.launch], 1, d});
      streams[stream].push_back({events_.ts[device.event], -1, d});
      launches_[stream].push_back({device.event, events_.ts[device.launch], events_.lane[device.launch]});
    }
    at_launch_.resize(view_.devices.size());
    at_start_.resize(view_.devices.size());
    for (auto& [stream, changes] : streams) {
      std::stable_sort(changes.begin(), changes.end(),
                       [](const Change& a, const Change& b) { return a.ts != b.ts ? a.ts < b.ts : a.step > b.step; });
      int64_t length = 0;
      for (const Change& change : changes) {
        length += change.step;
        (change.step > 0 ? at_launch_ : at_start_)[change.device] = length;
      }
    }
    for (auto& [stream, launches] : launches_) {
      std::stable_sort(launches.begin(), launches.end(), [](const Launch& a, const Launch& b) { return a.ts < b.ts; });
    }
  }

  // The call with this correlation and name.
  uint32_t call_with(uint32_t correlation) const {
    const auto found = calls_.find(correlation);
    return found == calls_.end() ? kNoEvent : found->second;
  }
  uint16_t stream_lane(uint16_t like, int64_t stream) const {
    for (size_t i = 0; i < trace_.lanes.size(); ++i) {
      const Lane& lane = trace_.lanes[i];
      if (lane.device && lane.process == trace_.lanes[like].process && lane.id == stream)
        return static_cast<uint16_t>(i);
    }
    return UINT16_MAX;
  }
  // The last kernel launched on a stream before a time; the first one launched by a thread on a stream from a time on.
  uint32_t launched_before(uint16_t stream, int64_t ts) {
    const std::vector<Launch>& launches = launches_[stream];
    const auto from = first_launch(launches, ts);
    return from == launches.begin() ? kNoEvent : std::prev(from)->kernel;
  }
  uint32_t launched_after(uint16_t thread, uint16_t stream, int64_t ts) {
    const std::vector<Launch>& launches = launches_[stream];
    const auto found = std::find_if(first_launch(launches, ts), launches.end(),
                                    [&](const Launch& launch) { return launch.thread == thread; });
    return found == launches.end() ? kNoEvent : found->kernel;
  }
  static std::vector<Launch>::const_iterator first_launch(const std::vector<Launch>& launches, int64_t ts) {
    return std::lower_bound(launches.begin(), launches.end(), ts,
                            [](const Launch& launch, int64_t limit) { return launch.ts < limit; });
  }

  // The kernel that an event synchronisation waits for.
  uint32_t recorded_kernel(uint32_t sync) {
    const Details& details = trace_.details[events_.details[sync]];
    const uint32_t record = call_with(details.wait_correlation);
    if (record == kNoEvent || details.wait_stream < 0) return kNoEvent;
    const uint16_t stream = stream_lane(events_.lane[sync], details.wait_stream);
    return stream == UINT16_MAX ? kNoEvent : launched_before(stream, events_.ts[record]);
  }

  void add_devices() {
    count_queues();
    struct Item {
      int64_t by;
      uint32_t event;
      uint32_t device;  // index of view_.devices, or kNoEvent for a synchronisation
    };
    std::vector<Item> items;
    for (const DeviceEvent& device : view_.devices) {
      if (!options_.hta || events_.file_order.empty() || device.launch == kNoLaunch) continue;
      uint32_t& last = last_of_launch_[device.launch];
      last = std::max(last, events_.file_order[device.event]);
    }
    for (uint32_t d = 0; d < view_.devices.size(); ++d) {
      const DeviceEvent& device = view_.devices[d];
      if (!is_known(device) || !in_window(events_.ts[device.launch]) || events_.dur[device.launch] <= 0) continue;
      items.push_back({events_.ts[device.event], device.event, d});
    }
    for (uint32_t i = 0; i < events_.size(); ++i) {
      const Side side = trace_.side(i);
      if (side == Side::kLaunch && events_.correlation[i] != 0) calls_.try_emplace(events_.correlation[i], i);
    }
    for (uint32_t i = 0; i < events_.size(); ++i) {
      if (trace_.side(i) != Side::kDeviceSync || trace_.details[events_.details[i]].sync_kind == 0) continue;
      const uint32_t call = call_with(events_.correlation[i]);
      const bool waits_on_stream =
          trace_.details[events_.details[i]].sync_kind == static_cast<uint8_t>(SyncKind::kStreamWaitEvent);
      if (call == kNoEvent || (!in_window(events_.ts[call]) && !waits_on_stream)) continue;
      items.push_back({events_.end(i), i, kNoEvent});
    }
    std::stable_sort(items.begin(), items.end(), [](const Item& a, const Item& b) { return a.by < b.by; });
    for (const Item& item : items) {
      if (item.device != kNoEvent) graph_.add_event(item.event);
    }
    for (const Item& item : items) {
      if (item.device == kNoEvent) {
        synchronise(item.event);
      } else {
        add_kernel(item.device);
      }
    }
  }

  void sync_host(uint32_t kernel, uint32_t call) {
    if (graph_.has(kernel) && graph_.has(call)) {
      graph_.add_edge({graph_.end(kernel), graph_.end(call), 0, PathEdge::kSync, kNoEvent});
    }
  }

  void synchronise(uint32_t sync) {
    const uint32_t call = call_with(events_.correlation[sync]);
    switch (static_cast<SyncKind>(trace_.details[events_.details[sync]].sync_kind)) {
      case SyncKind::kContext:
        for (const auto& [stream, kernel] : last_on_stream_) sync_host(kernel, call);
        return;
      case SyncKind::kStream:
        if (const auto found = last_on_stream_.find(events_.lane[sync]); found != last_on_stream_.end()) {
          sync_host(found->second, call);
        }
        return;
      case SyncKind::kEvent:
        if (const uint32_t kernel = recorded_kernel(sync); kernel != kNoEvent) sync_host(kernel, call);
        return;
      case SyncKind::kStreamWaitEvent: {
        const uint32_t source = recorded_kernel(sync);
        if (source == kNoEvent) return;
        const uint32_t next = launched_after(events_.lane[call], events_.lane[sync], events_.ts[call]);
        if (next != kNoEvent && next != source) waits_for_[next] = source;
        return;
      }
      case SyncKind::kNone:
        return;
    }
  }

  void add_kernel(uint32_t d) {
    const DeviceEvent& device = view_.devices[d];
    const uint32_t event = device.event, start = graph_.start(event);
    const int64_t launch_ts = events_.ts[device.launch];
    graph_.add_edge({start, graph_.end(event), events_.dur[event], PathEdge::kOperator, event});

    uint32_t source = kNoEvent;
    if (const auto found = waits_for_.find(event); found != waits_for_.end() && graph_.has(found->second)) {
      source = found->second;
      graph_.add_edge({graph_.end(source), start, 0, PathEdge::kSync, kNoEvent});
    }
    const auto before = last_on_stream_.find(events_.lane[event]);
    const uint32_t previous = before == last_on_stream_.end() ? kNoEvent : before->second;
    const bool launched = graph_.has(device.launch);
    const bool empty = at_launch_[d] == 1 && at_start_[d] == 0;
    if (launched && empty && (previous == kNoEvent || events_.end(previous) < launch_ts) &&
        (source == kNoEvent || events_.end(source) < launch_ts)) {
      graph_.add_edge(
          {graph_.start(device.launch), start, events_.ts[event] - launch_ts, PathEdge::kLaunchDelay, kNoEvent});
    } else {
      if (previous != kNoEvent && (source == kNoEvent || events_.end(source) < events_.end(previous))) {
        const int64_t gap = events_.ts[event] - events_.end(previous);
        if (gap < -kRounding && !options_.hta) {  // did not wait for the end; both ran, as dependent launches do
          graph_.add_edge(
              {graph_.start(previous), start, events_.ts[event] - events_.ts[previous], PathEdge::kOperator, previous});
        } else if (gap < kLongestKernelDelay) {
          graph_.add_edge({graph_.end(previous), start, gap, PathEdge::kKernelKernelDelay, previous});
        }
      }
      if (launched) {
        graph_.add_edge({graph_.start(device.launch), start, 0, PathEdge::kLaunchDelay, kNoEvent});
      }
    }
    last_on_stream_[events_.lane[event]] = event;
  }

  CriticalPath solve() {
    const size_t n = graph_.num_nodes();
    const std::vector<Edge>& edges = graph_.edges();
    out_.nodes = static_cast<int64_t>(n);
    out_.edges = static_cast<int64_t>(edges.size());
    for (const Edge& edge : edges) ++out_.edges_by_type[static_cast<size_t>(edge.type)];
    if (n == 0) {
      out_.problem = "the window holds no operators and no launched device events";
      return std::move(out_);
    }
    out_.problem = graph_.problem();
    if (!out_.problem.empty()) return std::move(out_);

    // One topological pass, ready nodes in time order: the largest distance to each node; among equals the first
    // predecessor.
    std::vector<uint32_t> first_out(n + 1), waiting(n), by_source(edges.size());
    for (const Edge& edge : edges) {
      ++first_out[edge.from + 1];
      ++waiting[edge.to];
    }
    for (size_t v = 0; v < n; ++v) first_out[v + 1] += first_out[v];
    {
      std::vector<uint32_t> at(first_out.begin(), first_out.end() - 1);
      for (uint32_t e = 0; e < edges.size(); ++e) by_source[at[edges[e].from]++] = e;
    }
    constexpr uint32_t kNone = UINT32_MAX;
    std::vector<int64_t> distance(n, 0);
    std::vector<uint32_t> via(n, kNone), order;
    for (uint32_t v = 0; v < n; ++v) {
      if (waiting[v] == 0) order.push_back(v);
    }
    for (size_t i = 0; i < order.size(); ++i) {
      const uint32_t v = order[i];
      for (uint32_t k = first_out[v]; k < first_out[v + 1]; ++k) {
        const Edge& edge = edges[by_source[k]];
        const int64_t reached = distance[v] + edge.weight;
        const uint32_t old = via[edge.to];
        if (old == kNone || reached > distance[edge.to] || (reached == distance[edge.to] && v < edges[old].from)) {
          distance[edge.to] = reached;
          via[edge.to] = by_source[k];
        }
        if (--waiting[edge.to] == 0) order.push_back(edge.to);
      }
    }
    if (order.size() < n) {
      const auto stuck = std::find_if(waiting.begin(), waiting.end(), [](uint32_t w) { return w > 0; });
      out_.problem =
          cat("its dependencies are circular: ", graph_.name(static_cast<uint32_t>(stuck - waiting.begin())));
      return std::move(out_);
    }
    uint32_t node = order[0];
    for (const uint32_t v : order) {
      if (distance[v] > distance[node]) node = v;
    }
    out_.success = true;
    out_.length = distance[node];
    std::map<uint32_t, int64_t> on_path;
    std::set<uint32_t> passed{graph_.event_of(node)};
    ++out_.path_nodes;
    for (; via[node] != kNone; node = edges[via[node]].from) {
      const Edge& edge = edges[via[node]];
      ++out_.path_edges;
      ++out_.path_nodes;
      passed.insert(graph_.event_of(edge.from));
      if (edge.event != kNoEvent) on_path[edge.event] += edge.weight;
      out_.bound_ns[static_cast<size_t>(bound_of(edge))] += edge.weight;
    }
    out_.path_events = static_cast<int64_t>(passed.size());
    for (const uint32_t event : passed) on_path.try_emplace(event, 0);
    for (const auto& [event, ns] : on_path) out_.events.push_back({event, ns});
    return std::move(out_);
  }

  PathBound bound_of(const Edge& edge) {
    switch (edge.type) {
      case PathEdge::kKernelKernelDelay:
        return PathBound::kKernelKernel;
      case PathEdge::kLaunchDelay:
        return PathBound::kLaunch;
      case PathEdge::kDependency:
      case PathEdge::kSync:
        return PathBound::kNone;
      case PathEdge::kOperator:
        break;
    }
    const Side side = trace_.side(edge.event);
    if (!on_device(side)) return loading_.count(edge.event) != 0 ? PathBound::kDataLoading : PathBound::kHost;
    if (classes_(edge.event) == DeviceClass::kCommunication) return PathBound::kCommunication;
    return side == Side::kDeviceCopy && !options_.hta ? PathBound::kMemory : PathBound::kComputing;
  }

  const RankTrace& trace_;
  const Events& events_;
  const DeviceView& view_;
  const PathOptions& options_;
  DeviceClasses classes_;
  Graph graph_;
  CriticalPath out_;
  std::vector<std::vector<uint32_t>> threads_;
  std::set<uint32_t> loading_;
  std::map<uint16_t, std::vector<Launch>> launches_;  // by stream, sorted by time
  std::vector<int64_t> at_launch_, at_start_;
  std::unordered_map<uint32_t, uint32_t> last_of_launch_;  // by launch: file position of its last device event
  std::unordered_map<uint32_t, uint32_t> calls_;           // by correlation
  std::map<uint16_t, uint32_t> last_on_stream_;            // last kernel so far in the pass over time
  std::unordered_map<uint32_t, uint32_t> waits_for_;       // kernel -> kernel on another stream
};

}  // namespace

const char* path_edge_name(PathEdge edge) {
  constexpr const char* kNames[] = {"critical_path_operator", "critical_path_dependency",
                                    "critical_path_kernel_launch_delay", "critical_path_kernel_kernel_delay",
                                    "critical_path_sync_dependency"};
  return kNames[static_cast<size_t>(edge)];
}

const char* path_bound_name(PathBound bound) {
  constexpr const char* kNames[] = {"",
                                    "cpu_bound",
                                    "data_loading",
                                    "gpu_compute_bound",
                                    "gpu_communication_bound",
                                    "gpu_memory_bound",
                                    "gpu_kernel_kernel_overhead",
                                    "gpu_kernel_launch_overhead"};
  return kNames[static_cast<size_t>(bound)];
}

CriticalPath critical_path(const RankTrace& trace, const DeviceView& view, const PathOptions& options) {
  return Builder(trace, view, options).build();
}

}  // namespace ms::profile
