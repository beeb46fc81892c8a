#include "core/comm/flight_folder.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <optional>
#include <utility>

#include "core/comm/flight_dump.h"
#include "core/comm/process_home.h"
#include "core/error.h"

namespace ms::core {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFolderPrefix = "msuite-flight-";
constexpr const char* kLockName = ".lock";

bool is_named_as_record(const fs::path& path) {
  return path.extension() == ".flight" && path.filename().string().starts_with("rank_");
}

// Files of the folder with the name of a record, sorted.
std::vector<fs::path> records_in(const fs::path& folder) {
  std::vector<fs::path> paths;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    if (is_named_as_record(it->path())) paths.push_back(it->path());
  }
  if (error) throw Error(ErrorCode::kIo, cat("cannot list ", folder.string(), ": ", error.message()));
  std::ranges::sort(paths);
  return paths;
}

// Of a record of ours. nullopt: it is damaged, of another version, or gone by now.
std::optional<FlightDump> dump_if_readable(const fs::path& path) {
  try {
    return read_flight_file(path);
  } catch (const Error&) {
    return std::nullopt;
  }
}

bool is_written(const FlightDump& dump) {
  const bool lives = dump.process == ProcessState::kRuns || dump.process == ProcessState::kStopped;
  return lives && !dump.ended && dump.pid != ::getpid();
}

// Whether a run that can be seen from here writes to it.
bool is_in_use(const fs::path& folder) {
  std::vector<fs::path> paths;
  try {
    paths = records_in(folder);
  } catch (const Error&) {
    return true;  // it is not this user's, or about to vanish
  }
  return std::ranges::any_of(paths, [](const fs::path& path) {
    const std::optional<FlightDump> dump = dump_if_readable(path);
    return dump && is_written(*dump);
  });
}

[[noreturn]] void refuse_foreign(const fs::path& path) {
  throw Error(ErrorCode::kInvalidArgument,
              cat(path.string(), " exists, and no run of mstrain has written it: move it, or name another folder"));
}

}  // namespace

std::string flight_file_name(int rank) {
  std::array<char, 32> name{};
  std::snprintf(name.data(), name.size(), "rank_%05d.flight", rank);
  return name.data();
}

fs::path make_default_flight_folder(std::string_view token) {
  std::error_code error;
  fs::path root = "/dev/shm";
  if (!fs::is_directory(root, error) || ::access(root.c_str(), W_OK) != 0) root = fs::temp_directory_path(error);
  const std::string prefix = cat(kFolderPrefix, ::getuid(), "-");
  std::vector<std::pair<fs::file_time_type, fs::path>> old;
  for (fs::directory_iterator it(root, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (!name.starts_with(prefix)) continue;
    const int64_t pid = std::strtoll(name.c_str() + prefix.size(), nullptr, 10);
    if (pid > 0 && process_state(pid) != ProcessState::kDead) continue;  // of a run that goes on
    const auto time = fs::last_write_time(it->path(), error);
    if (!error) old.emplace_back(time, it->path());
  }
  std::ranges::sort(old, std::greater<>());
  for (size_t i = kKeptFlightFolders; i < old.size(); ++i) {
    // The process of its name may be on another machine, or dead before the others of its run.
    if (!is_in_use(old[i].second)) fs::remove_all(old[i].second, error);
  }
  const fs::path folder = root / cat(prefix, token);
  if (!fs::create_directories(folder, error) && error) {
    throw Error(ErrorCode::kIo, cat("cannot create ", folder.string(), ": ", error.message()));
  }
  return folder;
}

FlightLeftovers find_flight_leftovers(const fs::path& folder, int rank, int world_size) {
  FlightLeftovers found;
  std::error_code error;
  bool has_failed = false;  // then the verdict is ours
  for (const fs::path& path : rank == 0 ? records_in(folder) : std::vector{folder / flight_file_name(rank)}) {
    if (!fs::exists(fs::symlink_status(path, error))) continue;
    if (!fs::is_regular_file(fs::symlink_status(path, error)) || !is_flight_file(path)) {
      for (int of = rank; of < (rank == 0 ? world_size : rank + 1); ++of) {
        if (path.filename() == flight_file_name(of)) refuse_foreign(path);
      }
      found.foreign.push_back(path);
      continue;
    }
    const std::optional<FlightDump> dump = dump_if_readable(path);
    if (dump && is_written(*dump)) {
      throw Error(ErrorCode::kIo, cat("process ", dump->pid, ", rank ", dump->rank, " of a run of ", dump->world_size,
                                      " ranks that goes on, writes its records to ", path.string(),
                                      ": wait for its end, or name another folder"));
    }
    has_failed |= !dump || dump->failed;
    found.replaced.push_back(path);
  }
  const fs::path verdict = folder / kFlightVerdict;
  if (!fs::exists(fs::symlink_status(verdict, error))) return found;
  if (has_failed) {
    found.replaced.push_back(verdict);
  } else if (rank == 0) {
    refuse_foreign(verdict);
  }
  return found;
}

void remove_flight_leftovers(const FlightLeftovers& leftovers) {
  for (const fs::path& path : leftovers.replaced) {
    std::error_code error;
    fs::remove(path, error);
    if (error) throw Error(ErrorCode::kIo, cat("cannot remove ", path.string(), ": ", error.message()));
  }
}

FlightFolderLock::FlightFolderLock(const fs::path& folder) : path_(folder / kLockName), lock_(path_.string(), 0) {}

FlightFolderLock::~FlightFolderLock() {
  std::error_code ignored;
  fs::remove(path_, ignored);
}

}  // namespace ms::core
