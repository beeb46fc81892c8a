// Counts what was unexpected in an import: malformed input never stops an import, and is always reported.
//
// Each kind of issue has a severity and a sentence that says what the user can do.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace ms::profile {

enum class Severity : uint8_t { kInfo, kError, kDataLoss };

struct ImportIssue {
  Severity severity = Severity::kInfo;
  int64_t count = 0;
  std::string example;      // of the first: file, byte offset, text
  std::string_view advice;  // what the user can do
};

class ImportStats {
 public:
  // kind: one of the table in import_stats.cpp; another kind is a bug (kInternal).
  void add(std::string_view kind, std::string_view example, int64_t count = 1);
  void merge(const ImportStats& other);

  const std::map<std::string, ImportIssue>& issues() const { return issues_; }  // by kind
  bool data_loss() const;
  // One line per kind: "truncated: 1 (a.mstrace: ends at byte 900); ...advice".
  std::vector<std::string> lines() const;

 private:
  std::map<std::string, ImportIssue> issues_;
};

}  // namespace ms::profile
