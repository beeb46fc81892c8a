#include "ckpt/recording.h"

#include "ckpt/commit.h"
#include "core/error.h"

namespace ms::ckpt {

bool is_recording(const CheckpointInfo& info) {
  return info.common.is_object() && info.common.contains(kRecordingMark);
}

void require_root_of_kind(const std::filesystem::path& root, bool recording, std::string_view flag) {
  std::error_code none;
  if (!std::filesystem::is_directory(root, none)) return;
  const std::vector<Generation> generations = list_generations(root);
  if (generations.empty()) return;
  try {
    if (is_recording(read_manifest(generations.front().path).info) == recording) return;
  } catch (const core::Error&) {  // a damaged one is for its readers
    return;
  }
  throw core::Error(
      core::ErrorCode::kInvalidArgument,
      core::cat(flag, ' ', root.string(), ": it holds ",
                recording ? "checkpoints" : "what modules computed (--save-tensors)", ". Name another folder"));
}

}  // namespace ms::ckpt
