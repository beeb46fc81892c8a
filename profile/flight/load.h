// The flight recorders of a run: from files and folders to one dump per rank.
#pragma once

#include <string>
#include <vector>

#include "core/comm/flight_dump.h"

namespace ms::profile {

// The error that a process of the run has reported, beside its records.
struct FlightReport {
  std::string source;  // file
  std::string text;
};

struct FlightRecords {
  std::vector<core::FlightDump> dumps;  // ascending rank
  std::vector<std::string> problems;    // a line for each file that was left out, and why
  int world_size = 0;                   // ranks of the run, as far as the dumps know
  std::vector<FlightReport> reported;   // the first rank's to fail, of each folder; empty: no error

  // Whether the processes of all ranks were running when their records were read.
  bool lives() const;
};

// paths: files of mstrain (rank_00003.flight), dumps of PyTorch (pickle or JSON, with the rank at the end of the name),
// or folders of them; what else is in a folder of mstrain's records is left out. Files that cannot be read are left
// out: a rank without a record is evidence too. world_size: 0, or the number of ranks. Throws kNotFound for a path that
// does not exist, and if there is no record at all.
FlightRecords load_flight(const std::vector<std::string>& paths, int world_size = 0);

}  // namespace ms::profile
