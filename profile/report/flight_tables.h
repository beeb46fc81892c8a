// What `msprof flight` prints: findings as sentences, and tables of ranks, of the groups' progress, of the operation in
// question, and of the last operations.
#pragma once

#include <string>
#include <vector>

#include "core/comm/flight_diagnosis.h"
#include "profile/flight/load.h"
#include "profile/report/data_table.h"

namespace ms::profile {

// The tables, also of CSV and JSON. operations: how many of each rank's last ones; 0: no such table.
std::vector<DataTable> flight_tables(const FlightRecords& records, const std::vector<core::FlightFinding>& findings,
                                     int64_t operations);

// The findings, the cause first, and the tables.
std::string flight_text(const FlightRecords& records, const std::vector<core::FlightFinding>& findings,
                        int64_t operations);

// One sentence: "rank 2 is stopped: allreduce 17 in group dp_cp [0, 2] waits for it".
std::string flight_sentence(const core::FlightFinding& finding);

}  // namespace ms::profile
