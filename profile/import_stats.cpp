#include "profile/import_stats.h"

#include <algorithm>
#include <iterator>

#include "core/error.h"

namespace ms::profile {
namespace {

struct Kind {
  std::string_view name;
  Severity severity;
  std::string_view advice;
};

constexpr Kind kKinds[] = {
    {"truncated", Severity::kDataLoss, "the program was killed or the copy is incomplete; all before the cut is used"},
    {"damaged_chunk", Severity::kDataLoss, "the file was changed after it was written; copy it again"},
    {"lost_events", Severity::kDataLoss, "events of damaged chunks are missing: numbers are lower bounds"},
    {"dropped_events", Severity::kDataLoss, "the recorder could not keep up: profile fewer steps, ranks or details"},
    {"bad_event", Severity::kDataLoss, "the event contradicts the format and was left out"},
    {"no_meta", Severity::kError, "rank and settings are taken from the file's name and the other ranks"},
    {"unreadable_file", Severity::kDataLoss, "the others are analysed; check the file"},
    {"skipped_files", Severity::kInfo, "files in a folder that are no traces"},
    {"missing_ranks", Severity::kError, "give the files of all ranks, or record with --profile-ranks -1"},
    {"no_clock", Severity::kError, "ranks without a clock table are put together by their own clocks"},
};

}  // namespace

void ImportStats::add(std::string_view kind, std::string_view example, int64_t count) {
  const auto known = std::find_if(std::begin(kKinds), std::end(kKinds), [&](const Kind& k) { return k.name == kind; });
  MS_CHECK(known != std::end(kKinds), "import issue ", kind);
  ImportIssue& issue = issues_[std::string(kind)];
  if (issue.count == 0) issue = {known->severity, 0, std::string(example), known->advice};
  issue.count += count;
}

void ImportStats::merge(const ImportStats& other) {
  for (const auto& [kind, issue] : other.issues_) add(kind, issue.example, issue.count);
}

bool ImportStats::data_loss() const {
  return std::any_of(issues_.begin(), issues_.end(),
                     [](const auto& entry) { return entry.second.severity == Severity::kDataLoss; });
}

std::vector<std::string> ImportStats::lines() const {
  std::vector<std::string> lines;
  for (const auto& [kind, issue] : issues_) {
    lines.push_back(core::cat(kind, ": ", issue.count, " (", issue.example, "); ", issue.advice));
  }
  return lines;
}

}  // namespace ms::profile
