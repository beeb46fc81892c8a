// A checkpoint of a model under the names that Hugging Face gives its tensors: the inverse of mapped_source.h, for
// results that keep names (convert_named.h).
#pragma once

#include <memory>

#include "ckpt/source.h"
#include "convert/name_map.h"

namespace ms::convert {

// Weights and buffers of `source`, each whole as the family has it (transposed and split as in transformers), and what
// passes through (passthrough.h) under its own name. No optimizer state; info() is the source's with has_model false.
// Throws kCorruptData if the source lacks a parameter of its model, kInvalidArgument as check_named.
std::unique_ptr<ckpt::Source> with_hf_names(std::unique_ptr<ckpt::Source> source, std::shared_ptr<const Family> family);

}  // namespace ms::convert
