// Converts scanned Chrome trace events to the columns of a RankTrace.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "profile/ingest/detail/event_scan.h"
#include "profile/ingest/detail/file_issues.h"
#include "profile/ingest/detail/flow_set.h"
#include "profile/ingest/detail/lane_table.h"
#include "profile/ingest/detail/slice_edges.h"
#include "profile/ingest/detail/value_names.h"
#include "profile/ingest/kineto_words.h"
#include "profile/ingest/source_arguments.h"
#include "profile/store.h"

namespace ms::profile::detail {

// As an ArgumentFilter it also decides which arguments are scanned.
class EventColumns final : public ArgumentFilter {
 public:
  EventColumns(RankTrace& trace, FileIssues& issues) : trace_(trace), issues_(issues) {
    categories_.reserve(kCachedCategories);  // no reallocation: pointers to entries stay valid
  }

  // Call before each scan. text: the event's first byte; offset: its position in the file.
  void begin_event(const char* text, int64_t offset) {
    text_ = text;
    offset_ = offset;
    names_.forget();
    category_at_ = nullptr;
  }
  // The events were exported by msprof (report/chrome_trace.h): all their arguments are used, and the names that were
  // substituted for other tools are reverted. Call before the first event.
  void expect_own() { own_ = true; }
  bool own() const { return own_; }
  // Calls visitor for each slice that is added. visitor must outlive this.
  void visit_arguments(const ArgumentVisitor& visitor) { visitor_ = &visitor; }
  bool wants_arguments(const ScannedEvent& event) override;
  // Adds the event that was scanned. Malformed events are skipped and counted.
  void add(const ScannedEvent& event);

  int64_t events() const { return events_; }  // with a known phase

  // Adds the events of `later`, which follow in the file; the result is the same as if they had been added here.
  // `later` is emptied. Returns false, with nothing added, if this cannot be guaranteed.
  bool absorb(EventColumns& later);

  // Call after the last event: resolves what depends on events that come in any order. end: the size of the file in
  // bytes.
  void finish(int64_t end);

 private:
  void issue(std::string_view kind, std::string_view text) { issues_.add(kind, offset_, text); }
  std::string_view example(const ScannedEvent& event) const { return {text_, static_cast<size_t>(event.end - text_)}; }

  void add_event(const ScannedEvent& event);
  void on_slice(const ScannedEvent& event, int64_t ts);
  void on_metadata(const ScannedEvent& event);
  void on_memory(const ScannedEvent& event, int64_t ts);
  void on_counter(const ScannedEvent& event, int64_t ts);
  void on_flow(const ScannedEvent& event, int64_t ts);
  void on_async(const ScannedEvent& event, int64_t ts, char phase);
  size_t add_slice(int64_t ts, int64_t dur, NameId name, uint8_t category, uint16_t lane);
  void add_arguments(const ScannedEvent& event, size_t index, Side side, NameId name);
  void add_comm(const ScannedEvent& event, size_t index);
  void add_peer(const ScannedEvent& event, size_t index);
  uint32_t add_stack(std::string_view text);
  uint32_t intern_frame(uint32_t parent, NameId name);

  struct CategoryRef {
    uint64_t hash = 0;  // of the text
    uint8_t index = 0;
    Side side = Side::kHost;
    bool known = true;
  };
  // Category of the event's `cat`; the last lookup is cached, since each event needs it more than once.
  const CategoryRef& category_of(const Value& cat) {
    if (cat.data != category_at_ || cat.data == nullptr) {
      category_at_ = cat.data;
      category_ = &find_category(cat);
    }
    return *category_;
  }
  const CategoryRef& find_category(const Value& cat);
  uint8_t name_flags(NameId name);
  // Returns kNoTime, and counts an issue, if there is no valid time.
  int64_t time_of(const Value& value, std::string_view missing, const ScannedEvent& event);
  uint32_t compact(uint64_t id);
  int64_t integer(const ScannedEvent& event, Arg arg, int64_t missing) const;
  void absorb_events(Events& later, const std::vector<NameId>& names, const std::vector<uint8_t>& categories,
                     const std::vector<uint16_t>& lanes, const std::vector<uint64_t>& wide_ids);

  RankTrace& trace_;
  FileIssues& issues_;
  ValueNames names_{trace_.names};
  LaneTable lanes_{trace_, names_};
  const char* text_ = nullptr;  // of the current event
  int64_t offset_ = 0;
  int64_t events_ = 0;

  static constexpr size_t kCachedCategories = 256;
  struct CachedCategory {
    uint64_t head = 0;  // Value::head of the text
    std::string text;
    CategoryRef ref;
  };
  std::vector<CachedCategory> categories_;
  size_t last_category_ = 0;           // index of the last lookup
  const char* category_at_ = nullptr;  // text of the last lookup, with its result below
  const CategoryRef* category_ = nullptr;
  CategoryRef uncached_category_;
  std::vector<uint8_t> name_flags_;
  bool own_ = false;
  const ArgumentVisitor* visitor_ = nullptr;
  std::map<std::pair<uint32_t, NameId>, uint32_t> frames_;  // of RankTrace::stacks
  std::vector<std::pair<NameId, int64_t>> control_names_;   // with control characters; offset of first use
  FlowSet flows_;
  std::unordered_map<uint64_t, uint32_t> wide_ids_;
  std::vector<uint64_t> wide_order_;  // wide ids in order of first use

  // Slices with separate begin and end events (B and E, b and e).
  std::vector<SliceEdge> edges_;
  std::vector<uint32_t> candidates_;  // slices of unknown category with device and stream
  int64_t last_end_ = INT64_MIN;
};

}  // namespace ms::profile::detail
