// Garbage collection in a checkpoint root: removes what dead writers left behind, and generations that the retention
// rule no longer keeps. For a folder in another format (which need not exist yet), removes what dead conversions left
// beside it (core/io/result_folder.h).
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "ckpt/retention.h"

namespace ms::ckpt {

struct GcOptions {
  Retention retention;   // of generations; keeps_all(): remove only what dead writers left
  bool dry_run = false;  // only list what would be removed
};

struct GcItem {
  std::filesystem::path path;
  std::string reason;       // "unfinished", "on its way out", "superseded"
  int64_t bytes = 0;        // of its files
  int64_t bytes_freed = 0;  // excludes files that remaining generations share by hard links
};

struct GcReport {
  bool native = false;           // a native root; false: only conversions left something
  std::filesystem::path newest;  // always kept; empty if no generation is complete
  std::vector<GcItem> items;     // unfinished ones first, then the oldest
  std::vector<std::string> notes;
};

// Takes the lock of a native root, so that no saver can be running. Keeps the newest generation whose manifest, files
// and sizes are right, and every newer, damaged one: it may be repaired by hand. Each directory is renamed to .trash-*,
// the root is synced, then the files are removed: a kill at any moment leaves nothing that looks complete and is not.
// Throws kIo if another process saves there or something cannot be removed; kNotFound if neither root nor any attempt
// at it exists.
GcReport collect_garbage(const std::filesystem::path& root, const GcOptions& options);

}  // namespace ms::ckpt
