// The files of a DeepSpeed checkpoint: which there are, and of which ranks.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace ms::convert {

struct DeepSpeedFiles {
  std::filesystem::path folder;           // of the tag
  std::vector<std::string> model_states;  // paths: one, or with ZeRO 3 one for each data-parallel rank
  std::vector<std::string> optim_states;  // for each data-parallel rank; empty: there are none
  bool by_rank = false;                   // model_states are of data-parallel ranks: ZeRO 3
  bool universal = false;                 // no ranks' partitions: what the weights are is said under zero/
  bool several_model_ranks = false;       // model_states are of one of them
};

inline constexpr const char* kDeepSpeedLatest = "latest";
inline constexpr const char* kUniversalLatest = "latest_universal";
inline constexpr const char* kUniversalZero = "zero";

// The first file of `folder`, by name, that holds states of a model; empty if there is none.
std::string first_model_states(const std::filesystem::path& folder);

// The folder that a checkpoint lies in: `path`, or the tag in it that the file `pointer` names, if there is that file.
// Throws kCorruptData if it names what is not there, or no plain name.
std::filesystem::path deepspeed_folder(const std::filesystem::path& path, const char* pointer);

// Throws kNotFound if there are no such files, kCorruptData if those of a rank are missing or there twice, kUnsupported
// for parts of pipeline stages, tensor-parallel ranks and experts.
DeepSpeedFiles find_deepspeed_files(const std::filesystem::path& folder);
// The model states beside a universal checkpoint, which says itself what they are of. Throws kNotFound if there are
// none.
DeepSpeedFiles find_universal_files(const std::filesystem::path& folder);

}  // namespace ms::convert
