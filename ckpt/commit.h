// Generations in a checkpoint root: how one is committed, and how the newest whole one is found.
//
//   <root>/iter_0000100/  iter_0000100.r1/     committed: has a manifest whose hash, files and sizes hold
//   <root>/iter_0000200.tmp-<host>-<pid>-..    unfinished: never loaded
//   <root>/latest_checkpointed_iteration.txt   written last; advisory
//
// Commit order, each step durable before the next: rank files (their writers fsync), manifest, directory, rename, root,
// pointer (checkpoints.md 12.1).
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
inline constexpr const char* kTrashPrefix = ".trash-";  // of generations on their way out

// "iter_0000100", or with attempt > 0 "iter_0000100.r1".
std::string generation_name(int64_t iteration, int64_t attempt);

// Writes the manifest (its attempt and durability are set here), renames the directory to its generation name, taking
// the first attempt that is free, and moves the pointer. Returns the final path. Throws kIo; then nothing is visible
// (or, if only the last fsync of the root failed, a whole generation that the disk may still lose).
// A failure to move the pointer, after the rename, is reported as a warning: the generation is whole and will be found.
std::filesystem::path commit_generation(const std::filesystem::path& root, core::AtomicDirectory& directory,
                                        Manifest manifest);

struct Generation {
  std::filesystem::path path;
  int64_t iteration = 0;
  int64_t attempt = 0;
};

// iter_* directories of root with a committed name, newest first; nothing is opened.
std::vector<Generation> list_generations(const std::filesystem::path& root);

// The manifest, if self-hash, file list and sizes hold; else throws kCorruptData, kNotFound (no manifest) or kIo.
Manifest check_generation(const std::filesystem::path& directory);

// The iteration the pointer names; nothing if there is no readable pointer.
std::optional<int64_t> read_pointer(const std::filesystem::path& root);

// What to say of the pointer when the newest whole generation is of this iteration: that it names another one, or is no
// number. Nothing if it agrees or is absent.
std::optional<std::string> pointer_note(const std::filesystem::path& root, int64_t iteration);

struct Latest {
  Generation generation;
  std::vector<std::string> notes;  // for the log: damaged newer generations, a pointer that says otherwise
};
// The newest generation that check_generation accepts, without trusting the pointer; nothing if root has none or is
// absent. Throws kCorruptData if there are generations but none is whole.
std::optional<Latest> find_latest(const std::filesystem::path& root);

// path itself if it is a generation (has a manifest), else the newest one in it, whose notes are logged as warnings.
// Throws kNotFound, kCorruptData.
std::filesystem::path resolve_generation(const std::filesystem::path& path);

// Until the writer process of a trainer that has died (--ckpt-writer process) has committed in root, or given up
// (core/io/lock_file.h). Returns at once where there is none.
void wait_for_writer(const std::filesystem::path& root);

// What dead writers left (iter_*.tmp-*, .trash-*, pointers and probes they were at), in the order of names. Only with
// root's lock held: else it may be that of the living. Never throws.
std::vector<std::filesystem::path> list_abandoned(const std::filesystem::path& root);
// Removes all that; returns how many.
int remove_abandoned(const std::filesystem::path& root);

}  // namespace ms::ckpt
