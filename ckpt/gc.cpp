#include "ckpt/gc.h"

#include <sys/stat.h>

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "ckpt/commit.h"
#include "core/error.h"
#include "core/io/lock_file.h"

namespace ms::ckpt {

namespace fs = std::filesystem;
using core::cat;
using core::Error;
using core::ErrorCode;

namespace {

// Fills in bytes and bytes_freed: a file is freed when every name it has is in what goes.
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

GcReport collect_garbage(const fs::path& root, const GcOptions& options) {
  if (!fs::is_directory(root)) throw Error(ErrorCode::kNotFound, cat(root.string(), ": no such directory"));
  const core::LockFile lock((root / kLockName).string());
  GcReport report;
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
  std::reverse(old.begin(), old.end());  // oldest first
  for (const Generation& generation : old) report.items.push_back({generation.path, "superseded"});
  count_bytes(report.items);
  if (options.dry_run) return report;
  for (const Generation& generation : old) remove_generation(root, generation);
  remove_abandoned(root);
  for (const GcItem& item : report.items) {
    if (fs::exists(item.path)) throw Error(ErrorCode::kIo, cat("cannot remove ", item.path.string()));
  }
  return report;
}

}  // namespace ms::ckpt
