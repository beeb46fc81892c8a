// The critical path of one rank, after Holistic Trace Analysis: the longest chain of dependent work in a window. Only
// work on this path shortens the window when it gets faster.
//
// A directed acyclic graph: nodes are starts and ends of host operators, launches, data loading and device events;
// edges have a weight in ns. Gaps of the host between operators weigh nothing, so the path is shorter than the wall
// time.
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
  std::string annotation;       // substring of the annotations' names; empty: the whole trace
  int64_t first = 0, last = 0;  // indices of the matching annotations, by start, from 0
  // Regular expression for data loading events; nullopt: PyTorch's loaders, or none with hta.
  std::optional<std::string> data_load;
  // Count as HTA: only CUDA's calls block, memory counts as computing, only the last kernel of a graph exists, calls
  // that it does not list as launches do not enter a queue, and violated dependencies weigh 0.
  bool hta = false;
};

struct PathEvent {
  uint32_t event = 0;
  int64_t on_path = 0;  // ns of the path's length attributed to it
};

struct CriticalPath {
  bool success = false;
  std::string problem;                                   // reason, if no path was found
  int64_t window_start = 0, window_end = 0, length = 0;  // ns
  int64_t nodes = 0, edges = 0, path_nodes = 0, path_edges = 0;
  int64_t path_events = 0;  // events with a node on the path
  std::array<int64_t, kNumPathEdges> edges_by_type{};
  std::array<int64_t, kNumPathBounds> bound_ns{};
  std::vector<PathEvent> events;  // on the path, or enclosing such events, by start
};

// Throws kNotFound if no annotation contains the text, or the instance does not exist; kInvalidArgument for an invalid
// expression. O(n log n).
CriticalPath critical_path(const RankTrace& trace, const DeviceView& view, const PathOptions& options);

}  // namespace ms::profile
