#include "profile/ingest/append.h"

#include <algorithm>

#include "profile/ingest/detail/renumber.h"

namespace ms::profile {

void append_trace(RankTrace& trace, const RankTrace& more) {
  std::vector<NameId> name(more.names.size());
  for (NameId id = 0; id < more.names.size(); ++id) name[id] = trace.names.intern(more.names[id]);

  std::vector<uint8_t> category;
  for (const Category& c : more.categories) category.push_back(trace.category(more.names[c.name], c.side));
  std::vector<uint16_t> lane;
  for (const Lane& theirs : more.lanes) {
    const auto same = std::find_if(trace.lanes.begin(), trace.lanes.end(), [&](const Lane& ours) {
      return ours.device == theirs.device && ours.process == theirs.process && ours.id == theirs.id &&
             ours.name == name[theirs.name];
    });
    lane.push_back(static_cast<uint16_t>(same - trace.lanes.begin()));
    if (same == trace.lanes.end()) {
      trace.lanes.push_back({theirs.device, theirs.process, theirs.id, name[theirs.name]});
    }
  }
  const auto comm_base = static_cast<uint32_t>(trace.comms.size()) - 1;
  for (size_t i = 1; i < more.comms.size(); ++i) trace.comms.push_back(detail::renumbered(more.comms[i], name));
  const auto stack_base = static_cast<uint32_t>(trace.stacks.size()) - 1;
  for (size_t i = 1; i < more.stacks.size(); ++i) {
    const StackFrame& frame = more.stacks[i];
    trace.stacks.push_back({frame.parent == 0 ? 0 : frame.parent + stack_base, name[frame.name]});
  }
  const auto details_base = static_cast<uint32_t>(trace.details.size()) - 1;
  for (size_t i = 1; i < more.details.size(); ++i) {
    Details details = detail::renumbered(more.details[i], name);
    if (details.stack != 0) details.stack += stack_base;
    trace.details.push_back(details);
  }

  uint32_t correlation_base = 0;  // each file numbers its correlations independently
  for (const uint32_t c : trace.events.correlation) correlation_base = std::max(correlation_base, c);
  Events& events = trace.events;
  const auto first = static_cast<uint32_t>(events.size());
  for (size_t i = 0; i < more.events.size(); ++i) {
    if (trace.keep_file_order) events.file_order.push_back(first + more.events.file_order[i]);
    events.ts.push_back(more.events.ts[i]);
    events.dur.push_back(more.events.dur[i]);
    events.name.push_back(name[more.events.name[i]]);
    events.category.push_back(category[more.events.category[i]]);
    events.lane.push_back(lane[more.events.lane[i]]);
    events.external.push_back(more.events.external[i]);
    const uint32_t c = more.events.correlation[i], comm = more.events.comm[i], details = more.events.details[i];
    events.correlation.push_back(c == 0 ? 0 : c + correlation_base);
    events.comm.push_back(comm == 0 ? 0 : comm + comm_base);
    events.details.push_back(details == 0 ? 0 : details + details_base);
  }
  for (const MemoryChange& change : more.memory) trace.memory.push_back(detail::renumbered(change, name, lane));
  for (const CounterSample& sample : more.counters) trace.counters.push_back(detail::renumbered(sample, name, lane));
  trace.clocks.insert(trace.clocks.end(), more.clocks.begin(), more.clocks.end());
  finish_trace(trace);
}

}  // namespace ms::profile
