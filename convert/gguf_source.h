// Reads a GGUF file to prove it: its tensors as boxes of the tensors of the checkpoint that it was made from.
//
// The file does not name the family of its tensors, so it is opened together with that checkpoint. Supports tensors of
// fp32, fp16, bf16 and q8_0.
#pragma once

#include <memory>
#include <string>

#include "ckpt/prove.h"
#include "ckpt/source.h"
#include "convert/family.h"

namespace ms::convert {

// Returns true for a GGUF file, and for a folder with the model.gguf of a conversion.
bool is_gguf(const std::string& path);

// Opens weights only. Model and family come from `original` (the family from `family`, of --name-map, if given). A q8_0
// tensor is read as the fp32 values of its blocks. Other contents of the file, and further tensors of the same name,
// are leftovers. Throws kCorruptData for a file that contradicts itself or the model, kUnsupported for another element
// type and for a family that llama.cpp lacks.
std::unique_ptr<ckpt::Source> open_gguf(const std::string& path, const ckpt::Source& original,
                                        const Family* family = nullptr);

// Proves that a GGUF file was made from `source` (ckpt::prove), allowing for what the format changes: the row order of
// q and k, 1 added to norms centred on zero, matrices in q8_0. Each block of 32 of these must equal the result of
// ggml's rounding (quantize_row_q8_0_ref) of the source's values; a note in the report says so.
ckpt::ProofReport prove_gguf(ckpt::Source& source, const std::string& path, const Family* family,
                             const ckpt::ProveOptions& options);

}  // namespace ms::convert
