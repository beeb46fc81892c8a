// Finds iterations below the root of a Megatron run's checkpoints: a folder for each iteration, and a tracker file that
// names the newest.
//
//   ROOT/latest_checkpointed_iteration.txt      an iteration, or "release"
//   ROOT/iter_0000100/, ROOT/release/
//
// Source: megatron/training/checkpointing.py (get_checkpoint_name, read_metadata).
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace ms::convert {

inline constexpr const char* kMegatronTracker = "latest_checkpointed_iteration.txt";

// Returns, for example, "iter_0000100".
std::string megatron_iteration_folder(int64_t iteration);
inline constexpr const char* kMegatronRelease = "release";  // folder of weights without an iteration

// Returns the iteration folders below a root for which `holds` returns true, newest first; "release" is last.
std::vector<std::filesystem::path> megatron_iterations(const std::filesystem::path& root,
                                                       const std::function<bool(const std::filesystem::path&)>& holds);

// Returns the folder that the tracker names, whatever it contains; without a tracker the newest folder, which is
// logged. Throws kNotFound if there is neither, kCorruptData for a tracker with other content.
std::filesystem::path choose_megatron_iteration(const std::filesystem::path& root,
                                                const std::function<bool(const std::filesystem::path&)>& holds);

}  // namespace ms::convert
