// Presents a checkpoint of a model under Hugging Face's tensor names: the inverse of mapped_source.h, for targets that
// keep names (convert_named.h).
#pragma once

#include <memory>

#include "ckpt/source.h"
#include "convert/name_map.h"

namespace ms::convert {

// Contains the weights and buffers of `source`, each tensor whole and in the family's form (transposed and split as in
// transformers), and passthrough tensors (passthrough.h) under their own names. No optimizer state; info() is the
// source's with has_model false. Throws kCorruptData if the source lacks a parameter of its model, kInvalidArgument as
// check_named.
std::unique_ptr<ckpt::Source> with_hf_names(std::unique_ptr<ckpt::Source> source, std::shared_ptr<const Family> family);

}  // namespace ms::convert
