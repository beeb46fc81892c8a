// A folder that a job creates or adds to: filled in a staging directory beside it, then moved into place. The folder
// itself never holds anything unfinished, because its owner may be uploading it.
//
//   <parent>/<name>.msckpt-tmp/
//     lock         names the job (lock_file.h); held until the end, so a lock that can be taken is of a dead attempt
//     notes        write_notes.h, to resume
//     publishing   exists while entries are moved one by one into an existing folder
//     result/      future contents of the folder
//
// If no sibling can be created, or it would be on another file system (the folder is a mount point), the staging
// directory is <folder>/.msckpt-tmp.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "core/io/lock_file.h"

namespace ms::core {

// Suffix of the file beside a result that records how it was made (convert/report.h); also written through a staging
// directory.
inline constexpr const char* kReportSuffix = ".msckpt_report.json";

class ResultFolder {
 public:
  // Takes the lock and creates the staging directory, and the folder's parent if absent. Leftovers of a dead attempt
  // are removed, or kept with `keep`. Throws kIo if another process fills the folder, or on a disk error.
  explicit ResultFolder(const std::filesystem::path& folder, bool keep = false);
  // Removes the staging directory, and empty parents that were created, unless publish() or leave() was called. Never
  // throws.
  ~ResultFolder();
  ResultFolder(const ResultFolder&) = delete;
  ResultFolder& operator=(const ResultFolder&) = delete;

  const std::filesystem::path& staged() const { return result_; }  // to be filled
  std::filesystem::path notes_path() const { return staging_ / "notes"; }

  // Moves everything from staged() into the folder and removes the staging directory. A folder that does not exist
  // appears complete; otherwise entries are moved one by one, files replacing those of the same name, and those of
  // `last` are moved last, in that order. Throws kIo; kInvalidArgument, with nothing moved, if a directory to be moved
  // exists already.
  void publish(const std::vector<std::string>& last);
  // Keeps the staging directory for a later attempt with `keep`.
  void leave() { stays_ = true; }

 private:
  void publish_entries(const std::vector<std::string>& last);
  void abandon() noexcept;

  std::filesystem::path folder_, staging_, result_;
  std::vector<std::filesystem::path> made_parents_;  // outermost first
  std::unique_ptr<LockFile> lock_;
  bool stays_ = false, published_ = false;
};

// Staging directories of dead attempts at `folder`, which may be absent, and at its report. Directories in use are not
// listed.
std::vector<std::filesystem::path> abandoned_results(const std::filesystem::path& folder);
// Moves what a dead attempt had moved into the folder back into its staging directory, so that the folder is as before.
// For checks of the folder before a ResultFolder exists. Throws kIo.
void undo_dead_publication(const std::filesystem::path& folder);
// Removes them, and what these attempts had moved into the folder. Throws kIo if one cannot be removed.
void remove_abandoned_results(const std::filesystem::path& folder);

}  // namespace ms::core
