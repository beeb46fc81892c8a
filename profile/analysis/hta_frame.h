// The table that Holistic Trace Analysis 0.6.1 builds from a trace before its analyses, for --compat hta: which events
// it has, in which order, and which launched which.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "profile/store.h"

namespace ms::profile {

inline constexpr uint32_t kNoPartner = UINT32_MAX;

// trace: after round_as_hta, loaded with keep_file_order unless exported from a native trace. If all ranks together
// have two or more step names, the table has only host events that start before the rank's last step (or, if that is
// kept, up to its end) and the stream events that these launched: first the stream events, once per launching host
// event, then the host events. Otherwise it has all events in file order.
struct HtaFrame {
  const RankTrace* trace = nullptr;
  std::vector<uint32_t> rows;  // indices of events
  // For each event, in the table or not: the last event of the other side with its correlation.
  std::vector<uint32_t> partners;
  uint32_t first = kNoPartner;  // the file's first event, if here: HTA takes a link to it for none, and none for that
  std::vector<bool> present;    // for each event: whether it is in the table

  // Whether an event has a stream: device annotations have none; -1 means none, 2^32 - 1 does not. Host events whose
  // arguments name a stream, as those of some Triton operators do, count as on it.
  bool on_stream(uint32_t event) const;
  int64_t stream(uint32_t event) const;
  std::string_view name(uint32_t event) const { return trace->names[trace->events.name[event]]; }
  std::string_view category(uint32_t event) const {
    return trace->names[trace->categories[trace->events.category[event]].name];
  }
  bool linked(uint32_t event) const { return partners[event] != kNoPartner && partners[event] != first; }
  // Events on streams, by start; events that start together keep the table's order.
  std::vector<uint32_t> on_streams_by_start() const;
};

std::vector<HtaFrame> hta_frames(const std::vector<std::unique_ptr<RankTrace>>& ranks, bool keep_last_step);

// 12 for "ProfilerStep#12", -1 for any other name.
int64_t hta_step_number(std::string_view name);

// Kinds of names by the patterns of HTA's hta/common/types.py. Other names only count as busy.
bool hta_communicates(std::string_view name);
bool hta_copies(std::string_view name);
bool hta_computes(std::string_view name);

}  // namespace ms::profile
