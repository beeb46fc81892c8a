// A directory that appears whole or not at all: filled under a temporary name, then renamed.
//
// The temporary name is <name>.tmp-<host>-<pid>-<nonce>, so that what a dead process left is recognised and never taken
// for the real one.
#pragma once

#include <filesystem>
#include <string>

namespace ms::core {

// ".tmp-<host>-<pid>-<nonce>"; unique within the process and, through pid and host, across a cluster at one time.
std::string temporary_suffix();

// Makes the directory; one that is there already is fine. Throws kIo.
void make_directory(const std::filesystem::path& path);

// Makes the directory, and those above it that are missing, each durable in the one that holds it: what is committed in
// it later must not be lost with its name. Throws kIo.
void make_directories_durably(const std::filesystem::path& path);

class AtomicDirectory {
 public:
  // Makes `temporary`, whose parent exists. One that is there already is used: ranks share it.
  explicit AtomicDirectory(std::filesystem::path temporary);
  // Removes the temporary directory unless commit() renamed it, or leave() was called. Never throws.
  ~AtomicDirectory();
  AtomicDirectory(const AtomicDirectory&) = delete;
  AtomicDirectory& operator=(const AtomicDirectory&) = delete;

  const std::filesystem::path& path() const { return path_; }

  // fsyncs the directory, renames it to `target` and fsyncs the parent. False, with nothing renamed, if target exists.
  // durable: set to false if the file system cannot fsync directories.
  bool commit(const std::filesystem::path& target, bool* durable = nullptr);
  // It is not removed.
  void leave() { stays_ = true; }

 private:
  std::filesystem::path path_;
  bool committed_ = false, stays_ = false;
};

}  // namespace ms::core
