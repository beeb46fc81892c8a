#include "train/loop/flight_recording.h"

#include <unistd.h>

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "core/comm/agree.h"
#include "core/comm/flight_recorder.h"
#include "core/error.h"
#include "core/io/atomic_directory.h"
#include "core/log.h"

namespace ms::train {
namespace {

namespace fs = std::filesystem;
using core::cat;

constexpr const char* kPhase = "flight recorder";

// Rank 0's choice.
fs::path default_folder(core::Communicator& world) {
  std::string folder;
  core::collectively(world, kPhase, [&] {
    if (world.rank() == 0) folder = core::make_default_flight_folder(cat(::getpid(), "-", core::trace::now_ns()));
  });
  folder = world.bcast_string(folder, 0);
  core::collectively(world, kPhase, [&] { core::make_directory(folder); });  // on every machine
  return folder;
}

void log_leftovers(const core::FlightLeftovers& leftovers, const std::string& folder) {
  if (!leftovers.replaced.empty()) {
    core::log_info("train.flight",
                   cat(folder, ": the records of an earlier run are replaced, ", leftovers.replaced.size(), " files"));
  }
  if (!leftovers.foreign.empty()) {
    core::log_warning("train.flight", cat(folder, ": ", leftovers.foreign.size(),
                                          " files that mstrain has not written have names of records, such as ",
                                          leftovers.foreign.front().string(), "; they stay"));
  }
}

// The folder that the user has named: this run has it for itself, and records of an earlier one, which would be taken
// for those of ranks of this one, are gone.
void take_folder(const std::string& folder, core::Communicator& world, core::FlightRecorder& recorder) {
  const auto agree = [&](const std::function<void()>& body) {
    core::collectively(world, "--flight-recorder-dump-path", body);
  };
  core::FlightLeftovers leftovers;
  std::unique_ptr<core::FlightFolderLock> lock;
  agree([&] {
    std::error_code error;
    fs::create_directories(folder, error);
    if (error) throw core::Error(core::ErrorCode::kIo, cat("cannot create ", folder, ": ", error.message()));
    leftovers = core::find_flight_leftovers(folder, world.rank(), world.size());
    if (world.rank() == 0) lock = std::make_unique<core::FlightFolderLock>(folder);
  });
  agree([&] {
    core::remove_flight_leftovers(leftovers);
    if (world.rank() == 0) log_leftovers(leftovers, folder);
  });
  if (lock != nullptr) recorder.hold(std::move(lock));
}

}  // namespace

void open_flight_recorder(const FlightRecorderConfig& config, core::Communicator& world) {
  core::FlightRecorder* const recorder = world.endpoint().flight_recorder();
  const std::string& given = config.flight_recorder_dump_path;
  if (recorder == nullptr || recorder->active() || !config.flight_recorder || (given.empty() && world.size() == 1))
    return;
  try {
    if (!given.empty()) take_folder(given, world, *recorder);
    const fs::path folder = given.empty() ? default_folder(world) : fs::path(given);
    core::FlightRecorder::Options options{.folder = folder,
                                          .rank = world.endpoint().rank(),
                                          .world_size = world.endpoint().size(),
                                          .capacity = config.flight_recorder_trace_buffer_size,
                                          .remove_at_end = given.empty()};
    options.job = static_cast<uint64_t>(world.allreduce(world.rank() == 0 ? core::trace::now_ns() : int64_t{0}));
    core::collectively(world, kPhase, [&] { recorder->open(options); });
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
