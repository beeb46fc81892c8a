#include "ckpt/gc.h"

#include <sys/stat.h>

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "ckpt/commit.h"
#include "core/error.h"
#include "core/io/lock_file.h"
#include "core/io/result_folder.h"

namespace ms::ckpt {

namespace fs = std::filesystem;
using core::cat;
using core::Error;
using core::ErrorCode;

namespace {

// Fills in bytes and bytes_freed: a file is freed if all its hard links are in `items`.
void count_bytes(std::vector<GcItem>& items) {
  struct Content {
    int64_t bytes = 0;
    uint64_t names = 0, going = 0;
    size_t last_item = 0;
  };
  std::map<std::pair<uint64_t, uint64_t>, Content> contents;  // by device and inode
  for (size_t i = 0; i < items.size(); ++i) {
    const auto count = [&](const fs::path& path) {
      struct stat status {};
      if (::lstat(path.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) return;
      Content& content = contents[{status.st_dev, status.st_ino}];
      content.bytes = status.st_size;
      content.names = status.st_nlink;
      ++content.going;
      content.last_item = i;
      items[i].bytes += status.st_size;
    };
    count(items[i].path);
    std::error_code error;
    for (fs::recursive_directory_iterator it(items[i].path, error), end; !error && it != end; it.increment(error)) {
      count(it->path());
    }
  }
  for (const auto& [inode, content] : contents) {
    if (content.going >= content.names) items[content.last_item].bytes_freed += content.bytes;
  }
}

}  // namespace

namespace {

// True for a native root: a folder in another format must not get a lock file.
bool is_native_root(const fs::path& root) {
  if (fs::exists(root / kLockName) || !list_abandoned(root).empty()) return true;
  const std::vector<Generation> generations = list_generations(root);
  return std::any_of(generations.begin(), generations.end(),
                     [](const Generation& generation) { return fs::exists(generation.path / kManifestName); });
}

// Lists the generations to remove, oldest first.
std::vector<Generation> list_native_garbage(const fs::path& root, const GcOptions& options, GcReport& report) {
  for (const fs::path& path : list_abandoned(root)) {
    const bool trash = path.filename().string().rfind(kTrashPrefix, 0) == 0;
    report.items.push_back({path, trash ? "on its way out" : "unfinished"});
  }
  std::vector<Generation> old;
  try {
    if (const auto latest = find_latest(root)) {
      report.newest = latest->generation.path;
      report.notes = latest->notes;
      old = superseded(root, latest->generation, options.retention);
    }
  } catch (const Error& e) {
    if (e.code() != ErrorCode::kCorruptData) throw;
    report.notes.push_back(cat("no generation is removed: ", e.what()));
  }
  std::reverse(old.begin(), old.end());
  for (const Generation& generation : old) report.items.push_back({generation.path, "superseded"});
  return old;
}

}  // namespace

GcReport collect_garbage(const fs::path& root, const GcOptions& options) {
  GcReport report;
  for (const fs::path& path : core::abandoned_results(root)) report.items.push_back({path, "unfinished"});
  if (!fs::is_directory(root) && report.items.empty()) {
    throw Error(ErrorCode::kNotFound, cat(root.string(), ": no such directory"));
  }
  std::optional<core::LockFile> lock;
  std::vector<Generation> old;
  if (is_native_root(root)) {
    report.native = true;
    lock.emplace((root / kLockName).string());
    old = list_native_garbage(root, options, report);
  }
  count_bytes(report.items);
  if (options.dry_run) return report;
  for (const Generation& generation : old) remove_generation(root, generation);
  if (lock) remove_abandoned(root);
  core::remove_abandoned_results(root);
  for (const GcItem& item : report.items) {
    if (fs::exists(item.path)) throw Error(ErrorCode::kIo, cat("cannot remove ", item.path.string()));
  }
  return report;
}

}  // namespace ms::ckpt
