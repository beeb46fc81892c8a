// core/comm/flight_dump.h, profile/flight/torch_dump.h: the flight record of a rank, of either program, beside a sound
// one of another rank, up to the diagnosis and its tables.
#include <fstream>

#include "core/comm/flight_diagnosis.h"
#include "core/comm/flight_recorder.h"
#include "profile/flight/load.h"
#include "profile/report/flight_tables.h"
#include "tests/fuzz/reader.h"

namespace {

using namespace ms;

// A rank that waits in the second of two collectives.
void write_sound_record(const std::filesystem::path& folder) {
  core::FlightRecorder recorder;
  recorder.open({.folder = folder, .rank = 1, .world_size = 2, .capacity = 4});
  const int32_t group = recorder.group("tp", 0, {0, 1});
  for (int64_t i = 0; i < 2; ++i) {
    const uint64_t number =
        recorder.post({.group = group, .sequence = i, .in_elements = 8, .out_elements = 8, .posted_ns = i + 1});
    i == 0 ? recorder.complete(number, 2, 3) : recorder.wait_begins(number, 2);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const bool made = (write_sound_record(fuzz::folder().path()), true);
  fuzz::require(made, "the sound record");
  const std::string path = fuzz::folder() / "rank_00000";
  std::ofstream(path, std::ios::binary) << fuzz::text_of(data, size);
  fuzz::read_or_refuse([&] {
    const profile::FlightRecords records = profile::load_flight({fuzz::folder() / "rank_00001.flight", path});
    profile::flight_text(records, core::diagnose_flight(records.dumps, records.world_size), 5);
  });
  return 0;
}
