// Compares what two runs have computed (mstrain --save-tensors) in the order of execution: the first tensor that
// differs by more than rounding explains names the module in which they part.
//
// How far rounding carries is measured: a third run, like the first but with inputs moved by about the rounding of
// their dtype, differs from the first by as much in each tensor (TTrace, arXiv 2506.09280).
#pragma once

#include <cstdint>
#include <functional>
#include <regex>
#include <string>
#include <vector>

#include "ckpt/source.h"

namespace ms::ckpt {

struct TensorDistance {
  std::string tensor;
  std::string fault;       // "only in the first", "shape [8] and [4]", "dtype fp32 and bf16"; empty: it was compared
  bool is_absent = false;  // from one of them
  double relative_l2 = 0;  // |a - b| / |a|
  double max_abs = 0;      // of a - b
  double allowed = 0;      // relative_l2 up to which it is rounding
  // Whether it differs by more than rounding.
  bool is_beyond() const { return !is_absent && (!fault.empty() || !(relative_l2 <= allowed)); }
};

struct TensorRename {
  std::regex from;  // what of a name of the second is replaced
  std::string to;   // by this, in which $1 is the first group
};

struct TensorDiffOptions {
  Source* noise = nullptr;  // of the perturbed run; not owned. nullptr: tolerance, or a default for each dtype
  double tolerance = 0;     // for all tensors, in place of noise; 0: none
  std::vector<TensorRename> renames;
  int threads = 1;
  std::function<bool()> stopped;                              // throws kIo "interrupted" when true; may be empty
  std::function<void(int64_t done, int64_t total)> progress;  // as CompareOptions
};

// Of every tensor of either. Throws kCorruptData if data is damaged; kInvalidArgument if one is a checkpoint and the
// other is none, if there are no tensors, if renames make one name of two, or if the noise is of another iteration,
// lacks a tensor that both have, or has another shape of it.
std::vector<TensorDistance> diff_tensors(Source& a, Source& b, const TensorDiffOptions& options = {});

}  // namespace ms::ckpt
