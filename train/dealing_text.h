// What --print-plan says of samples that are dealt to replicas by what they cost (train/data/deal.h).
#pragma once

#include <string>

#include "core/io/json.h"
#include "core/layout/training_step.h"

namespace ms::train {

// {"samples", "replicas", "rounds", "ranks_of_a_sample", "weight_flops", "attention_flops"}: the last two of a sample
// of --seq-length, forward and backward, those of attention if it is one document. Where the number of ranks that share
// a sample is chosen, "degrees", too: an array of {"ranks", "shortest", "longest", "group", "calls", "bytes"}, tokens
// of samples that need as many ranks (null: none alone does), and what each exchanges in a micro-batch of the longest.
nlohmann::json dealing_json(const layout::TrainingStep& step);
std::string dealing_text(const layout::TrainingStep& step);  // with a heading

}  // namespace ms::train
