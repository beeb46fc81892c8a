// An event in memory before it is written, and the tables it refers to.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/trace/format.h"

namespace ms::core::trace {

// values: spans {flops, bytes}, kUserAnnotation {micro-batch, chunk} instead; kComm {sequence, in elements, out
// elements, peer (-1: none)}; kMemory {address, delta bytes, total bytes}; kCounter {bits of the double}.
struct Event {
  int64_t start_ns = 0;
  int64_t dur_ns = 0;
  std::array<int64_t, 4> values{};
  uint32_t name = 0;         // index of Tables::strings
  uint32_t correlation = 0;  // with kHasCorrelation
  uint32_t stack = 0;        // with kHasStack: index of Tables::stacks
  uint32_t ref = 0;          // kComm: index of Tables::comms; with kHasShape: index of Tables::shapes
  uint16_t lane = 0;         // index of Tables::lanes
  EventKind kind = EventKind::kKernel;
  uint8_t flags = 0;
};

struct Lane {
  LaneKind kind = LaneKind::kThread;
  int64_t id = 0;     // kThread: the system's thread id; kStream: stream number
  uint32_t name = 0;  // index of Tables::strings
};

// One frame of a call stack: the spans open around an event, from the innermost outwards by following parent.
struct StackFrame {
  uint32_t parent = 0;  // index of Tables::stacks, 0: outermost (entry 0 is the empty stack)
  uint32_t name = 0;
};

// What all calls of one operation of one group share. All are indices of Tables::strings.
struct CommDescriptor {
  uint32_t op = 0, group = 0, ranks = 0, dtype = 0;  // ranks as in Kineto: "[0, 1]"
};

// "Input Dims" and "Input type" of an operator, as JSON text. Indices of Tables::strings.
struct Shapes {
  uint32_t dims = 0, types = 0;
};

// Append-only tables that events point into; entry 0 of strings and stacks is empty. Not thread-safe.
struct Tables {
  Tables();
  uint32_t intern(std::string_view text);  // truncated to kMaxStringBytes
  uint32_t intern_stack(uint32_t parent, uint32_t name);
  uint32_t intern_shapes(std::string_view dims, std::string_view types);

  std::deque<std::string> strings;
  std::vector<Lane> lanes;
  std::vector<StackFrame> stacks;
  std::vector<CommDescriptor> comms;
  std::vector<Shapes> shapes;

 private:
  std::unordered_map<std::string_view, uint32_t> string_index_;
  std::unordered_map<uint64_t, uint32_t> stack_index_, shape_index_;
};

}  // namespace ms::core::trace
