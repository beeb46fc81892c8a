// Proof of a conversion: the result, read again from the disk, holds every element of its source in exactly one place
// and nothing else.
//
// Both sides are read once. Where a tensor is wrong it is read again and compared with what it may have been confused
// with, so that the report says what happened: which tensor it holds instead, whether it is transposed, shifted, out of
// order, rounded wrongly, stale or was never written. Element types may differ: a narrower one must be rounded to
// nearest even. How the two are cut, the order of their keys and padding rows do not matter.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "ckpt/source.h"
#include "core/error.h"
#include "core/sharded_tensor.h"

namespace ms::ckpt {

enum class FaultKind : uint8_t {
  kRefused,        // its reader refuses it: what is missing or contradicts itself is in the text
  kMissing,        // a source tensor is nowhere in the target
  kExtra,          // a target tensor is nowhere in the source
  kTwice,          // written twice: stored in two places
  kHole,           // elements that no file holds
  kShape,          // another global shape
  kType,           // an element type that the source's cannot become
  kTruncated,      // narrowed by cutting bits off instead of rounding to nearest even
  kUninitialised,  // all zero, constant, not finite, or of another scale than the same tensor of other layers
  kHoldsAnother,   // the values of another tensor of the source
  kSwapped,        // two tensors, or two parts of one, have changed places
  kDuplicated,     // the values of another tensor, which is in its own place too
  kTransposed,
  kShifted,   // rows stand some rows from their place
  kPermuted,  // rows in another order
  kStale,     // optimizer state that is not of these weights
  kChanged,   // none of these
};
std::string_view fault_name(FaultKind kind);  // "refused", "missing", "written twice", ..

struct Fault {
  FaultKind kind = FaultKind::kChanged;
  std::string tensor;  // empty for kRefused
  core::TensorRole role = core::TensorRole::kParam;
  std::string place;  // file and tensor in it, of the first wrong element; may be empty
  std::string text;   // one sentence
};
// "decoder.layers.3.mlp.linear_fc1.weight (param): swapped: gate and up ... [model.safetensors:...]".
std::string fault_text(const Fault& fault);

struct ProvedTensor {
  std::string key;
  core::TensorRole role = core::TensorRole::kParam;
  core::DType dtype = core::DType::kFp32;
  core::Dims shape;
  uint64_t logical_xxh3 = 0;  // of the target's values; 0 if they leave a hole
  int64_t nans = 0, infinities = 0, zeros = 0;
  double min = 0, max = 0, mean = 0, rms = 0;  // of the finite elements
  bool equal = false;                          // to the source's
};

struct ProveOptions {
  bool weights_only = false;          // optimizer state of either side is not looked at
  std::vector<std::string> left_out;  // names of tensors that are left out on purpose
  int threads = 1;
  std::function<bool()> stopped;                              // throws kIo "interrupted" when true; may be empty
  std::function<void(int64_t done, int64_t total)> progress;  // target bytes; one thread at a time; may be empty
};

struct ProofReport {
  std::vector<Fault> faults;         // empty: proved
  std::vector<std::string> summary;  // what several faults have in common: "layer 5 holds layer 3's values: 9 tensors"
  std::vector<std::string> dropped;  // what of the source is not in the target, and may be
  std::vector<std::string> notes;    // statistics that look odd but are the source's as well
  std::vector<ProvedTensor> tensors;
  int64_t elements = 0;  // of the target, each compared with its source
};

// Throws what reading throws: kCorruptData for a damaged chunk of either side. Memory: about 32 MiB a thread, 200 bytes
// a tensor, and 16 bytes a row and column of a tensor that is wrong.
//
// Roles: fp32 weights of a target without master weights (DCP, universal checkpoints, a file of fp32 weights) may be
// the source's master weights; a few tensors are read beforehand to tell. Master weights whose source has none are its
// weights.
ProofReport prove(Source& source, Source& target, const ProveOptions& options = {});

// A target that cannot be opened, as a report with one fault.
ProofReport refused_target(const core::Error& error);

}  // namespace ms::ckpt
