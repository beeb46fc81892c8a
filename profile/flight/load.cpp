#include "profile/flight/load.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

#include "core/comm/flight_folder.h"
#include "core/error.h"
#include "core/io/file.h"
#include "profile/flight/torch_dump.h"

namespace ms::profile {
namespace {

namespace fs = std::filesystem;
using core::cat;
using core::Error;
using core::ErrorCode;
using core::FlightDump;

// Leaves the records of mstrain, if there are any. PyTorch's dumps cannot be told from other files by their beginning.
void leave_records(const std::string& folder, std::vector<fs::path>& found, std::vector<std::string>& problems) {
  const auto others = std::ranges::stable_partition(found, core::is_flight_file);
  if (others.begin() == found.begin() || others.empty()) return;
  problems.push_back(cat(folder, ": ", others.size(), others.size() == 1 ? " file is" : " files are",
                         " no flight record of mstrain, left out: ", others.front().filename().string(),
                         others.size() > 1 ? ", .." : ""));
  found.erase(others.begin(), found.end());
}

std::vector<fs::path> files_of(const std::vector<std::string>& paths, std::vector<std::string>& problems) {
  std::vector<fs::path> files;
  for (const std::string& path : paths) {
    std::error_code error;
    if (!fs::exists(path, error)) throw Error(ErrorCode::kNotFound, cat(path, ": no such file or folder"));
    if (!fs::is_directory(path, error)) {
      files.emplace_back(path);
      continue;
    }
    std::vector<fs::path> found;
    for (fs::directory_iterator it(path, error), end; !error && it != end; it.increment(error)) {
      const std::string name = it->path().filename().string();
      if (it->is_regular_file(error) && !name.starts_with('.') && name != core::kFlightVerdict)
        found.push_back(it->path());
    }
    if (error) throw Error(ErrorCode::kIo, cat(path, ": ", error.message()));
    if (found.empty()) throw Error(ErrorCode::kNotFound, cat(path, ": the folder has no records of a flight recorder"));
    std::ranges::sort(found);
    leave_records(path, found, problems);
    files.insert(files.end(), found.begin(), found.end());
  }
  return files;
}

// A dump may not say who the members of a group are: all ranks, of the default one; else those that have used it.
void find_members(FlightRecords& records) {
  constexpr const char* kDefault = ":default_pg";
  std::map<std::string, std::set<int>> users;
  for (const FlightDump& dump : records.dumps) {
    for (const core::FlightEntry& entry : dump.entries) {
      if (entry.group >= 0) users[dump.groups[static_cast<size_t>(entry.group)].name].insert(dump.rank);
    }
  }
  for (FlightDump& dump : records.dumps) {
    for (core::FlightGroup& group : dump.groups) {
      if (!group.ranks.empty()) continue;
      if (group.name.ends_with(kDefault)) {
        for (int rank = 0; rank < records.world_size; ++rank) group.ranks.push_back(rank);
      } else {
        group.ranks.assign(users[group.name].begin(), users[group.name].end());
      }
    }
  }
}

// The lines in the folders, and beside the files of ours.
std::vector<FlightReport> reports_in(const std::vector<std::string>& paths) {
  constexpr int64_t kMaxLineBytes = 1 << 20;
  std::vector<fs::path> places;
  std::vector<FlightReport> reports;
  for (const std::string& path : paths) {
    std::error_code error;
    const bool is_folder = fs::is_directory(path, error);
    if (!is_folder && !core::is_flight_file(path)) continue;
    const fs::path place = (is_folder ? fs::path(path) : fs::path(path).parent_path()) / core::kFlightVerdict;
    if (std::ranges::find(places, place) != places.end() || !fs::is_regular_file(place, error)) continue;
    places.push_back(place);
    try {
      reports.push_back({place.string(), core::read_text(place.string(), kMaxLineBytes)});
    } catch (const Error&) {
      // The records say more.
    }
  }
  return reports;
}

}  // namespace

bool FlightRecords::lives() const {
  return static_cast<int>(dumps.size()) == world_size && std::ranges::all_of(dumps, [](const FlightDump& dump) {
           return dump.process == core::ProcessState::kRuns && !dump.ended && !dump.failed;
         });
}

FlightRecords load_flight(const std::vector<std::string>& paths, int world_size) {
  FlightRecords records;
  records.reported = reports_in(paths);
  std::vector<FlightDump> dumps;
  for (const fs::path& file : files_of(paths, records.problems)) {
    try {
      dumps.push_back(core::is_flight_file(file) ? core::read_flight_file(file) : read_torch_dump(file));
    } catch (const Error& e) {
      if (e.code() == ErrorCode::kNotFound) throw;
      records.problems.emplace_back(e.what());
    }
  }
  const size_t all = dumps.size();
  core::keep_newest_run(dumps);
  if (dumps.size() < all) records.problems.push_back(cat(all - dumps.size(), " files are of an earlier run: left out"));
  core::rewind_to_failure(dumps);
  std::ranges::stable_sort(dumps, {}, &FlightDump::rank);
  for (FlightDump& dump : dumps) {
    if (!records.dumps.empty() && records.dumps.back().rank == dump.rank) {
      records.problems.push_back(
          cat(dump.source, ": rank ", dump.rank, " has a record already, ", records.dumps.back().source, ": left out"));
      continue;
    }
    records.dumps.push_back(std::move(dump));
  }
  if (records.dumps.empty()) {
    throw Error(ErrorCode::kCorruptData,
                cat("no record of a flight recorder can be read",
                    records.problems.empty() ? std::string() : cat("; the first: ", records.problems.front())));
  }
  records.world_size = std::max(world_size, records.dumps.back().rank + 1);
  for (const FlightDump& dump : records.dumps) records.world_size = std::max(records.world_size, dump.world_size);
  find_members(records);
  return records;
}

}  // namespace ms::profile
