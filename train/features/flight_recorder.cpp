#include "train/features/flight_recorder.h"

#include "train/config.h"
#include "train/features/check.h"

namespace ms::train {
namespace {

void check_flight_recorder(const TrainerConfig& config, int) {
  constexpr int64_t kMost = 1 << 20;
  const int64_t size = config.logger.flight_recorder_trace_buffer_size;
  require(size >= 1 && size <= kMost, "--flight-recorder-trace-buffer-size ", size, ": expected 1 to ", kMost,
          " operations; --no-flight-recorder records none");
}

bool has_path(const TrainerConfig& config) { return !config.logger.flight_recorder_dump_path.empty(); }

}  // namespace

Feature flight_recorder_feature() {
  return {
      .name = "flight-recorder",
      .level = 0,
      .effect = "Keeps the last communication operations of each rank where they outlive the run, for msprof flight",
      .add_flags = [](core::ConfigFields& fields,
                      TrainerConfig& config) { fields.add<FlightRecorderConfig>("logger", config.logger); },
      .is_active = has_path,
      .rules = {needs("--flight-recorder-dump-path", has_path, "--flight-recorder",
                      [](const TrainerConfig& c) { return c.logger.flight_recorder; })},
      .check = check_flight_recorder,
  };
}

}  // namespace ms::train
