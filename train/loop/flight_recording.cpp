#include "train/loop/flight_recording.h"

#include <unistd.h>

#include <filesystem>
#include <string>

#include "core/comm/agree.h"
#include "core/comm/flight_recorder.h"
#include "core/error.h"
#include "core/log.h"

namespace ms::train {
namespace {

namespace fs = std::filesystem;
using core::cat;

// Rank 0's choice, and room there on every machine.
fs::path agree_on_folder(const std::string& given, core::Communicator& world) {
  std::string folder = given;
  core::collectively(world, "flight recorder", [&] {
    if (world.rank() == 0 && given.empty()) {
      folder = core::make_default_flight_folder(cat(::getpid(), "-", core::trace::now_ns()));
    }
  });
  folder = world.bcast_string(folder, 0);
  core::collectively(world, "flight recorder", [&] {
    std::error_code error;
    fs::create_directories(folder, error);
    if (error) throw core::Error(core::ErrorCode::kIo, cat("cannot create ", folder, ": ", error.message()));
    if (world.rank() != 0) return;
    // Records of an earlier run in the same folder would be taken for those of ranks of this one.
    for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
      std::error_code ignored;
      if (core::is_flight_leftover(it->path())) fs::remove(it->path(), ignored);
    }
  });
  return folder;
}

}  // namespace

void open_flight_recorder(const FlightRecorderConfig& config, core::Communicator& world) {
  core::FlightRecorder* const recorder = world.endpoint().flight_recorder();
  const std::string& given = config.flight_recorder_dump_path;
  if (recorder == nullptr || recorder->active() || !config.flight_recorder || (given.empty() && world.size() == 1))
    return;
  try {
    const fs::path folder = agree_on_folder(given, world);
    core::FlightRecorder::Options options{.folder = folder,
                                          .rank = world.endpoint().rank(),
                                          .world_size = world.endpoint().size(),
                                          .capacity = config.flight_recorder_trace_buffer_size,
                                          .remove_at_end = given.empty()};
    options.job = static_cast<uint64_t>(world.allreduce(world.rank() == 0 ? core::trace::now_ns() : int64_t{0}));
    core::collectively(world, "flight recorder", [&] { recorder->open(options); });
    core::log_debug("train.flight", cat("records of communication: ", folder.string()));
  } catch (const core::AgreedError& e) {
    recorder->end();
    if (!given.empty()) throw;
    core::log_warning("train.flight", cat(e.what(),
                                          ". A hang will not be recorded; --flight-recorder-dump-path names "
                                          "another folder, --no-flight-recorder records none"));
  }
}

}  // namespace ms::train
