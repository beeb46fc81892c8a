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
    {"truncated", Severity::kDataLoss,
     "the program was killed or the copy is incomplete; everything before the cut is used"},
    {"damaged_chunk", Severity::kDataLoss, "the file was changed after it was written; copy it again"},
    {"lost_events", Severity::kDataLoss, "events are missing: numbers are lower bounds"},
    {"dropped_events", Severity::kDataLoss, "the recorder could not keep up: profile fewer steps, ranks or details"},
    {"bad_event", Severity::kDataLoss, "the event violates the format and was skipped"},
    {"crc", Severity::kDataLoss, "the checksum of the compressed data is wrong: the data is used, and may be damaged"},
    {"syntax", Severity::kDataLoss, "an event that is not valid JSON was skipped; reading continued after it"},
    {"oversized_event", Severity::kDataLoss, "an event of more than 64 MiB was skipped; record without its arguments"},
    {"extra_document", Severity::kDataLoss, "only the first JSON document of a file is read: split the file"},
    {"missing_ph", Severity::kDataLoss, "events without a phase (\"ph\") were skipped"},
    {"missing_ts", Severity::kDataLoss, "events without a time (\"ts\") were skipped"},
    {"bad_number", Severity::kError, "a time that is not a number, or too large, was taken as missing"},
    {"unknown_ph", Severity::kError, "events of unknown phases were skipped"},
    {"not_an_object", Severity::kError, "array elements that are not events were skipped"},
    {"missing_dur", Severity::kError, "slices without a duration are kept with duration 0"},
    {"negative_dur", Severity::kError, "negative durations were set to 0: the profiler's clock went back"},
    {"unmatched_begin", Severity::kError, "slices without an end last to the end of the trace"},
    {"unmatched_end", Severity::kError, "ends of slices without a beginning were skipped"},
    {"ts_outlier", Severity::kError,
     "events far from all others stretch the span; remove them with msprof slice --time-range"},
    {"suspicious_dur", Severity::kError, "impossible durations; a few such events can be most of the device time"},
    {"no_partner", Severity::kError, "the profiler dropped launches or kernels: numbers are lower bounds"},
    {"launched_before", Severity::kError,
     "kernels launched before the recording began count in the step in which they run, which makes its times too high"},
    {"short_row", Severity::kError, "table rows with too few or too many cells were skipped"},
    {"overlapping_slices", Severity::kInfo, "slices of one thread that overlap without nesting; all are kept"},
    {"control_characters", Severity::kInfo, "names with raw control characters; they are kept"},
    {"trailing_bytes", Severity::kInfo, "bytes after the end of the data were ignored"},
    {"unknown_category", Severity::kInfo, "unknown categories: device work if a launch has the same correlation"},
    {"no_meta", Severity::kError, "rank and settings come from the file's name and the other ranks"},
    {"missing_names", Severity::kError, "texts that the recorder lost: the events are kept without them"},
    {"unknown_clock", Severity::kError, "times of a clock without a snapshot are used unconverted"},
    {"skipped_packets", Severity::kInfo, "packets of data sources other than track events are not read"},
    {"packed_packets", Severity::kDataLoss,
     "compressed packets are not read: record uncompressed, or export from Perfetto's UI"},
    {"unreadable_file", Severity::kDataLoss, "the others are analysed; check the file"},
    {"skipped_files", Severity::kInfo, "files in a folder that are not traces"},
    {"missing_ranks", Severity::kError, "give the files of all ranks, or record with --profile-ranks -1"},
    {"far_apart", Severity::kError,
     "the files were joined, so the span contains the time between them; if they belong to different runs, give one of "
     "them"},
    {"no_clock", Severity::kError, "ranks without a clock table are placed by their own clocks"},
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
