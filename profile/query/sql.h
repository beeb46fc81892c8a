// Questions in SQL over a store, through SQLite: the columns are read where they lie, nothing is copied.
//
//   events     rank, step, ts, dur, name, cat, class, device, stream, pid, tid, correlation, external_id, bytes, flops,
//              collective, process_group, dtype, in_elements, seq, source, destination  (ts, dur in ns; class of device
//              work: COMPUTATION, COMMUNICATION, MEMORY)
//   counters   rank, ts, name, value        memory   rank, ts, address, bytes, allocated, reserved, device_type, device
//   steps      rank, step, start, end       ranks    rank, world_size, events, first_ts, last_end
#pragma once

#include <string>

#include "profile/report/data_table.h"
#include "profile/store.h"

namespace ms::profile {

// The rows of one SELECT (or WITH, EXPLAIN, VALUES). Throws kInvalidArgument with SQLite's words for anything else, and
// for what it does not understand.
DataTable query(const Store& store, const std::string& sql);

// The tables with their columns, one a line, for help.
std::string query_tables();

// The question that `msprof events` asks. where: conditions joined by commas, each a column, =, !=, <, > or ~ (holds
// the text), and a value; columns: joined by commas, empty for a useful choice. Throws kInvalidArgument.
std::string events_query(const std::string& where, const std::string& columns);

}  // namespace ms::profile
