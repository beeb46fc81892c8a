// What --print-plan says of the tensors that layers save from forward to backward.
#pragma once

#include <string>
#include <vector>

#include "core/io/json.h"
#include "core/layout/placement.h"
#include "core/layout/training_step.h"

namespace ms::train {

std::string layers_text(const std::vector<layout::LayerRange>& ranges);  // "0-3, 8", or "none"

// A row for each group of layers and micro-batches with the same decisions (core/layout/formulas/saved_tensors.h).
nlohmann::json saved_tensors_json(const layout::TrainingStep& step);
// What rings keep beside them.
nlohmann::json kv_cache_json(const layout::TrainingStep& step);
std::string saved_tensors_text(const layout::TrainingStep& step);  // with a heading

}  // namespace ms::train
