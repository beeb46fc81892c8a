// Gives back the room of what a root no longer needs: what dead writers left, and generations that a rule gives up; of
// a folder in another format, which may be absent yet, what dead conversions left beside it (core/io/result_folder.h).
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "ckpt/retention.h"

namespace ms::ckpt {

struct GcOptions {
  Retention retention;   // of generations; keeps_all(): only what dead writers left goes
  bool dry_run = false;  // only says what would go
};

struct GcItem {
  std::filesystem::path path;
  std::string reason;       // "unfinished", "on its way out", "superseded"
  int64_t bytes = 0;        // of its files
  int64_t bytes_freed = 0;  // without those of files that generations which stay hold too, by hard links
};

struct GcReport {
  bool native = false;           // the root is one of ours; else only conversions have left something
  std::filesystem::path newest;  // stays whatever the rule says; empty if no generation is whole
  std::vector<GcItem> items;     // unfinished ones first, then the oldest
  std::vector<std::string> notes;
};

// Takes the lock of a root of ours, so that no saver is at work. The newest generation whose manifest, files and sizes
// hold stays, and so does every one that is newer and damaged: it may be mended by hand. Each directory is renamed to
// .trash-*, the root synced, then its files go: a kill at any moment leaves nothing that looks whole and is not. Throws
// kIo if another process saves there, or if something cannot be removed; kNotFound if root is absent and so is any
// attempt at it.
GcReport collect_garbage(const std::filesystem::path& root, const GcOptions& options);

}  // namespace ms::ckpt
