// The part of a plan that says what moves of experts between ranks send at most, and how often
// (core/layout/formulas/expert_moves.h).
#pragma once

#include <string>

#include "core/io/json.h"
#include "core/layout/training_step.h"

namespace ms::train {

// Of a run whose experts move; the text is empty for others.
nlohmann::json expert_moves_json(const layout::TrainingStep& step);
std::string expert_moves_text(const layout::TrainingStep& step);

}  // namespace ms::train
