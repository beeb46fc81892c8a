// A folder that a job makes or adds to: filled in a staging directory beside it, then moved to its place. Nothing
// unfinished ever lies in the folder itself, which its owner may be uploading.
//
//   <parent>/<name>.msckpt-tmp/
//     lock         whose job it is (lock_file.h): held until the end, so one that can be taken is of a dead attempt
//     notes        write_notes.h, to resume
//     publishing   while entries are moved one by one into a folder that was there before
//     result/      what the folder will hold
//
// Where no sibling can be made, or would lie on another file system (the folder is a mount point), the staging
// directory is <folder>/.msckpt-tmp.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "core/io/lock_file.h"

namespace ms::core {

// Of the file beside a result that says how it was made (convert/report.h); itself written by way of a staging
// directory.
inline constexpr const char* kReportSuffix = ".msckpt_report.json";

class ResultFolder {
 public:
  // Takes the lock and makes the staging directory; the folder's parent is made if absent. What a dead attempt left is
  // removed, or with keep left as it is. Throws kIo if another process fills the folder, or on a disk error.
  explicit ResultFolder(const std::filesystem::path& folder, bool keep = false);
  // Removes the staging directory, and the parents that were made if they are empty, unless publish() or leave() was
  // called. Never throws.
  ~ResultFolder();
  ResultFolder(const ResultFolder&) = delete;
  ResultFolder& operator=(const ResultFolder&) = delete;

  const std::filesystem::path& staged() const { return result_; }  // to be filled
  std::filesystem::path notes_path() const { return staging_ / "notes"; }

  // Moves everything from staged() into the folder and removes the staging directory. A folder that is not there
  // appears whole; else entries are moved one by one, files replacing those of the same name, and those of `last` in
  // that order at the end. Throws kIo; kInvalidArgument, with nothing moved, if a directory to be moved is there
  // already.
  void publish(const std::vector<std::string>& last);
  // The staging directory stays, for a later attempt with `keep`.
  void leave() { stays_ = true; }

 private:
  void publish_entries(const std::vector<std::string>& last);
  void abandon() noexcept;

  std::filesystem::path folder_, staging_, result_;
  std::vector<std::filesystem::path> made_parents_;  // outermost first
  std::unique_ptr<LockFile> lock_;
  bool stays_ = false, published_ = false;
};

// Staging directories of dead attempts at `folder`, which may be absent, and at its report. Those of living ones are
// left out.
std::vector<std::filesystem::path> abandoned_results(const std::filesystem::path& folder);
// Removes them, and what such an attempt had moved into the folder. Throws kIo if one cannot be removed.
void remove_abandoned_results(const std::filesystem::path& folder);

}  // namespace ms::core
