// A GGUF file read again, to be proved: its tensors as boxes of the tensors of the checkpoint that it was made of.
//
// The file itself does not say whose names its tensors had, so it is opened beside that checkpoint. Read are tensors of
// fp32, fp16, bf16 and q8_0.
#pragma once

#include <memory>
#include <string>

#include "ckpt/prove.h"
#include "ckpt/source.h"
#include "convert/family.h"

namespace ms::convert {

// True for a GGUF file, and for a folder that holds the model.gguf of a conversion.
bool is_gguf(const std::string& path);

// Weights alone: `original` says model and family (unless `family`, of --name-map, does). Of a tensor of q8_0 the
// values are those that its blocks stand for, fp32. What the file holds besides, and a second tensor of a name, are
// leftovers. Throws kCorruptData for a file that contradicts itself or the model, kUnsupported for another element
// type and a family that llama.cpp does not have.
std::unique_ptr<ckpt::Source> open_gguf(const std::string& path, const ckpt::Source& original,
                                        const Family* family = nullptr);

// Proves that a GGUF file was made of `source` (ckpt::prove), with the changes that the format asks for: rows of q and
// k in another order, 1 added to norms centred on zero, matrices of q8_0. Of these every block of 32 must be what
// ggml's rounding (quantize_row_q8_0_ref) makes of the source's values, which a note of the report says.
ckpt::ProofReport prove_gguf(ckpt::Source& source, const std::string& path, const Family* family,
                             const ckpt::ProveOptions& options);

}  // namespace ms::convert
