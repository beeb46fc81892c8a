// The critical path of one rank (traces.md 9.10, after Holistic Trace Analysis): the longest chain of dependent work in
// a window. What lies on it is worth speeding up; what does not is not.
//
// A directed acyclic graph. Nodes are starts and ends of host operators, launches, data loading and device events;
// edges carry ns. Gaps of the host between operators are free, so the length of the path is not the window's wall time.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "profile/analysis/device.h"

namespace ms::profile {

enum class PathEdge : uint8_t { kOperator, kDependency, kLaunchDelay, kKernelKernelDelay, kSync };
inline constexpr int kNumPathEdges = 5;
const char* path_edge_name(PathEdge edge);  // HTA's: "critical_path_operator", ...

enum class PathBound : uint8_t {
  kNone,
  kHost,
  kDataLoading,
  kComputing,
  kCommunication,
  kMemory,
  kKernelKernel,
  kLaunch
};
inline constexpr int kNumPathBounds = 8;
const char* path_bound_name(PathBound bound);  // "", "cpu_bound", "data_loading", "gpu_compute_bound", ...

struct PathOptions {
  std::string annotation;       // part of the names of the annotations; empty: the whole trace
  int64_t first = 0, last = 0;  // which of them, by start, from 0
  // Regular expression of what loads data; without one PyTorch's loaders, for HTA nothing.
  std::optional<std::string> data_load;
  // As HTA: only CUDA's calls block, memory counts as computing, of the kernels of a graph only the last is there,
  // calls that it does not know for launches make no queue, and what must end before another starts and does not counts
  // 0.
  bool hta = false;
};

struct PathEvent {
  uint32_t event = 0;
  int64_t on_path = 0;  // ns of the path's length that it carries
};

struct CriticalPath {
  bool success = false;
  std::string problem;                                   // when it is not
  int64_t window_start = 0, window_end = 0, length = 0;  // ns
  int64_t nodes = 0, edges = 0, path_nodes = 0, path_edges = 0;
  int64_t path_events = 0;  // events with a node on it
  std::array<int64_t, kNumPathEdges> edges_by_type{};
  std::array<int64_t, kNumPathBounds> bound_ns{};
  std::vector<PathEvent> events;  // on the path, or around what is, by start
};

// Throws kNotFound if no annotation holds the text, or the instance does not exist; kInvalidArgument for a bad
// expression. O(n log n).
CriticalPath critical_path(const RankTrace& trace, const DeviceView& view, const PathOptions& options);

}  // namespace ms::profile
