// Host operators and the device time below them (traces.md 9.7).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "profile/analysis/device.h"

namespace ms::profile {

// The events of one host thread that nest: operators and launches, and, where asked for, annotations and Python
// functions. Sorted by start, later end first, operators before launches.
enum class Nesting : uint8_t { kOperators, kAll };
std::vector<std::vector<uint32_t>> nested_events(const RankTrace& trace, Nesting which);  // by lane

struct OperatorRow {
  std::string name;
  int64_t calls = 0;
  int64_t host_self = 0, host_total = 0;      // ns; self: without direct children
  int64_t device_self = 0, device_total = 0;  // ns; launched with no operator between, launched anywhere below
};
// By host_self descending, then name. An operator below another of its name adds to self alone.
std::vector<OperatorRow> operator_rows(const RankTrace& trace, const DeviceView& view);

// The innermost operator of a thread at an instant; for each thread, ask in order of time.
class OperatorCursor {
 public:
  explicit OperatorCursor(const RankTrace& trace) : trace_(trace) {}
  NameId innermost(uint16_t lane, int64_t ts);  // 0: none

 private:
  struct Thread {
    std::vector<uint32_t> events, open;
    size_t next = 0;
  };
  const RankTrace& trace_;
  std::vector<Thread> threads_;
};

// Call stacks of the host with the device time below them, as collapsed lines of flame graphs: "outer;inner;kernel ns".
// Autograd threads hang below "## backward ##", else below the step, of the thread that runs the steps.
std::vector<std::string> collapsed_stacks(const RankTrace& trace, const DeviceView& view);

}  // namespace ms::profile
