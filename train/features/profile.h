// Traces of chosen steps and ranks, for msprof. Source: MindSpeed's --profile
// (mindspeed/features_manager/functional/profile.py).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "train/features/feature.h"

namespace ms::train {

struct ProfilingConfig {
  bool profile = false;
  int64_t profile_step_start = 10;
  int64_t profile_step_end = 12;
  std::string profile_level = "level0";
  bool profile_with_cpu = false;
  bool profile_with_stack = false;
  bool profile_with_memory = false;
  bool profile_record_shapes = false;
  std::string profile_save_path = "./profile_dir";
  std::vector<int64_t> profile_ranks = {0};
  std::string profile_format = "native";

  template <class Visitor>
  static void fields(Visitor&& field) {
    using C = ProfilingConfig;
    field("profile", &C::profile,
          "Record a trace for msprof, of the steps from --profile-step-start to --profile-step-end");
    field("profile_step_start", &C::profile_step_start, "Completed steps after which recording starts");
    field("profile_step_end", &C::profile_step_end, "Completed steps after which recording ends");
    field("profile_level", &C::profile_level,
          "level0: phases, kernels, communication; level1: also transfers and FLOPs; level2: also hardware counters");
    field("profile_with_cpu", &C::profile_with_cpu, "Record operators on the host thread");
    field("profile_with_stack", &C::profile_with_stack, "Record call stacks");
    field("profile_with_memory", &C::profile_with_memory, "Record allocations; needs --profile-with-cpu");
    field("profile_record_shapes", &C::profile_record_shapes, "Record input shapes of operators");
    field("profile_save_path", &C::profile_save_path, "Folder for traces");
    field("profile_ranks", &C::profile_ranks, "Global ranks that record; -1: all");
    field("profile_format", &C::profile_format,
          "native, or json, json.gz or json.zst: also write a Chrome trace after recording has ended");
  }
};

Feature profile_feature();

}  // namespace ms::train
