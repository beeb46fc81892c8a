// The root of a Megatron run's checkpoints: a folder for each iteration, and a tracker that names the newest.
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

// "iter_0000100".
std::string megatron_iteration_folder(int64_t iteration);
inline constexpr const char* kMegatronRelease = "release";  // of weights without an iteration

// The folders of iterations below a root that `holds` says hold what is looked for, the newest first; "release" last.
std::vector<std::filesystem::path> megatron_iterations(const std::filesystem::path& root,
                                                       const std::function<bool(const std::filesystem::path&)>& holds);

// The folder that the tracker names, whatever is in it; without a tracker the newest, said in the log. Throws kNotFound
// if there is neither, kCorruptData for a tracker that holds something else.
std::filesystem::path choose_megatron_iteration(const std::filesystem::path& root,
                                                const std::function<bool(const std::filesystem::path&)>& holds);

}  // namespace ms::convert
