#include "profile/ingest/own_meta.h"

#include <algorithm>

#include "core/error.h"
#include "core/io/json.h"

namespace ms::profile {
namespace {

// Larger numbers are corrupt; sums of smaller ones do not overflow.
constexpr int64_t kMaxRanks = int64_t{1} << 24, kMaxNs = int64_t{1} << 61;
constexpr size_t kMaxMetaBytes = size_t{1} << 16;  // leaves room for the rest of the chunk

}  // namespace

int64_t own_integer(const nlohmann::json& object, const char* key, int64_t least, int64_t end) {
  const int64_t value = core::json_integer(object, key, "meta");
  if (value >= least && value < end) return value;
  throw core::Error(core::ErrorCode::kCorruptData, core::cat("\"", key, "\" is ", value));
}

void read_own_meta(nlohmann::json meta, RankTrace& trace) {
  trace.rank = trace.file_rank = static_cast<int>(own_integer(meta, "rank", 0, kMaxRanks));
  trace.world_size = static_cast<int>(own_integer(meta, "world_size", 0, kMaxRanks));
  trace.level = core::json_string(meta, "level", "meta");
  trace.pid = core::json_integer(meta, "pid", "meta");
  const auto& clocks = core::json_array(meta, "start_clocks_ns", "meta");
  const auto is_time = [](const nlohmann::json& clock) {
    return clock.is_number_unsigned() && clock.get<uint64_t>() < uint64_t{kMaxNs};
  };
  if (clocks.size() != 2 || !is_time(clocks[0]) || !is_time(clocks[1])) {
    throw core::Error(core::ErrorCode::kCorruptData, "meta: \"start_clocks_ns\": expected two times");
  }
  trace.base_unix_ns = clocks[1].get<int64_t>() - clocks[0].get<int64_t>();
  trace.has_base = true;
  for (const char* of_the_file : {"events", "chunks"}) meta.erase(of_the_file);
  trace.meta = meta.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  if (trace.meta.size() > kMaxMetaBytes) {
    throw core::Error(core::ErrorCode::kCorruptData, core::cat("meta: ", trace.meta.size(), " bytes"));
  }
}

OwnTimes read_own_info(const nlohmann::json& own, RankTrace& trace) {
  RankTrace parsed;
  read_own_meta(core::json_object(own, "meta", "msuite"), parsed);
  for (const nlohmann::json& clock : core::json_array(own, "clocks", "msuite")) {
    parsed.clocks.push_back(read_own_clock(clock));
  }
  const int64_t origin = core::json_integer(own, "origin_ns", "msuite");
  trace.rank = parsed.rank;
  trace.world_size = parsed.world_size;
  trace.pid = parsed.pid;
  trace.level = parsed.level;
  trace.clocks = parsed.clocks;
  trace.meta = parsed.meta;
  return {origin, parsed.base_unix_ns};
}

bool shift_times(RankTrace& trace, int64_t origin) {
  constexpr int64_t kLimit = int64_t{1} << 60;  // sums of four such times fit a native trace
  const auto fits = [](int64_t ns) { return ns > -kLimit && ns < kLimit; };
  const auto all_fit = [&](const auto& rows) {
    return std::all_of(rows.begin(), rows.end(), [&](const auto& row) { return fits(row.ts); });
  };
  Events& events = trace.events;
  if (origin <= -2 * kLimit || origin >= 2 * kLimit || !std::all_of(events.ts.begin(), events.ts.end(), fits) ||
      !std::all_of(events.dur.begin(), events.dur.end(), fits) || !all_fit(trace.memory) || !all_fit(trace.counters)) {
    return false;
  }
  for (int64_t& ts : events.ts) ts += origin;
  for (MemoryChange& change : trace.memory) change.ts += origin;
  for (CounterSample& sample : trace.counters) sample.ts += origin;
  return true;
}

ClockPoint read_own_clock(const nlohmann::json& clock) {
  return {own_integer(clock, "at_ns", -kMaxNs, kMaxNs), own_integer(clock, "offset_ns", -kMaxNs, kMaxNs),
          own_integer(clock, "error_ns", -1, kMaxNs)};
}

}  // namespace ms::profile
