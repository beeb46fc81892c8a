#include "profile/report/report_data.h"

#include <algorithm>
#include <map>

#include "profile/analysis/cross_rank.h"
#include "profile/analysis/curves.h"
#include "profile/analysis/experts.h"
#include "profile/analysis/kernel_spread.h"
#include "profile/report/html_text.h"
#include "profile/report/json_writer.h"
#include "profile/report/table.h"

namespace ms::profile {
namespace {

constexpr size_t kMaxSteps = 6000, kMaxStepsOfRank = 200;
constexpr size_t kCurvePoints = 4000, kMaxCurvePoints = 300, kMinCurvePoints = 40, kMaxCurves = 3;
constexpr size_t kMaxKernels = 30, kMaxCollectives = 400;
constexpr size_t kMaxExpertLayers = 128, kMaxExpertColumns = 512;
constexpr size_t kNameWidth = 80;

void write_steps(JsonWriter& json, const PerStep& steps, size_t max_steps) {
  int64_t all = 0;
  size_t written = 0;
  json.key("steps").begin_array();
  for (const StepBreakdown& row : steps.rows) {
    if (!row.devices) continue;
    ++all;
    if (written++ >= max_steps) continue;
    const Breakdown& b = *row.devices;
    json.begin_array();
    for (const int64_t value : {row.step.number, row.step.end - row.step.start, b.span, b.computing,
                                b.exposed_communication, b.exposed_memory, b.idle}) {
      json.value(value);
    }
    json.end_array();
  }
  json.end_array();
  json.key("steps_in_trace").value(all);
}

// The curves with the highest peaks.
void write_curves(JsonWriter& json, const RankTrace& trace, std::vector<Curve> curves) {
  std::vector<std::pair<int64_t, size_t>> order;
  for (size_t i = 0; i < curves.size(); ++i) {
    int64_t most = 0;
    for (const CurvePoint& point : curves[i].points) most = std::max(most, point.value);
    if (most > 0) order.emplace_back(-most, i);
  }
  std::sort(order.begin(), order.end());
  for (size_t i = 0; i < std::min(order.size(), kMaxCurves); ++i) {
    const Curve& curve = curves[order[i].second];
    json.begin_object();
    json.key("name").value(curve.name);
    json.key("unit").value(curve.unit == Curve::Unit::kBytes ? "bytes" : "launches");
    json.key("t").begin_array();
    int64_t before = trace.first_ts;
    for (const CurvePoint& point : curve.points) {
      json.value(point.ts - before);
      before = point.ts;
    }
    json.end_array();
    json.key("v").begin_array();
    for (const CurvePoint& point : curve.points) json.value(point.value);
    json.end_array();
    json.end_object();
  }
}

void write_kernels(JsonWriter& json, const Results& results, const std::vector<ShownRank>& shown) {
  json.key("kernels").begin_array();
  if (const auto* spread = results.get<KernelSpread>(); spread != nullptr && results.ranks.size() > 1) {
    for (size_t i = 0; i < std::min(spread->size(), kMaxKernels); ++i) {
      const KernelSpreadRow& row = (*spread)[i];
      json.begin_object();
      json.key("name").value(shorten(readable_name(row.name), kNameWidth));
      json.key("class").value(static_cast<int>(row.device_class));
      json.key("ranks").value(row.ranks);
      json.key("spread").begin_array();
      for (const int64_t ns : {row.min_ns, row.p25_ns, row.median_ns, row.p75_ns, row.max_ns}) json.value(ns);
      json.end_array();
      json.key("at").begin_array();
      for (const ShownRank& rank : shown) {
        const auto& kernels = results.ranks[rank.index].at<std::vector<KernelRow>>();
        const auto found = std::find_if(kernels.begin(), kernels.end(), [&](const KernelRow& kernel) {
          return kernel.device_class == row.device_class && kernel.name == row.name;
        });
        json.value(found == kernels.end() ? int64_t{-1} : found->sum_ns);
      }
      json.end_array();
      json.end_object();
    }
  }
  json.end_array();
}

void write_waits(JsonWriter& json, const CrossRank& cross, const std::vector<ShownRank>& shown) {
  const size_t columns = std::min(cross.rows.size(), kMaxCollectives);
  std::map<int, size_t> row_of;
  for (size_t i = 0; i < shown.size(); ++i) row_of.emplace(shown[i].rank, i);
  int64_t most = 0;
  for (size_t c = 0; c < columns; ++c) {
    for (const WaitRow::Member& member : cross.rows[c].members) most = std::max(most, member.wait);
  }
  std::vector<std::string> rows(shown.size(), std::string(columns, '0'));
  for (size_t c = 0; c < columns; ++c) {
    for (const WaitRow::Member& member : cross.rows[c].members) {
      const auto row = row_of.find(member.rank);
      if (row == row_of.end() || member.wait <= 0) continue;
      const auto ninths = static_cast<int64_t>((static_cast<__int128>(member.wait) * 9 + most - 1) / most);
      rows[row->second][c] = static_cast<char>('0' + ninths);
    }
  }
  json.key("waits").begin_object();
  json.key("most").value(most);
  json.key("collectives").value(static_cast<int64_t>(cross.rows.size()));
  json.key("rows").begin_array();
  for (const std::string& row : rows) json.value(row);
  json.end_array();
  json.end_object();
}

// The load of experts as digits: 0 to 9 of the largest share of a layer's mean, x for an expert without tokens, - for
// an unknown one. With more experts than columns, a column is the busiest of its experts.
void write_expert_map(JsonWriter& json, const ExpertUse* use) {
  const size_t layers = use == nullptr ? 0 : std::min(use->layers.size(), kMaxExpertLayers);
  double most = 0;
  for (size_t i = 0; i < layers; ++i) most = std::max(most, use->layers[i].of_experts.max_of_mean);
  json.key("experts").begin_object();
  json.key("most").decimal(most, 2);
  json.key("layers_in_trace").value(use == nullptr ? int64_t{0} : std::ssize(use->layers));
  json.key("experts_of_layer").value(layers == 0 ? int64_t{0} : std::ssize(use->layers[0].tokens));
  json.key("rows").begin_array();
  for (size_t i = 0; i < layers; ++i) {
    const ExpertLayerUse& layer = use->layers[i];
    const size_t experts = layer.tokens.size(), columns = std::min(experts, kMaxExpertColumns);
    const double largest = layer.of_experts.max_of_mean;
    std::string digits;
    for (size_t c = 0; c < columns; ++c) {
      const auto first = layer.tokens.begin() + static_cast<std::ptrdiff_t>(c * experts / columns);
      const auto end = layer.tokens.begin() + static_cast<std::ptrdiff_t>((c + 1) * experts / columns);
      const int64_t tokens = *std::max_element(first, end);
      // tokens / largest tokens = of mean / largest of mean
      const int64_t of_busiest =
          layer.of_experts.largest < 0 ? 1 : layer.tokens[static_cast<size_t>(layer.of_experts.largest)];
      const double share =
          most <= 0 ? 0 : static_cast<double>(tokens) / static_cast<double>(of_busiest) * largest / most;
      digits += tokens < 0 ? '-' : tokens == 0 ? 'x' : static_cast<char>('0' + static_cast<int>(share * 9 + 0.5));
    }
    json.begin_object();
    json.key("name").value(expert_layer_name(layer.layer));
    json.key("wait").value(layer.wait_ns());
    json.key("load").value(digits);
    json.end_object();
  }
  json.end_array();
  json.end_object();
}

template <class Values, class Get>
void write_numbers(JsonWriter& json, const char* key, const Values& values, const Get& get) {
  json.key(key).begin_array();
  for (const auto& value : values) json.value(int64_t{get(value)});
  json.end_array();
}

void write_lane(JsonWriter& json, const TimelineLane& lane) {
  json.begin_object();
  json.key("name").value(lane.name);
  json.key("device").value(lane.device);
  json.key("depth").value(lane.depth);
  int64_t before = 0;
  write_numbers(json, "t", lane.slices, [&](const TimelineSlice& slice) {
    const int64_t delta = slice.start - before;
    before = slice.start;
    return delta;
  });
  write_numbers(json, "d", lane.slices, [](const TimelineSlice& slice) { return slice.dur; });
  write_numbers(json, "n", lane.slices, [](const TimelineSlice& slice) { return slice.name; });
  if (lane.depth > 1) write_numbers(json, "z", lane.slices, [](const TimelineSlice& slice) { return slice.depth; });
  if (!lane.whole) {
    std::string digits;
    for (const uint8_t share : lane.share) digits += static_cast<char>('0' + share);
    json.key("share").value(digits);
  }
  json.end_object();
}

}  // namespace

std::string charts_json(const Store& store, const Results& results, const std::vector<ShownRank>& shown) {
  JsonWriter json(false);
  json.begin_object();
  json.key("ranks").begin_array();
  const size_t n = std::max<size_t>(1, shown.size());
  const size_t max_steps = std::min(kMaxStepsOfRank, kMaxSteps / n);
  const size_t max_points = std::clamp(kCurvePoints / n, kMinCurvePoints, kMaxCurvePoints);
  for (const ShownRank& rank : shown) {
    const RankTrace& trace = *store.ranks[rank.index];
    json.begin_object();
    json.key("rank").value(rank.rank);
    json.key("why").value(rank.reason);
    write_steps(json, results.ranks[rank.index].at<PerStep>(), max_steps);
    json.key("curves").begin_array();
    write_curves(json, trace, memory_curves(trace, max_points));
    write_curves(json, trace, queue_curves(trace, results.views[rank.index], max_points));
    json.end_array();
    json.end_object();
  }
  json.end_array();
  write_kernels(json, results, shown);
  write_waits(json, results.at<CrossRank>(), shown);
  write_expert_map(json, results.get<ExpertUse>());
  json.end_object();
  return json.take();
}

std::string timeline_json(const Timeline& timeline) {
  JsonWriter json(false);
  json.begin_object();
  json.key("span").value(timeline.end - timeline.start);
  json.key("names").begin_array();
  for (const TimelineName& name : timeline.names) {
    json.begin_array();
    json.value(int{name.klass});
    json.value(name.text);
    if (!name.whole.empty()) json.value(name.whole);
    json.end_array();
  }
  json.end_array();
  json.key("ranks").begin_array();
  for (const TimelineRank& rank : timeline.ranks) {
    json.begin_object();
    json.key("rank").value(rank.rank);
    json.key("events").value(rank.events);
    json.key("slices").value(rank.slices);
    json.key("lanes").begin_array();
    for (const TimelineLane& lane : rank.lanes) write_lane(json, lane);
    json.end_array();
    json.key("flows").begin_array();
    for (const TimelineFlow& flow : rank.flows) {
      json.value(int64_t{flow.launch});
      json.value(int64_t{flow.device});
    }
    json.end_array();
    json.end_object();
  }
  json.end_array();
  json.end_object();
  return json.take();
}

std::string timeline_script(const std::vector<TimelineInput>& ranks, size_t max_bytes) {
  TimelineLimits limits;
  while (true) {
    std::string text = script_json(timeline_json(make_timeline(ranks, limits)));
    if (text.size() <= max_bytes || limits.slices == 0) return text;
    // A tenth less than would fit if all slices had the same size.
    const double part = 0.9 * static_cast<double>(max_bytes) / static_cast<double>(text.size());
    limits.slices = static_cast<size_t>(static_cast<double>(limits.slices) * part);
    limits.name_bytes = static_cast<size_t>(static_cast<double>(limits.name_bytes) * part);
  }
}

}  // namespace ms::profile
