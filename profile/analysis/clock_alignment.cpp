#include "profile/analysis/clock_alignment.h"

#include <Eigen/Dense>
#include <algorithm>
#include <cmath>
#include <functional>

#include "core/error.h"
#include "profile/clock_line.h"

namespace ms::profile {
namespace {

using core::cat;

int64_t median(std::vector<int64_t> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  if (values.size() % 2 != 0) return *middle;
  const int64_t below = *std::max_element(values.begin(), middle);
  return below + (*middle - below) / 2;
}

struct Sample {
  int64_t at = 0, difference = 0;  // at: end in the reference's time
};

int64_t residual(const std::vector<Sample>& samples, const RankClock& clock) {
  std::vector<int64_t> off;
  for (const Sample& sample : samples) {
    const double line = clock.slope * static_cast<double>(sample.at - clock.middle);
    off.push_back(std::abs(sample.difference - clock.offset - static_cast<int64_t>(std::llround(line))));
  }
  return median(std::move(off));
}

RankClock by_offset(const std::vector<Sample>& samples) {
  RankClock clock;
  clock.samples = static_cast<int64_t>(samples.size());
  std::vector<int64_t> differences;
  for (const Sample& sample : samples) differences.push_back(sample.difference);
  clock.offset = median(std::move(differences));
  clock.residual = residual(samples, clock);
  return clock;
}

// Least squares, relative to the middle time and the median, so that doubles are precise enough.
RankClock by_line(const std::vector<Sample>& samples, const RankClock& offset) {
  RankClock clock = offset;
  int64_t first = INT64_MAX, last = INT64_MIN;
  for (const Sample& sample : samples) {
    first = std::min(first, sample.at);
    last = std::max(last, sample.at);
  }
  clock.middle = first + (last - first) / 2;
  Eigen::MatrixX2d a(static_cast<Eigen::Index>(samples.size()), 2);
  Eigen::VectorXd d(static_cast<Eigen::Index>(samples.size()));
  for (size_t i = 0; i < samples.size(); ++i) {
    const auto row = static_cast<Eigen::Index>(i);
    a(row, 0) = 1;
    a(row, 1) = static_cast<double>(samples[i].at - clock.middle);
    d(row) = static_cast<double>(samples[i].difference - offset.offset);
  }
  const Eigen::Vector2d fit = a.colPivHouseholderQr().solve(d);
  clock.offset = offset.offset + static_cast<int64_t>(std::llround(fit(0)));
  clock.slope = fit(1);
  clock.drift_ppm = 1e6 * fit(1);
  clock.residual = residual(samples, clock);
  return clock;
}

// The operations of each rank, so that a job of thousands of ranks is searched once.
class SharedOperations {
 public:
  SharedOperations(size_t ranks, const MatchedComms& comms) : collectives_(ranks), messages_(ranks) {
    for (const CommInstance& instance : comms.collectives) {
      if (instance.kind != CommKind::kSynchronising) continue;
      for (const CommPart& part : instance.parts) collectives_[part.rank].push_back(&instance);
    }
    for (const CommInstance& instance : comms.messages) {
      for (const CommPart& part : instance.parts) messages_[part.rank].push_back(&instance);
    }
  }

  // Differences between the end times of a rank and of placed ranks, in the reference's time, over their common
  // operations. Messages are used only between ranks that no collective joins.
  std::vector<Sample> samples_against(uint32_t rank, const std::vector<bool>& placed,
                                      const std::vector<RankClock>& clocks) const {
    std::vector<Sample> out;
    std::vector<bool> joined(placed.size());
    const auto collect = [&](const CommInstance& instance, const std::vector<bool>* except) {
      const auto mine = std::find_if(instance.parts.begin(), instance.parts.end(),
                                     [&](const CommPart& part) { return part.rank == rank; });
      for (const CommPart& part : instance.parts) {
        if (part.rank == rank || !placed[part.rank] || (except != nullptr && (*except)[part.rank])) continue;
        const int64_t at = clocks[part.rank].to_reference(part.end);
        out.push_back({at, mine->end - at});
        if (except == nullptr) joined[part.rank] = true;
      }
    };
    for (const CommInstance* instance : collectives_[rank]) collect(*instance, nullptr);
    for (const CommInstance* instance : messages_[rank]) collect(*instance, &joined);
    return out;
  }

 private:
  std::vector<std::vector<const CommInstance*>> collectives_, messages_;  // of each rank
};

struct Placement {
  std::vector<std::vector<Sample>> samples;  // samples each rank was placed by; empty: it could not be placed
  std::vector<size_t> checks;                // operations each shares with any other placed rank
};

// Sets the offset of each rank. Ranks with at least two common operations with the reference are placed by these. Then
// the rank that shares most operations with placed ranks is placed next, by all these samples. One sample is enough to
// place a rank: its operations with ranks placed later close a cycle, whose residual becomes the rank's.
Placement place_ranks(size_t ranks, const MatchedComms& comms, std::vector<RankClock>& clocks) {
  Placement out{std::vector<std::vector<Sample>>(ranks), std::vector<size_t>(ranks)};
  const SharedOperations shared(ranks, comms);
  std::vector<bool> placed(ranks);
  placed[0] = true;
  const std::vector<bool> reference = placed;
  const auto place = [&](uint32_t rank, std::vector<Sample> samples) {
    clocks[rank] = by_offset(samples);
    out.samples[rank] = std::move(samples);
    placed[rank] = true;
  };
  for (uint32_t r = 1; r < ranks; ++r) {
    std::vector<Sample> direct = shared.samples_against(r, reference, clocks);
    if (direct.size() >= 2) place(r, std::move(direct));
  }
  while (true) {
    uint32_t next = 0;
    std::vector<Sample> most;
    for (uint32_t r = 1; r < ranks; ++r) {
      if (placed[r]) continue;
      std::vector<Sample> found = shared.samples_against(r, placed, clocks);
      if (found.size() <= most.size()) continue;
      most = std::move(found);
      next = r;
    }
    if (next == 0) break;
    place(next, std::move(most));
  }
  for (uint32_t r = 1; r < ranks; ++r) {
    if (!placed[r]) continue;
    const std::vector<Sample> all = shared.samples_against(r, placed, clocks);
    out.checks[r] = all.size();
    if (out.samples[r].size() >= 2) continue;
    for (const Sample& sample : all) {
      clocks[r].residual = std::max(clocks[r].residual, std::abs(sample.difference - clocks[r].offset));
    }
  }
  return out;
}

// Whether the files' own clocks are causal almost everywhere: nothing is received before it is sent, and no part of a
// collective ends before the last one has begun.
bool causal_as_written(const std::vector<RankDevices>& ranks, const MatchedComms& comms, int64_t slack) {
  const auto based = [](const RankDevices& rank) { return rank.trace->has_base && rank.trace->base_unix_ns != 0; };
  if (!std::all_of(ranks.begin(), ranks.end(), based)) return false;
  const auto holds = [slack](const CommInstance& instance) {
    int64_t last_start = INT64_MIN, first_end = INT64_MAX;
    for (const CommPart& part : instance.parts) {
      last_start = std::max(last_start, part.start);
      first_end = std::min(first_end, part.end);
    }
    if (instance.kind == CommKind::kRooted) return true;
    if (instance.kind == CommKind::kSend) {
      last_start = instance.parts[0].start;
      first_end = instance.parts[1].end;
    }
    return last_start <= first_end + slack;
  };
  // A busy machine sometimes records a start late.
  constexpr int64_t kOneIn = 20;
  const auto contradicting = std::count_if(comms.collectives.begin(), comms.collectives.end(), std::not_fn(holds)) +
                             std::count_if(comms.messages.begin(), comms.messages.end(), std::not_fn(holds));
  const auto all = static_cast<int64_t>(comms.collectives.size() + comms.messages.size());
  return all > 0 && kOneIn * contradicting <= all;
}

bool has_tables(const std::vector<RankDevices>& ranks) {
  return std::all_of(ranks.begin(), ranks.end(), [](const RankDevices& rank) { return !rank.trace->clocks.empty(); });
}

}  // namespace

std::string_view alignment_name(Alignment alignment) {
  constexpr std::string_view kNames[] = {"none", "offset", "linear", "tables"};
  return kNames[static_cast<size_t>(alignment)];
}

int64_t RankClock::to_reference(int64_t t) const {
  if (!applied) return t;
  const double line = slope == 0 ? 0 : slope * static_cast<double>(t - middle);
  return t - offset - static_cast<int64_t>(std::llround(line));
}

ClockAlignment align_clocks(const std::vector<RankDevices>& ranks, const MatchedComms& comms, AlignMode mode) {
  ClockAlignment out;
  out.ranks.resize(ranks.size());
  if (ranks.size() < 2) {
    out.why = "one rank only";
    return out;
  }
  if (mode == AlignMode::kAuto && has_tables(ranks)) {
    // Measured by the job itself: offsets are relative to rank 0's monotonic clock.
    const RankTrace& reference = *ranks[0].trace;
    for (size_t r = 0; r < ranks.size(); ++r) {
      const RankTrace& trace = *ranks[r].trace;
      const ClockLine line(trace.clocks), base(reference.clocks);
      const int64_t own_middle = trace.first_ts + (trace.last_end - trace.first_ts) / 2;
      // unix = ts + base; rank 0's clock = ts - line(ts). In the reference's unix time that is this clock + the
      // reference's base + the reference's own offset to rank 0.
      RankClock& clock = out.ranks[r];
      clock.middle = unix_time(trace, own_middle);
      const int64_t in_zero = line.to_reference(own_middle);
      const int64_t in_reference = in_zero + base.offset_at(in_zero);
      clock.offset = clock.middle - unix_time(reference, in_reference);
      clock.slope = (line.drift_ppm() - base.drift_ppm()) * 1e-6;
      clock.drift_ppm = clock.slope * 1e6;
      clock.residual = std::max<int64_t>(line.error_ns(), 0);
      clock.samples = static_cast<int64_t>(trace.clocks.size());
    }
    out.alignment = Alignment::kTables;
    out.reliable = true;
    return out;
  }
  const Placement placement = place_ranks(ranks.size(), comms, out.ranks);
  const std::vector<std::vector<Sample>>& samples = placement.samples;
  std::vector<int64_t> durations;
  for (const auto* instances : {&comms.collectives, &comms.messages}) {
    for (const CommInstance& instance : *instances) {
      for (const CommPart& part : instance.parts) durations.push_back(part.end - part.start);
    }
    if (!durations.empty()) break;
  }
  constexpr int64_t kLeastResidual = 50'000;
  const int64_t limit = std::max(kLeastResidual, median(std::move(durations)) / 10);
  out.reliable = true;
  for (size_t r = 1; out.reliable && r < ranks.size(); ++r) {
    if (samples[r].size() >= 2 || placement.checks[r] >= 2) continue;
    out.reliable = false;
    out.why =
        cat("rank ", ranks[r].trace->rank, " shares ", placement.checks[r] == 0 ? "no operation" : "one operation",
            " with the others, but clock alignment needs two: one to set the offset, one to check it");
  }
  constexpr int64_t kSmallOffset = 5'000, kSmallResidual = 2'000;
  constexpr size_t kLineSamples = 16;
  bool small = true, line = true;
  std::vector<RankClock> lines(ranks.size());
  for (size_t r = 1; r < ranks.size(); ++r) {
    const RankClock& clock = out.ranks[r];
    small = small && std::abs(clock.offset) <= kSmallOffset;
    const bool enough = samples[r].size() >= kLineSamples;
    if (samples[r].size() >= 2) lines[r] = by_line(samples[r], clock);
    line = line && enough && clock.residual > kSmallResidual && 2 * lines[r].residual <= clock.residual;
  }
  const bool wants_line = mode == AlignMode::kLinear || (mode == AlignMode::kAuto && !small && line);
  if (wants_line) {
    for (size_t r = 1; r < ranks.size(); ++r) {
      if (samples[r].size() >= 2) out.ranks[r] = lines[r];
    }
  }
  out.alignment = wants_line                                                        ? Alignment::kLinear
                  : mode == AlignMode::kNone || (mode == AlignMode::kAuto && small) ? Alignment::kNone
                                                                                    : Alignment::kOffset;
  for (RankClock& clock : out.ranks) clock.applied = out.alignment != Alignment::kNone;
  if (mode == AlignMode::kNone) {  // the user states that the clocks agree
    out.reliable = true;
    out.why.clear();
    return out;
  }
  for (size_t r = 1; out.reliable && r < ranks.size(); ++r) {
    if (out.ranks[r].residual <= limit) continue;
    out.reliable = false;
    out.why = cat("the ends of matched operations differ by ", out.ranks[r].residual / 1000, " us on rank ",
                  ranks[r].trace->rank, ": events are missing from the traces");
  }
  // Ends differ if programs ask late for completed operations; the files may still share one clock.
  if (!out.reliable && mode == AlignMode::kAuto && causal_as_written(ranks, comms, limit)) {
    for (RankClock& clock : out.ranks) clock.applied = false;
    out.alignment = Alignment::kNone;
    out.reliable = true;
    out.why.clear();
  }
  return out;
}

}  // namespace ms::profile
