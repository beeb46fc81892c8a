// --automated-pipeline and --automated-pipeline-perf: the layers of each stage, which of them are recomputed, and the
// micro-batch size, from times that the run measures when it starts (part_times.h) and a search
// (core/layout/pipeline_search.h). Even stages and the given micro-batch size are kept unless others are faster by more
// than the measurement's spread: what follows noise would be another run each time. What is chosen replaces the flags
// in the configuration, as if the user had given --num-layer-list, --recompute-module-list and --micro-batch-size: it
// is in the log and in every checkpoint.
#pragma once

#include "core/io/json.h"
#include "core/thread_pool.h"
#include "train/config.h"
#include "train/parallel/process_groups.h"

namespace ms::train {

// Collective, of a configuration with chooses_pipeline(), which it has no longer afterwards. Returns the record of the
// choice, which belongs into checkpoints. saved: the record of the checkpoint that the run continues, or null: what it
// says is taken, and nothing measured, if the run has the sizes that it was made for; rank 0 decides. Throws on all
// ranks together.
nlohmann::json choose_pipeline(TrainerConfig& config, ProcessGroups& groups, core::ThreadPool& pool,
                               const nlohmann::json& saved);

// Where a checkpoint's state has that record, and the record, or null.
inline constexpr const char* kPipelineChoice = "automated_pipeline";
inline nlohmann::json saved_pipeline_choice(const nlohmann::json& common) {
  return common.is_object() ? common.value(kPipelineChoice, nlohmann::json()) : nlohmann::json();
}

}  // namespace ms::train
