// One file for each data-parallel group, its optimizer state sent in slices. Source: MindSpeed's --disable-gloo-group
// and --hccl-slice-size (mindspeed/features_manager/disable_gloo_group).
#pragma once

#include <cstdint>
#include <string>

#include "train/features/feature.h"

namespace ms::train {

struct CkptGatherConfig {
  bool ckpt_gather = false;
  int64_t ckpt_slice_size = int64_t{10} << 20;
  std::string ckpt_gather_progress = "auto";

  template <class Visitor>
  static void fields(Visitor&& field) {
    using C = CkptGatherConfig;
    field("ckpt_gather", &C::ckpt_gather,
          "Data-parallel rank 0 writes one file for its group, and receives the others' optimizer state in slices; "
          "for file systems that many writers overload");
    field("ckpt_slice_size", &C::ckpt_slice_size, "fp32 elements per message of --ckpt-gather and --replication");
    field("ckpt_gather_progress", &C::ckpt_gather_progress,
          "Thread that moves the slices: thread (the writer's; needs MPI_THREAD_MULTIPLE), main (the trainer's, "
          "between layers), or auto: thread if MPI allows it");
  }
};

Feature ckpt_gather_feature();

}  // namespace ms::train
