// The vendor's tables of an Ascend profile, summed while they are read; part of a RankTrace.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace ms::profile {

struct AscendSum {
  int64_t count = 0, ns = 0;
};

struct AscendKernels {  // kernel_details.csv
  int64_t rows = 0, columns = 0, wait_ns = 0;
  int64_t union_without_hccl_ns = 0;  // kernels outside collectives
  std::map<std::string, AscendSum> by_core, by_type;
};

struct AscendPeaks {  // memory_record.csv, of one component; MB
  int64_t rows = 0;
  std::optional<double> allocated_mb, reserved_mb, active_mb;
};

struct AscendOperatorMemory {  // operator_memory.csv
  int64_t rows = 0, never_released = 0;
  double size_sum_kb = 0, largest_kb = 0;
  std::string largest_name;
  std::optional<double> peak_allocated_mb;
};

struct AscendStep {  // step_trace_time: one row, named as the vendor's columns; ns
  std::string step;
  int64_t computing = 0, communication_not_overlapped = 0, overlapped = 0, communication = 0, free = 0, stage = 0,
          bubble = 0, preparing = 0;
};

struct AscendLink {  // communication_matrix.json: sums of one operator kind, by ranks of the group
  std::string source_destination, transport;
  double size_mb = 0, time_ms = 0;
};

struct AscendTables {
  std::optional<AscendKernels> kernels;
  std::map<std::string, AscendPeaks> memory;  // by component
  std::optional<AscendOperatorMemory> operator_memory;
  std::vector<AscendStep> steps;  // from the vendor's CSV
  std::vector<AscendLink> links;
  std::map<std::string, int64_t> task_types;  // count of hardware tasks by type
};

}  // namespace ms::profile
