#include "profile/analysis/host_pieces.h"

#include <algorithm>
#include <map>

#include "profile/analysis/step_names.h"

namespace ms::profile {
namespace {

// Beginnings of file names of standard library frames, as the profiler prints them: "threading.py(1032): ...".
constexpr std::string_view kStandardLibrary[] = {"<",
                                                 "abc.py",
                                                 "ast.py",
                                                 "asyncio/",
                                                 "bisect.py",
                                                 "codecs.py",
                                                 "collections/",
                                                 "concurrent/",
                                                 "contextlib.py",
                                                 "copy.py",
                                                 "copyreg.py",
                                                 "ctypes/",
                                                 "dataclasses.py",
                                                 "datetime.py",
                                                 "dis.py",
                                                 "enum.py",
                                                 "fractions.py",
                                                 "functools.py",
                                                 "genericpath.py",
                                                 "glob.py",
                                                 "hashlib.py",
                                                 "heapq.py",
                                                 "importlib/",
                                                 "inspect.py",
                                                 "io.py",
                                                 "json/",
                                                 "linecache.py",
                                                 "logging/",
                                                 "multiprocessing/",
                                                 "numbers.py",
                                                 "operator.py",
                                                 "os.py",
                                                 "pathlib.py",
                                                 "pickle.py",
                                                 "posixpath.py",
                                                 "queue.py",
                                                 "random.py",
                                                 "re.py",
                                                 "re/",
                                                 "selectors.py",
                                                 "shutil.py",
                                                 "socket.py",
                                                 "string.py",
                                                 "subprocess.py",
                                                 "tempfile.py",
                                                 "textwrap.py",
                                                 "threading.py",
                                                 "tokenize.py",
                                                 "traceback.py",
                                                 "types.py",
                                                 "typing.py",
                                                 "uuid.py",
                                                 "warnings.py",
                                                 "weakref.py",
                                                 "torch/",
                                                 "triton/"};

class Cutter {
 public:
  Cutter(const RankTrace& trace, const IntervalSet& idle, std::vector<Column<HostPiece>>& pieces)
      : trace_(trace),
        idle_(idle.intervals()),
        pieces_(pieces),
        user_frame_(trace.names.size(), kNotAsked),
        open_(trace.lanes.size()),
        last_(trace.lanes.size()) {}

  void run(const std::vector<bool>& step_names) {
    std::vector<int64_t> done(trace_.lanes.size(), INT64_MIN);
    const Events& events = trace_.events;
    for (size_t i = 0; i < events.size(); ++i) {
      const Side side = trace_.side(i);
      const bool host = side == Side::kOperator || side == Side::kLaunch || side == Side::kPython ||
                        side == Side::kAnnotation || side == Side::kHost;
      if (!host || events.dur[i] <= 0 || step_names[events.name[i]]) continue;
      const uint16_t lane = events.lane[i];
      advance(lane, events.ts[i], done[lane]);
      while (!open_[lane].empty() && events.end(open_[lane].back().event) <= events.ts[i]) open_[lane].pop_back();
      done[lane] = std::max(done[lane], events.ts[i]);
      open_[lane].push_back(entry(static_cast<uint32_t>(i), side, open_[lane]));
    }
    for (size_t lane = 0; lane < open_.size(); ++lane) {
      advance(static_cast<uint16_t>(lane), INT64_MAX, done[lane]);
      Last& last = last_[lane];
      if (last.known && !last.kept && reaches_idle(last, INT64_MAX)) pieces_[lane].push_back(last.piece);
    }
  }

 private:
  static constexpr uint8_t kNotAsked = UINT8_MAX;

  // An open event, and what is known about its ancestors.
  struct Open {
    uint32_t event;
    uint32_t inner_operator = kNoEvent;  // nearest operator, including itself
    uint32_t outer_operator = kNoEvent;
    uint32_t place = kNoEvent;  // nearest module, user frame or annotation, including itself
    bool launch = false;
  };

  // The newest piece of a lane.
  struct Last {
    HostPiece piece;
    bool known = false, kept = false, overlaps = false;
    size_t gap = 0;  // first idle interval that ends at the piece's end or later
  };

  Open entry(uint32_t event, Side side, const std::vector<Open>& stack) {
    Open out{event};
    if (!stack.empty()) {
      out.inner_operator = stack.back().inner_operator;
      out.outer_operator = stack.back().outer_operator;
      out.place = stack.back().place;
    }
    out.launch = side == Side::kLaunch;
    if (side == Side::kOperator) {
      out.inner_operator = event;
      if (out.outer_operator == kNoEvent) out.outer_operator = event;
    }
    if (side == Side::kAnnotation || (side == Side::kPython && user_frame(trace_.events.name[event])))
      out.place = event;
    return out;
  }

  bool user_frame(NameId name) {
    uint8_t& known = user_frame_[name];
    if (known == kNotAsked) known = is_user_frame(trace_.names[name]) ? 1 : 0;
    return known == 1;
  }

  // Adds pieces for the open events of a lane until `time`, innermost first.
  void advance(uint16_t lane, int64_t time, int64_t& done) {
    std::vector<Open>& stack = open_[lane];
    while (!stack.empty() && done < time) {
      const Open& top = stack.back();
      const int64_t until = std::min(time, trace_.events.end(top.event));
      if (until > done) {
        const uint32_t named = top.launch && top.inner_operator != kNoEvent ? top.inner_operator : top.event;
        add(lane, {done, until, top.event, named, top.place != kNoEvent ? top.place : top.outer_operator});
        done = until;
      }
      if (trace_.events.end(top.event) > time) break;
      stack.pop_back();
    }
  }

  // Whether an idle interval lies between the end of the lane's newest piece and `until`, or touches either.
  bool reaches_idle(const Last& last, int64_t until) const {
    return last.gap < idle_.size() && idle_[last.gap].start <= until;
  }

  void add(uint16_t lane, const HostPiece& piece) {
    Last& last = last_[lane];
    const bool between = reaches_idle(last, piece.start);
    if (between && last.known && !last.kept) pieces_[lane].push_back(last.piece);
    while (last.gap < idle_.size() && idle_[last.gap].end < piece.start) ++last.gap;
    const bool overlaps = reaches_idle(last, piece.end);
    const bool kept = between || overlaps || last.overlaps;
    if (kept) pieces_[lane].push_back(piece);
    while (last.gap < idle_.size() && idle_[last.gap].end < piece.end) ++last.gap;
    last = {piece, true, kept, overlaps, last.gap};
  }

  const RankTrace& trace_;
  const std::vector<Interval>& idle_;
  std::vector<Column<HostPiece>>& pieces_;
  std::vector<uint8_t> user_frame_;  // by name
  std::vector<std::vector<Open>> open_;
  std::vector<Last> last_;  // by lane
};

}  // namespace

bool is_user_frame(std::string_view name) {
  return std::none_of(std::begin(kStandardLibrary), std::end(kStandardLibrary),
                      [&](std::string_view prefix) { return name.starts_with(prefix); });
}

HostPieces::HostPieces(const RankTrace& trace, const DeviceView& view, const IntervalSet& idle)
    : pieces_(trace.lanes.size()) {
  const Events& events = trace.events;
  const std::vector<bool> step = step_names(trace);
  Cutter(trace, idle, pieces_).run(step);

  // Count launches of device events and other calls, to find the threads that submit work.
  std::vector<int64_t> launches(trace.lanes.size()), calls(trace.lanes.size());
  uint16_t main_lane = kNoLane;
  for (const DeviceEvent& device : view.devices) {
    if (device.launch != kNoLaunch) ++launches[events.lane[device.launch]];
  }
  std::vector<bool> backward(trace.lanes.size()), engine(trace.names.size());
  for (NameId name = 0; name < engine.size(); ++name)
    engine[name] = trace.names[name].starts_with("autograd::engine::");
  for (size_t i = 0; i < events.size(); ++i) {
    const Side side = trace.side(i);
    if (step[events.name[i]] && (side == Side::kAnnotation || side == Side::kOperator)) main_lane = events.lane[i];
    if (side != Side::kOperator && side != Side::kLaunch) continue;
    ++calls[events.lane[i]];
    if (side == Side::kOperator && engine[events.name[i]]) backward[events.lane[i]] = true;
  }
  std::vector<uint16_t> order;
  for (size_t lane = 0; lane < launches.size(); ++lane) {
    if (launches[lane] > 0 || backward[lane]) order.push_back(static_cast<uint16_t>(lane));
  }
  std::stable_sort(order.begin(), order.end(), [&](uint16_t a, uint16_t b) {
    return std::pair(launches[a], calls[a]) > std::pair(launches[b], calls[b]);
  });
  if (main_lane == kNoLane && order.empty()) {
    const auto most = std::max_element(calls.begin(), calls.end());
    if (most != calls.end() && *most > 0) main_lane = static_cast<uint16_t>(most - calls.begin());
  }
  if (main_lane != kNoLane) {
    std::erase(order, main_lane);
    order.insert(order.begin(), main_lane);
  }
  work_lanes_ = std::move(order);
}

const HostPiece* HostPieces::at(uint16_t lane, int64_t time) const {
  const auto& pieces = pieces_[lane];
  const auto piece =
      std::partition_point(pieces.begin(), pieces.end(), [&](const HostPiece& p) { return p.end <= time; });
  return piece == pieces.end() || piece->start > time ? nullptr : &*piece;
}

const HostPiece* HostPieces::after(uint16_t lane, int64_t time) const {
  const auto& pieces = pieces_[lane];
  const auto piece =
      std::partition_point(pieces.begin(), pieces.end(), [&](const HostPiece& p) { return p.start < time; });
  return piece == pieces.end() ? nullptr : &*piece;
}

}  // namespace ms::profile
