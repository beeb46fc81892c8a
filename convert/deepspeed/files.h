// Finds the files of a DeepSpeed checkpoint and the ranks that they belong to.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace ms::convert {

struct DeepSpeedFiles {
  std::filesystem::path folder;           // of the tag
  std::vector<std::string> model_states;  // paths: one, or with ZeRO 3 one per data-parallel rank
  std::vector<std::string> optim_states;  // one per data-parallel rank; empty: none
  bool by_rank = false;                   // model_states are per data-parallel rank: ZeRO 3
  bool universal = false;                 // no partitions per rank: the weights are under zero/
  bool several_model_ranks = false;       // model_states belong to one of several model-parallel ranks
};

inline constexpr const char* kDeepSpeedLatest = "latest";
inline constexpr const char* kUniversalLatest = "latest_universal";
inline constexpr const char* kUniversalZero = "zero";

// Returns the first file of `folder`, by name, with model states; empty if there is none.
std::string first_model_states(const std::filesystem::path& folder);

// Returns the checkpoint's folder: `path`, or the tag in it that the file `pointer` names, if that file exists. Throws
// kCorruptData if it names something that does not exist, or not a plain name.
std::filesystem::path deepspeed_folder(const std::filesystem::path& path, const char* pointer);

// Throws kNotFound if there are no such files, kCorruptData if a rank's files are missing or duplicated, kUnsupported
// for pipeline stages, tensor-parallel ranks and experts.
DeepSpeedFiles find_deepspeed_files(const std::filesystem::path& folder);
// Finds the model states of a universal checkpoint, whose weights are under zero/. Throws kNotFound if there are none.
DeepSpeedFiles find_universal_files(const std::filesystem::path& folder);

}  // namespace ms::convert
