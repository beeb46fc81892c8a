// Generations in a checkpoint root: commits one, and finds the newest complete one.
//
//   <root>/iter_0000100/  iter_0000100.r1/     committed: the manifest's hash is right, all files have the stated sizes
//   <root>/iter_0000200.tmp-<host>-<pid>-..    unfinished: never loaded
//   <root>/latest_checkpointed_iteration.txt   written last; advisory
//
// Commit order, each step durable before the next (FORMAT.md section 1): rank files (their writers fsync), manifest,
// directory, rename, root, pointer.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "ckpt/manifest.h"
#include "core/io/atomic_directory.h"

namespace ms::ckpt {

inline constexpr const char* kPointerName = "latest_checkpointed_iteration.txt";
inline constexpr const char* kLockName = ".msckpt.lock";
inline constexpr const char* kTrashPrefix = ".trash-";  // prefix of generations that are being removed

// "iter_0000100", or with attempt > 0 "iter_0000100.r1".
std::string generation_name(int64_t iteration, int64_t attempt);

// Writes the manifest (its attempt and durability are set here), renames the directory to its generation name with the
// first free attempt, and updates the pointer file. Returns the final path. Throws kIo; then nothing is visible (or, if
// only the last fsync of the root failed, a complete generation that the disk may still lose).
// If the pointer cannot be updated after the rename, this logs a warning only: readers find the generation without it.
std::filesystem::path commit_generation(const std::filesystem::path& root, core::AtomicDirectory& directory,
                                        Manifest manifest);

struct Generation {
  std::filesystem::path path;
  int64_t iteration = 0;
  int64_t attempt = 0;
};

// The iter_* directories of root with a committed name, newest first. Opens no file.
std::vector<Generation> list_generations(const std::filesystem::path& root);

// Returns the manifest if its self-hash, file list and sizes are right. Throws kCorruptData, kNotFound (no manifest) or
// kIo.
Manifest check_generation(const std::filesystem::path& directory);

// The iteration that the pointer file names; nullopt if there is no readable pointer.
std::optional<int64_t> read_pointer(const std::filesystem::path& root);

// A warning for the log if the pointer file disagrees with `iteration`, that of the newest complete generation: it
// names another one, or is not a number. nullopt if it agrees or is absent.
std::optional<std::string> pointer_note(const std::filesystem::path& root, int64_t iteration);

struct Latest {
  Generation generation;
  std::vector<std::string> notes;  // for the log: damaged newer generations, a pointer that disagrees
};
// The newest generation that check_generation accepts, whatever the pointer names; nullopt if root has no generation or
// is absent. Throws kCorruptData if there are generations but none is complete.
std::optional<Latest> find_latest(const std::filesystem::path& root);

// Returns path itself if it is a generation (has a manifest), else the newest complete one in it; that one's notes are
// logged as warnings. Throws kNotFound, kCorruptData.
std::filesystem::path resolve_generation(const std::filesystem::path& path);

// Waits until the writer process of a dead trainer (--ckpt-writer process) has committed in root or given up
// (core/io/lock_file.h). Returns at once if there is none.
void wait_for_writer(const std::filesystem::path& root);

// What dead writers left behind (iter_*.tmp-*, .trash-*, temporary pointers and probes), sorted by name. Call it only
// with root's lock held, or it may list the files of a live writer. Never throws.
std::vector<std::filesystem::path> list_abandoned(const std::filesystem::path& root);
// Removes everything that list_abandoned returns; returns how many.
int remove_abandoned(const std::filesystem::path& root);

}  // namespace ms::ckpt
