#include "train/saved_mask.h"

#include <algorithm>

#include "core/error.h"
#include "core/log.h"
#include "train/features/attention_mask_grid.h"

namespace ms::train {
namespace {

using core::cat;

constexpr const char* kCellsKey = "attention_mask_grid";  // of `common`

nlohmann::json object_of(const nlohmann::json& object, const char* key) {
  return object.is_object() ? object.value(key, nlohmann::json()) : nlohmann::json();
}

std::string difference_of_grids(const nlohmann::json& saved, const nlohmann::json& cells, const TrainingConfig& now) {
  const std::string own = grid_fingerprint(now), other = cells.is_string() ? cells.get<std::string>() : "";
  if (own == other) return "";
  if (own.empty()) return "there is no --attention-mask-grid but the checkpoint was made with one";
  const std::string file = cat("--attention-mask-grid ", now.attention_mask_grid);
  if (other.empty()) return cat(file, " but the checkpoint was made without one");
  const nlohmann::json type = object_of(saved, "attention_mask_type");
  if (type.is_string() && type != now.attention_mask_type)
    return cat("--attention-mask-type is ", now.attention_mask_type, " but the checkpoint was made with ",
               type.get<std::string>());
  return cat(file, " shows other cells than the one that the checkpoint was made with");
}

}  // namespace

void note_mask(const TrainerConfig& config, nlohmann::json& common) {
  const std::string cells = grid_fingerprint(config.training);
  if (!cells.empty()) common[kCellsKey] = cells;
}

std::string mask_differences(const ckpt::CheckpointInfo& info, const TrainerConfig& config) {
  const nlohmann::json saved = object_of(object_of(info.common, "config"), "training");
  if (!saved.is_object()) return "";
  const TrainingConfig& now = config.training;
  std::string text;
  const auto add = [&](const std::string& difference) {
    if (!difference.empty()) text += cat(text.empty() ? "" : "; ", difference);
  };
  const nlohmann::json own = {{"reset_attention_mask", now.reset_attention_mask},
                              {"dataloader_inter_document_masking", now.dataloader_inter_document_masking},
                              {"prefix_length", now.prefix_length}};
  for (const auto& [field, value] : own.items()) {
    if (!saved.contains(field) || saved[field] == value) continue;
    std::string flag = field;
    std::ranges::replace(flag, '_', '-');
    add(cat("--", flag, " is ", value.dump(), " but the checkpoint was made with ", core::dump_json(saved[field])));
  }
  add(difference_of_grids(saved, object_of(info.common, kCellsKey), now));
  return text;
}

void warn_of_other_mask(const ckpt::CheckpointInfo& info, const TrainerConfig& config) {
  const std::string differences = mask_differences(info, config);
  if (!differences.empty()) core::log_warning("train.load", cat(differences, ". The run goes on with the new mask"));
}

}  // namespace ms::train
