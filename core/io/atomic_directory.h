// Creates a directory that appears complete or not at all: it is filled under a temporary name, then renamed.
//
// The temporary name is <name>.tmp-<host>-<pid>-<nonce>, so that leftovers of a dead process are recognised and never
// mistaken for the result.
#pragma once

#include <filesystem>
#include <string>

namespace ms::core {

// ".tmp-<host>-<pid>-<nonce>"; unique within the process and, through pid and host, in a cluster at any one time.
std::string temporary_suffix();

// Creates the directory; succeeds if it exists. Throws kIo.
void make_directory(const std::filesystem::path& path);

// Creates the directory and its missing parents, and fsyncs each one's parent, so that what is committed in it later
// cannot be lost with its name. Throws kIo.
void make_directories_durably(const std::filesystem::path& path);

class AtomicDirectory {
 public:
  // Creates `temporary`, whose parent must exist. Uses an existing directory, because ranks share it.
  explicit AtomicDirectory(std::filesystem::path temporary);
  // Removes the temporary directory unless commit() renamed it or leave() was called. Never throws.
  ~AtomicDirectory();
  AtomicDirectory(const AtomicDirectory&) = delete;
  AtomicDirectory& operator=(const AtomicDirectory&) = delete;

  const std::filesystem::path& path() const { return path_; }

  // fsyncs the directory, renames it to `target` and fsyncs the parent. Returns false without renaming if target
  // exists. durable: set to false if the file system cannot fsync directories.
  bool commit(const std::filesystem::path& target, bool* durable = nullptr);
  // Keeps the temporary directory.
  void leave() { stays_ = true; }

 private:
  std::filesystem::path path_;
  bool committed_ = false, stays_ = false;
};

}  // namespace ms::core
