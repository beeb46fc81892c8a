#include "core/io/result_folder.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <sstream>

#include "core/error.h"
#include "core/io/atomic_directory.h"
#include "core/io/file.h"

namespace ms::core {
namespace {

namespace fs = std::filesystem;

constexpr const char *kSuffix = ".msckpt-tmp", *kLock = "lock", *kNotes = "notes", *kPublishing = "publishing",
                     *kResult = "result";
constexpr const char *kNew = "new ", *kReplaces = "replaces ";
constexpr int64_t kMaxMarkBytes = int64_t{64} << 20;

// The folder without a trailing slash; links and dots are resolved if the last component is one.
fs::path place_of(const fs::path& folder) {
  fs::path place = folder.lexically_normal();
  if (!place.has_filename()) place = place.parent_path();
  std::error_code error;
  const std::string name = place.filename().string();
  if (name.empty() || name == "." || name == ".." || fs::is_symlink(place, error)) {
    const fs::path resolved = fs::weakly_canonical(fs::absolute(place), error);
    if (!error) place = resolved;
  }
  return place;
}

fs::path parent_of(const fs::path& place) { return place.has_parent_path() ? place.parent_path() : "."; }

fs::path sibling_of(const fs::path& place) { return parent_of(place) / (place.filename().string() + kSuffix); }
fs::path inside_of(const fs::path& place) { return place / kSuffix; }

fs::path staging_of(const fs::path& place) {
  struct stat folder {
  }, parent{};
  if (::stat(place.c_str(), &folder) != 0 || ::stat(parent_of(place).c_str(), &parent) != 0) return sibling_of(place);
  const bool is_root = place == place.root_path();
  const bool apart = folder.st_dev != parent.st_dev || ::access(parent_of(place).c_str(), W_OK) != 0;
  return is_root || apart ? inside_of(place) : sibling_of(place);
}

bool is_there(const fs::path& path) {
  std::error_code error;
  return fs::exists(fs::symlink_status(path, error));
}

bool is_folder(const fs::path& path) {
  std::error_code error;
  return fs::is_directory(fs::symlink_status(path, error));
}

std::vector<std::string> entries_of(const fs::path& directory) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator it(directory, error), end; !error && it != end; it.increment(error)) {
    names.push_back(it->path().filename().string());
  }
  if (error) throw Error(ErrorCode::kIo, cat("cannot list ", directory.string(), ": ", error.message()));
  std::sort(names.begin(), names.end());
  return names;
}

// Moves back what a dead attempt had already moved into the folder, unless it had moved everything.
void undo_publication(const fs::path& staging, const fs::path& folder) {
  const fs::path mark = staging / kPublishing;
  if (!is_there(mark)) return;
  if (entries_of(staging / kResult).empty()) return;
  std::istringstream lines(read_text(mark.string(), kMaxMarkBytes));
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with(kNew)) continue;  // the replaced file is gone, and the new one is as good
    const std::string name = line.substr(std::strlen(kNew));
    const fs::path staged = staging / kResult / name;
    if (!is_there(staged) && is_there(folder / name)) rename_file((folder / name).string(), staged.string());
  }
  fs::remove(mark);
}

// Removes all entries except the lock.
void clear(const fs::path& staging) {
  std::error_code error;
  for (const std::string& name : entries_of(staging)) {
    if (name != kLock) fs::remove_all(staging / name, error);
    if (error) throw Error(ErrorCode::kIo, cat("cannot remove ", (staging / name).string(), ": ", error.message()));
  }
}

// Requires the lock, which is removed last: until then no other process uses the directory.
void remove_staging(const fs::path& staging) {
  clear(staging);
  std::error_code ignored;
  fs::remove(staging / kLock, ignored);
  fs::remove(staging, ignored);  // fails if another process has started to use it
}

void sync_directories(const fs::path& directory) {
  std::vector<std::string> all = {directory.string()};
  for (const auto& entry : fs::recursive_directory_iterator(directory)) {
    if (entry.is_directory()) all.push_back(entry.path().string());
  }
  for (auto it = all.rbegin(); it != all.rend(); ++it) fsync_directory(*it);
}

std::vector<fs::path> missing_parents(const fs::path& place) {
  std::vector<fs::path> missing;
  for (fs::path parent = place.parent_path(); !parent.empty() && !is_there(parent) && parent != parent.root_path();
       parent = parent.parent_path()) {
    missing.push_back(parent);
  }
  std::reverse(missing.begin(), missing.end());
  return missing;
}

// Null if another process has the lock.
std::unique_ptr<LockFile> lock_of_dead(const fs::path& staging) {
  try {
    return std::make_unique<LockFile>((staging / kLock).string(), 0);
  } catch (const Error&) {
    return nullptr;
  }
}

}  // namespace

ResultFolder::ResultFolder(const fs::path& folder, bool keep) : folder_(place_of(folder)) {
  constexpr int kTries = 100;
  made_parents_ = missing_parents(folder_);
  try {
    make_directories_durably(parent_of(folder_));
    staging_ = staging_of(folder_);
    result_ = staging_ / kResult;
    for (int i = 0; lock_ == nullptr; ++i) {
      make_directory(staging_);
      try {
        lock_ = std::make_unique<LockFile>((staging_ / kLock).string());
      } catch (const Error& error) {  // the previous holder removed it between the two calls
        if (error.code() != ErrorCode::kNotFound || i == kTries) throw;
      }
    }
    undo_publication(staging_, folder_);
    if (!keep) clear(staging_);
    make_directory(result_);
  } catch (...) {
    abandon();
    throw;
  }
}

ResultFolder::~ResultFolder() {
  if (!published_ && !stays_) abandon();
}

void ResultFolder::abandon() noexcept {
  std::error_code ignored;
  try {
    if (lock_ != nullptr) {
      undo_publication(staging_, folder_);
      remove_staging(staging_);
    } else if (!staging_.empty()) {
      fs::remove(staging_, ignored);  // if it is empty: another process may be using it
    }
  } catch (...) {  // disk error: the next attempt removes it
  }
  for (auto parent = made_parents_.rbegin(); parent != made_parents_.rend(); ++parent) fs::remove(*parent, ignored);
}

void ResultFolder::publish(const std::vector<std::string>& last) {
  sync_directories(result_);
  if (is_there(folder_) || !rename_durably_if_absent(result_.string(), folder_.string())) publish_entries(last);
  published_ = true;
  remove_staging(staging_);
}

void ResultFolder::publish_entries(const std::vector<std::string>& last) {
  std::vector<std::string> names = entries_of(result_);
  const auto rank = [&](const std::string& name) { return std::find(last.begin(), last.end(), name) - last.begin(); };
  // Names that are not in `last` have rank last.size().
  std::stable_sort(names.begin(), names.end(), [&](const std::string& a, const std::string& b) {
    const auto first = rank(a), second = rank(b), none = static_cast<std::ptrdiff_t>(last.size());
    if (first == none || second == none) return first == none && second != none;
    return first < second;
  });
  std::string mark;
  for (const std::string& name : names) {
    const bool replaces = is_there(folder_ / name);
    if (replaces && (is_folder(folder_ / name) || is_folder(result_ / name))) {
      throw Error(ErrorCode::kInvalidArgument,
                  cat((folder_ / name).string(), " already exists; choose another folder"));
    }
    mark += cat(replaces ? kReplaces : kNew, name, "\n");
  }
  write_text_atomically((staging_ / kPublishing).string(), mark);
  for (const std::string& name : names) {
    const bool ordered = rank(name) != static_cast<std::ptrdiff_t>(last.size());
    if (ordered) fsync_directory(folder_.string());
    rename_file((result_ / name).string(), (folder_ / name).string());
  }
  fsync_directory(folder_.string());
}

std::vector<fs::path> abandoned_results(const fs::path& folder) {
  const fs::path place = place_of(folder);
  std::vector<fs::path> found;
  for (const fs::path& staging : {sibling_of(place), inside_of(place), sibling_of(place.string() + kReportSuffix)}) {
    if (is_folder(staging) && lock_of_dead(staging) != nullptr) found.push_back(staging);
  }
  return found;
}

void undo_dead_publication(const fs::path& folder) {
  const fs::path place = place_of(folder);
  for (const fs::path& staging : {sibling_of(place), inside_of(place)}) {
    if (!is_there(staging / kPublishing)) continue;
    const auto lock = lock_of_dead(staging);
    if (lock != nullptr) undo_publication(staging, place);
  }
}

void remove_abandoned_results(const fs::path& folder) {
  for (const fs::path& staging : abandoned_results(folder)) {
    const auto lock = lock_of_dead(staging);
    if (lock == nullptr) continue;
    undo_publication(staging, place_of(folder));
    remove_staging(staging);
    if (is_there(staging)) throw Error(ErrorCode::kIo, cat("cannot remove ", staging.string()));
  }
}

}  // namespace ms::core
