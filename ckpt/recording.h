// What modules computed (mstrain --save-tensors) is stored as a checkpoint is, and is none: the two must not share a
// folder, or the newest generation of one would be taken for one of the other.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "ckpt/source.h"
#include "core/dtype.h"

namespace ms::ckpt {

inline constexpr const char* kRecordingMark = "recorded_tensors";  // in CheckpointInfo::common

// What a recording says of the step; nothing where an older mstrain did not write it.
struct Recording {
  std::optional<double> perturbation;  // --save-tensors-perturbation; 0: a plain step
  std::optional<core::DType> dtype;    // in which modules compute
};
nlohmann::json recording_mark(const Recording& recording);  // the value at kRecordingMark

bool is_recording(const CheckpointInfo& info);
// nullopt: it is none.
std::optional<Recording> recording_of(const CheckpointInfo& info);

// Throws kInvalidArgument, naming the flag, if the newest generation in root is of the other kind. A root that is not
// there, or has none, is right.
void require_root_of_kind(const std::filesystem::path& root, bool recording, std::string_view flag);

// The directories to compare of these paths: of a root the newest attempt at the smallest iteration that all roots have
// whole, or at `iteration`; any other path itself. Damaged ones are passed over with a warning; of several common
// iterations the log names the others. Throws kInvalidArgument if there is none, kCorruptData if none of a root is
// whole.
std::vector<std::filesystem::path> directories_of_one_iteration(std::span<const std::filesystem::path> paths,
                                                                std::optional<int64_t> iteration);

}  // namespace ms::ckpt
