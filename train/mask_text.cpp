#include "train/mask_text.h"

#include "core/error.h"
#include "core/printable.h"
#include "train/format.h"

namespace ms::train {

nlohmann::json mask_grid_json(const layout::MaskGrid& grid, const std::string& file) {
  const int64_t seq = grid.seq_length();
  const auto pairs = static_cast<double>(grid.visible_pairs()), length = static_cast<double>(seq);
  return {{"file", file},
          {"type", grid.is_causal() ? "causal" : "general"},
          {"cells", grid.cells()},
          {"positions_of_cell", seq / grid.cells()},
          {"visible_scores", grid.visible_pairs()},
          {"share_of_all", pairs / (length * length)},
          {"share_of_causal", pairs / (length * (length + 1) / 2)},
          {"positions_with_loss", grid.positions_with_loss()}};
}

std::string mask_grid_text(const layout::MaskGrid& grid, const std::string& file) {
  const nlohmann::json json = mask_grid_json(grid, file);
  std::string text =
      core::cat("--attention-mask-grid ", file, ": ", grid.cells(), " x ", grid.cells(), " cells of ",
                core::counted(grid.seq_length() / grid.cells(), "position"), ", ", json["type"].get<std::string>());
  text += format("; %.2f %% of all scores are visible, %.2f %% of a causal mask's",
                 100 * json["share_of_all"].get<double>(), 100 * json["share_of_causal"].get<double>());
  if (grid.is_causal()) return text + "\n";
  return core::cat(text, "; the loss of ", grid.positions_with_loss(), " of the ", grid.seq_length(),
                   " positions of a sample counts\n");
}

}  // namespace ms::train
