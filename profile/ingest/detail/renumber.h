// Copies rows of one trace's tables for another trace with other numbers for names and lanes.
#pragma once

#include <vector>

#include "profile/store.h"

namespace ms::profile::detail {

// names, lanes: the number of each in the other trace. Stacks are not renumbered; the caller merges them.
inline CommArgs renumbered(CommArgs comm, const std::vector<NameId>& names) {
  for (NameId* name : {&comm.op, &comm.group, &comm.ranks, &comm.dtype}) *name = names[*name];
  return comm;
}
inline Details renumbered(Details details, const std::vector<NameId>& names) {
  details.dims = names[details.dims];
  details.types = names[details.types];
  return details;
}
inline MemoryChange renumbered(MemoryChange change, const std::vector<NameId>& names,
                               const std::vector<uint16_t>& lanes) {
  change.tag = names[change.tag];
  change.lane = lanes[change.lane];
  return change;
}
inline CounterSample renumbered(CounterSample sample, const std::vector<NameId>& names,
                                const std::vector<uint16_t>& lanes) {
  sample.name = names[sample.name];
  sample.lane = lanes[sample.lane];
  return sample;
}

}  // namespace ms::profile::detail
