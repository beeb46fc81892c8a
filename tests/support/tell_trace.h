// Prints everything that a store holds of a rank as text: equal texts mean equal traces, including ids and order.
#pragma once

#include <sstream>
#include <string>

#include "profile/store.h"

namespace ms::test {

inline std::string tell(const profile::RankTrace& trace) {
  std::ostringstream out;
  out.precision(17);
  out << "rank " << trace.rank << ' ' << trace.file_rank << " of " << trace.world_size << " pid " << trace.pid
      << " base " << trace.base_unix_ns << ' ' << trace.has_base << ' ' << trace.level << ' ' << trace.backend << ' '
      << trace.display_time_unit << ' ' << trace.schema_version << " from " << trace.first_ts << " to "
      << trace.last_end << " flows " << trace.flow_ids << ' ' << trace.flow_pairs_complete << " negative "
      << trace.negative_dur << " bytes " << trace.json_bytes << " meta " << trace.meta << '\n';
  for (profile::NameId i = 0; i < trace.names.size(); ++i) out << "name " << i << ' ' << trace.names[i] << '\n';
  for (const auto& c : trace.categories) {
    out << "category " << c.name << ' ' << static_cast<int>(c.side) << ' ' << c.events << ' ' << c.complete_flows
        << '\n';
  }
  for (const auto& l : trace.lanes) {
    out << "lane " << l.device << ' ' << l.process << ' ' << l.id << ' ' << l.name << ' ' << l.process_name << '\n';
  }
  const profile::Events& e = trace.events;
  for (size_t i = 0; i < e.size(); ++i) {
    out << "event " << e.ts[i] << ' ' << e.dur[i] << ' ' << e.name[i] << ' ' << static_cast<int>(e.category[i]) << ' '
        << e.lane[i] << ' ' << e.correlation[i] << ' ' << e.external[i] << ' ' << e.comm[i] << ' ' << e.details[i]
        << '\n';
  }
  for (const auto& c : trace.comms) {
    out << "comm " << c.op << ' ' << c.group << ' ' << c.ranks << ' ' << c.dtype << ' ' << c.sequence << ' '
        << c.in_elements << ' ' << c.out_elements << ' ' << c.comms_id << ' ' << c.source << ' ' << c.destination << ' '
        << c.async << '\n';
  }
  for (const auto& d : trace.details) {
    out << "details " << d.flops << ' ' << d.bytes << ' ' << d.stack << ' ' << d.dims << ' ' << d.types << ' '
        << d.wait_stream << ' ' << d.wait_correlation << ' ' << static_cast<int>(d.sync_kind) << ' '
        << d.unsigned_stream << '\n';
  }
  for (const auto& s : trace.stacks) out << "frame " << s.parent << ' ' << s.name << '\n';
  for (const auto& m : trace.memory) {
    out << "memory " << m.ts << ' ' << m.address << ' ' << m.bytes << ' ' << m.total << ' ' << m.reserved << ' '
        << m.tag << ' ' << m.lane << ' ' << m.device_type << ' ' << m.device << '\n';
  }
  for (const auto& c : trace.counters)
    out << "counter " << c.ts << ' ' << c.value << ' ' << c.name << ' ' << c.lane << '\n';
  for (const auto& f : trace.flows) {
    out << "flow " << f.ts << ' ' << f.id << ' ' << f.lane << ' ' << static_cast<int>(f.category) << ' ' << f.start
        << '\n';
  }
  for (const auto& c : trace.clocks) out << "clock " << c.at << ' ' << c.offset << ' ' << c.error << '\n';
  for (size_t i = 0; i < trace.by_phase.size(); ++i) {
    if (trace.by_phase[i] != 0) out << "phase " << static_cast<char>(i) << ' ' << trace.by_phase[i] << '\n';
  }
  return out.str();
}

}  // namespace ms::test
