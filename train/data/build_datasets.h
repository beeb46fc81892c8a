// Builds the three data sets of a run from its flags. The trainer's only entry point to its data.
//
//   TrainValidTest data = build_datasets(config, seq_length, seed, train_samples, valid_samples, test_samples);
//
// Mirrors Megatron's BlendedMegatronDatasetBuilder (megatron/core/datasets/blended_megatron_dataset_builder.py, core
// 0.8): the same flags, seed and files give the same samples in the same order.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "train/data/data_config.h"
#include "train/data/sample_source.h"

namespace ms::train {

// What a sample is: seq_length tokens of documents that lie one behind the other (gpt_dataset.h), or one document of
// its own length (document_dataset.h).
enum class SampleKind : uint8_t { kPacked, kDocument };

struct TrainValidTest {
  // Null if no samples were requested, if no *_data_path was given, or if its share in --split is 0. The test set is
  // also null if its share of --split contains no document.
  std::unique_ptr<SampleSource> train, valid, test;
};

// seq_length: tokens per sample, without the extra label. seed: as in numpy, below 2^32. *_samples: samples that the
//   run will draw from each; 0: that set is not built.
// Not collective: call it on rank 0 first (it builds the cached indices), then a barrier, then on the other ranks (they
//   read them). Calling it everywhere at once is safe, but repeats the work.
// stopped: called regularly; if it returns true, kIo "interrupted" is thrown, and no index is left behind.
// tokenizer: with --mock-data, whose documents consist of its ids; not used otherwise.
// Throws kInvalidArgument (contradictory or unreadable flags, too few samples in an unweighted list of data sets),
//   kNotFound (no such data set), kCorruptData (broken files, a split without documents), kIo.
TrainValidTest build_datasets(const DataConfig& config, int64_t seq_length, uint64_t seed, int64_t train_samples,
                              int64_t valid_samples, int64_t test_samples, const std::function<bool()>& stopped = {},
                              const Tokenizer* tokenizer = nullptr, SampleKind kind = SampleKind::kPacked);

// --- the parts of build_datasets; public because tests and tools use them ---

// The data sets of the data flags, after reading the files of --data-args-path and --per-split-data-args-path.
struct DataLists {
  std::vector<std::string> data_path;
  std::array<std::vector<std::string>, 3> per_split;  // train, valid, test
};
// Throws kInvalidArgument (a list and its file are both given), kNotFound, kIo, kCorruptData (unusable JSON).
DataLists list_data_sets(const DataConfig& config);

// A list of prefixes with weights as given, or without weights.
struct Blend {
  std::vector<std::string> prefixes;
  std::vector<double> weights;  // empty: none were given
};
// "P", "P1 P2 P3" or "w1 P1 w2 P2": a list of even length in which every other value is a number is weighted, as in
// Megatron. Throws kInvalidArgument for a mixture, naming `flag`, and for weights that are not positive.
Blend parse_blend(const std::vector<std::string>& values, std::string_view flag);

// Bounds of train, validation and test as shares of the documents; nullopt for a share of 0.
using SplitMatrix = std::array<std::optional<std::pair<double, double>>, 3>;
// "969,30,1", "99,1", "1". Throws kInvalidArgument for anything else.
SplitMatrix parse_split(std::string_view split);

// Divides by the sum, added in numpy's pairwise order so that the weights are bitwise equal to Megatron's.
std::vector<double> normalize_weights(std::span<const double> weights);

}  // namespace ms::train
