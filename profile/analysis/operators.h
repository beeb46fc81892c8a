// Host operators and the device time that they launched.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "profile/analysis/device.h"

namespace ms::profile {

// The nesting events of one host thread: operators and launches, and with kAll also annotations and Python functions.
// Sorted by start, later end first, operators before launches.
enum class Nesting : uint8_t { kOperators, kAll };
std::vector<std::vector<uint32_t>> nested_events(const RankTrace& trace, Nesting which);  // by lane

struct OperatorRow {
  std::string name;
  int64_t calls = 0;
  int64_t host_self = 0, host_total = 0;      // ns; self: without direct children
  int64_t device_self = 0, device_total = 0;  // ns; self: launched with no operator between; total: anywhere below
};
// By host_self descending, then name. An operator inside another of the same name adds to self only.
std::vector<OperatorRow> operator_rows(const RankTrace& trace, const DeviceView& view);

// Finds the innermost operator of a thread at an instant; queries of a thread must be in time order.
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

// Call stacks of the host with the device time below them, as collapsed lines for flame graphs: "outer;inner;kernel
// ns". Stacks of autograd threads are attached to "## backward ##", else to the step, on the thread that runs the
// steps.
std::vector<std::string> collapsed_stacks(const RankTrace& trace, const DeviceView& view);

}  // namespace ms::profile
