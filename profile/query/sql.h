// Runs SQL queries over a store, through SQLite's virtual tables: the columns are read in place, nothing is copied.
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

// Returns the rows of one SELECT (or WITH, EXPLAIN, VALUES). Throws kInvalidArgument with SQLite's message for any
// other statement and for syntax errors.
DataTable query(const Store& store, const std::string& sql);

// The tables with their columns, one per line, for the help text.
std::string query_tables();

// Builds the query of `msprof events`. where: conditions joined by commas, each a column, an operator (= != < >, or ~
// for "contains the text") and a value; columns: joined by commas, empty for a default choice. Throws kInvalidArgument.
std::string events_query(const std::string& where, const std::string& columns);

}  // namespace ms::profile
