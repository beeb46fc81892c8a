// Proves a conversion: reads the result again from the disk and shows that it holds every element of its source in
// exactly one place and nothing else.
//
// Both sides are read once. A wrong tensor is read again and compared with candidates, so that the report says what
// happened: which other tensor's values it holds, or whether it is transposed, shifted, permuted, rounded wrongly,
// stale or never written. Element types may differ: a narrower type must be rounded to nearest even. Sharding, the
// order of keys and padding rows do not matter.
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
  kRefused,        // its reader refuses it: the text says what is missing or contradictory
  kMissing,        // the target lacks a source tensor
  kExtra,          // the source lacks a target tensor
  kTwice,          // written twice: stored in two places
  kHole,           // elements that no file holds
  kShape,          // another global shape
  kType,           // an element type to which the source's type cannot be converted
  kTruncated,      // narrowed by truncation instead of rounding to nearest even
  kUninitialised,  // all zero, constant, not finite, or of another scale than this tensor in other layers
  kHoldsAnother,   // the values of another tensor of the source
  kSwapped,        // two tensors, or two parts of one, are exchanged
  kDuplicated,     // the values of another tensor, which is also in its own place
  kTransposed,
  kShifted,   // rows are at a constant distance from their place
  kPermuted,  // rows in another order
  kStale,     // optimizer state that does not match these weights
  kChanged,   // none of these
};
std::string_view fault_name(FaultKind kind);  // "refused", "missing", "written twice", ..

struct Fault {
  FaultKind kind = FaultKind::kChanged;
  std::string tensor;  // empty for kRefused
  core::TensorRole role = core::TensorRole::kParam;
  std::string place;  // file, and the name in it, of the first wrong element; may be empty
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
  bool equal = false;                          // values match the source's
};

struct ProveOptions {
  bool weights_only = false;          // ignore optimizer state of both sides
  std::vector<std::string> left_out;  // names of tensors that are left out on purpose
  int threads = 1;
  std::function<bool()> stopped;                              // throws kIo "interrupted" when true; may be empty
  std::function<void(int64_t done, int64_t total)> progress;  // target bytes; one thread at a time; may be empty
};

struct ProofReport {
  std::vector<Fault> faults;         // empty: proved
  std::vector<std::string> summary;  // what several faults share: "layer 5 holds layer 3's values: 9 tensors"
  std::vector<std::string> dropped;  // parts of the source that the target may lack and does
  std::vector<std::string> notes;    // unusual statistics that the source has too
  std::vector<ProvedTensor> tensors;
  int64_t elements = 0;  // of the target; each was compared with its source
};

// Throws what reading throws: kCorruptData for a damaged chunk of either side. Memory: about 32 MiB per thread, 200
// bytes per tensor, and 16 bytes per row and column of a wrong tensor.
//
// Roles: if the target has fp32 weights but no master weights (DCP, universal checkpoints, a file of fp32 weights), its
// weights may be the source's master weights; a few tensors are read beforehand to find out. If the source has no
// master weights, the target's are compared with its weights.
ProofReport prove(Source& source, Source& target, const ProveOptions& options = {});

// The report, with one fault, for a target that cannot be opened.
ProofReport refused_target(const core::Error& error);

}  // namespace ms::ckpt
