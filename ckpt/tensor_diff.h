// Compares what two runs have computed (mstrain --save-tensors) in the order of execution: the first tensor that
// differs by more than rounding explains names the module in which they part.
//
// How far rounding carries is measured: a third run, like the first but with inputs moved by about the rounding of
// their dtype, differs from the first by as much in each tensor (TTrace, arXiv 2506.09280). Three times that is
// allowed. Two correct layouts round independently, and each is about one perturbation from exact values, so that
// sqrt(2) of it is expected between them; tests/train/tensor_dump_test.cpp has layouts at 1.2 of it in bf16 and fp16.
// In fp32 sums in another order round where bf16 and fp16 do not: one perturbation counts as no less than 4 units in
// the last place.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <regex>
#include <string>
#include <vector>

#include "ckpt/source.h"

namespace ms::ckpt {

struct TensorDistance {
  std::string tensor;
  // "only in the first", "shape [8] and [4]", "16384 NaN only in the second"; empty: its values are within `allowed` or
  // not.
  std::string fault;
  bool is_absent = false;     // from one of them
  bool is_identical = false;  // to the bit, all of it finite
  std::string
      incomparable;  // "16384 NaN": elements that are finite in neither, of which nothing is known; mostly empty
  // Of the other elements:
  double relative_l2 = 0;  // |a - b| / |a|
  double max_abs = 0;      // of a - b
  double allowed = 0;      // relative_l2 up to which it is rounding
  // Whether it differs by more than rounding.
  bool is_beyond() const { return !is_absent && (!fault.empty() || !(relative_l2 <= allowed)); }
  // How much of what is allowed it takes; 0 of what cannot be compared.
  double share() const { return relative_l2 > 0 && fault.empty() ? relative_l2 / allowed : 0; }
};

struct TensorRename {
  std::regex from;  // what of a name of the second is replaced
  std::string to;   // by this, in which $1 is the first group
};

struct TensorDiffOptions {
  Source* noise = nullptr;          // of the perturbed run; not owned. nullptr: tolerance, or a default for each dtype
  std::optional<double> tolerance;  // for all tensors, in place of noise; 0: identical values
  std::vector<TensorRename> renames;
  int threads = 1;
  std::function<bool()> stopped;                              // throws kIo "interrupted" when true; may be empty
  std::function<void(int64_t done, int64_t total)> progress;  // as CompareOptions
};

// Of every tensor of either. bf16, fp16 and fp32 are compared with each other; what rounding explains then follows from
// the coarsest. Throws kCorruptData if data is damaged; kInvalidArgument if one is a checkpoint, if there are no
// tensors, if renames make one name of two, or if the noise is no perturbed recording, is of another iteration, lacks a
// tensor that both have, has another shape of it, or is not finite where the first is.
std::vector<TensorDistance> diff_tensors(Source& a, Source& b, const TensorDiffOptions& options = {});

// Which of the renames, each after those before it, change no name of b.
std::vector<size_t> renames_without_effect(const Source& b, const std::vector<TensorRename>& renames);

// Where the configurations of two recordings differ, apart from layout, folders and logs: "model.rotary_base 10000 and
// 500". Empty if one has none.
std::vector<std::string> config_differences(const Source& a, const Source& b);

}  // namespace ms::ckpt
