#include "profile/store.h"

#include <algorithm>

#include "profile/sort.h"

namespace ms::profile {

uint8_t RankTrace::category(std::string_view name, Side side) {
  const NameId id = names.intern(name);
  for (size_t i = 0; i < categories.size(); ++i) {
    if (categories[i].name == id && categories[i].side == side) return static_cast<uint8_t>(i);
  }
  if (categories.size() < 256) categories.push_back({id, side, 0, 0});
  return static_cast<uint8_t>(categories.size() - 1);
}

namespace {

template <class T>
void permute(Column<T>& column, const Column<uint32_t>& order) {
  Column<T> sorted;
  sorted.append_from(column, order);
  column.swap(sorted);
}

}  // namespace

void finish_trace(RankTrace& trace) {
  Events& events = trace.events;
  if (trace.keep_file_order) {
    while (events.file_order.size() < events.size()) {
      events.file_order.push_back(static_cast<uint32_t>(events.file_order.size()));
    }
  }
  bool in_order = true;
  for (uint32_t i = 1; in_order && i < events.size(); ++i) in_order = !starts_before(events.ts, events.dur, i, i - 1);
  if (!in_order) {
    const Column<uint32_t> order = order_by_start(events.ts, events.dur);
    permute(events.ts, order);
    permute(events.dur, order);
    permute(events.name, order);
    permute(events.category, order);
    permute(events.lane, order);
    permute(events.correlation, order);
    permute(events.external, order);
    permute(events.comm, order);
    permute(events.details, order);
    if (trace.keep_file_order) permute(events.file_order, order);
  }
  std::stable_sort(trace.memory.begin(), trace.memory.end(), [](auto& a, auto& b) { return a.ts < b.ts; });
  std::stable_sort(trace.counters.begin(), trace.counters.end(), [](auto& a, auto& b) { return a.ts < b.ts; });
  std::sort(trace.clocks.begin(), trace.clocks.end(), [](auto& a, auto& b) { return a.at < b.at; });
  find_bounds(trace);
}

void find_bounds(RankTrace& trace) {
  const Events& events = trace.events;
  trace.first_ts = events.size() == 0 ? 0 : events.ts[0];
  trace.last_end = trace.first_ts;
  for (size_t i = 0; i < events.size(); ++i) trace.last_end = std::max(trace.last_end, events.end(i));
}

std::optional<int64_t> first_time(const RankTrace& trace) {
  std::optional<int64_t> first;
  const auto consider = [&first](int64_t ts) { first = std::min(first.value_or(ts), ts); };
  if (trace.events.size() > 0) consider(trace.first_ts);
  if (!trace.memory.empty()) consider(trace.memory.front().ts);
  if (!trace.counters.empty()) consider(trace.counters.front().ts);
  return first;
}

}  // namespace ms::profile
