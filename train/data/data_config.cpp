#include "train/data/data_config.h"

#include "core/error.h"
#include "train/data/build_datasets.h"

namespace ms::train {

void DataConfig::validate() const {
  const bool separate = !train_data_path.empty() || !valid_data_path.empty() || !test_data_path.empty();
  if (separate && !data_path.empty()) {
    throw core::Error(core::ErrorCode::kInvalidArgument,
                      "--data-path excludes --train-data-path, --valid-data-path and --test-data-path: give the first, "
                      "with --split, or the others");
  }
  if (separate && !split.empty()) {
    throw core::Error(core::ErrorCode::kInvalidArgument,
                      core::cat("--split ", split,
                                " divides --data-path; with --train-data-path, --valid-data-path or --test-data-path "
                                "leave it out"));
  }
  if (!split.empty()) parse_split(split);
  parse_blend(data_path, "--data-path");
  parse_blend(train_data_path, "--train-data-path");
  parse_blend(valid_data_path, "--valid-data-path");
  parse_blend(test_data_path, "--test-data-path");
}

}  // namespace ms::train
