// The table that Holistic Trace Analysis 0.6.1 makes of a trace before it counts (traces.md 14), for --compat hta:
// which events are in it, in which order, and what launched what.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "profile/store.h"

namespace ms::profile {

inline constexpr uint32_t kNoPartner = UINT32_MAX;

// trace: after round_as_hta, loaded with keep_file_order where it comes from a file of another. With the names of two
// steps or more among all ranks, only what starts before the last step (of the rank) or, when that is kept, up to its
// end is in the table, and of those on streams what a host event in it launched: first these, once for each such host
// event, then the host's. Otherwise all, in the order of the file.
struct HtaFrame {
  const RankTrace* trace = nullptr;
  std::vector<uint32_t> rows;  // indices of events
  // Of each event, in the table or not: the last one of the other side with its correlation.
  std::vector<uint32_t> partners;
  uint32_t first = kNoPartner;  // that of the file, if it is here: HTA takes a link to it for none, and none for that
  std::vector<bool> present;    // of each event: whether it is in the table

  // Whether an event has a stream: annotations of the device have none, and -1 is none, but not 2^32 - 1. Host events
  // that name a stream, as some Triton operators do, count as on it.
  bool on_stream(uint32_t event) const;
  int64_t stream(uint32_t event) const;
  std::string_view name(uint32_t event) const { return trace->names[trace->events.name[event]]; }
  std::string_view category(uint32_t event) const {
    return trace->names[trace->categories[trace->events.category[event]].name];
  }
  bool linked(uint32_t event) const { return partners[event] != kNoPartner && partners[event] != first; }
  // Events on streams, by start; what starts together keeps the order of the table.
  std::vector<uint32_t> on_streams_by_start() const;
};

std::vector<HtaFrame> hta_frames(const std::vector<std::unique_ptr<RankTrace>>& ranks, bool keep_last_step);

// The number of "ProfilerStep#12", -1 of any other name.
int64_t hta_step_number(std::string_view name);

// Its hta/common/types.py, by patterns of names. What is none of these three counts as busy only.
bool hta_communicates(std::string_view name);
bool hta_copies(std::string_view name);
bool hta_computes(std::string_view name);

}  // namespace ms::profile
