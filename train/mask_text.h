// What --print-plan says of the grid that all samples have as their mask (--attention-mask-grid).
#pragma once

#include <string>

#include "core/io/json.h"
#include "core/layout/mask_grid.h"

namespace ms::train {

// {"file", "type": "causal" or "general", "cells", "positions_of_cell", "visible_scores", "share_of_all",
// "share_of_causal", "positions_with_loss"}: pairs of a query and a key that it sees, as shares of all pairs and of
// those of a causal mask; positions of a sample whose loss counts. file: from which it was read.
nlohmann::json mask_grid_json(const layout::MaskGrid& grid, const std::string& file);
std::string mask_grid_text(const layout::MaskGrid& grid, const std::string& file);  // a line

}  // namespace ms::train
