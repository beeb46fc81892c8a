// Counts the issues of a file by kind, each kind with the position of its first occurrence.
#pragma once

#include <string>
#include <string_view>

#include "core/error.h"
#include "profile/import_stats.h"

namespace ms::profile::detail {

class FileIssues {
 public:
  FileIssues(ImportStats& stats, const std::string& path) : stats_(stats), path_(path) {}

  // offset: position of the text in the uncompressed file, in bytes.
  void add(std::string_view kind, int64_t offset, std::string_view text = {}) {
    stats_.add(kind, core::cat(path_, ": byte ", offset, text.empty() ? "" : ": ", text.substr(0, kExampleBytes)));
  }
  ImportStats& stats() { return stats_; }
  const std::string& path() const { return path_; }

 private:
  static constexpr size_t kExampleBytes = 80;

  ImportStats& stats_;
  const std::string& path_;
};

}  // namespace ms::profile::detail
