// The original files of Llama models by Meta (consolidated.NN.pth and params.json), as a ckpt::Source of weights.
//
// Each file is a tensor-parallel rank's: of wo and w2 columns, and of tok_embeddings before Llama 3; of the other
// matrices rows. Rows of wq and wk are in the order of neighbouring rotary pairs: of each head's row 2 j + h is ours
// row j of half h. Sources: meta-llama/llama's and meta-llama/llama3's llama/model.py, and transformers'
// models/llama/convert_llama_weights_to_hf.py.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "ckpt/source.h"

namespace ms::convert {

// "params.json and consolidated.00.pth"; empty if `folder` is no such checkpoint.
std::string meta_sign(const std::string& folder);

// hf_cfg_dir: of a config.json that says the model; empty: params.json does, and what that does not say (the longest
// sequence) is said in `decisions`. Throws kNotFound, kCorruptData (ranks are missing, or tensors have other shapes
// than params.json says), kUnsupported (experts, vision layers).
std::unique_ptr<ckpt::Source> open_meta(const std::string& folder, const std::string& hf_cfg_dir,
                                        std::vector<std::string>& decisions);

}  // namespace ms::convert
