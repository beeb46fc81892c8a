// What modules computed (mstrain --save-tensors) is stored as a checkpoint is, and is none: the two must not share a
// folder, or the newest generation of one would be taken for one of the other.
#pragma once

#include <filesystem>
#include <string_view>

#include "ckpt/source.h"

namespace ms::ckpt {

inline constexpr const char* kRecordingMark = "recorded_tensors";  // in CheckpointInfo::common

bool is_recording(const CheckpointInfo& info);

// Throws kInvalidArgument, naming the flag, if the newest generation in root is of the other kind. A root that is not
// there, or has none, is right.
void require_root_of_kind(const std::filesystem::path& root, bool recording, std::string_view flag);

}  // namespace ms::ckpt
