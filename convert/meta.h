// Opens Meta's original files of a Llama model (consolidated.NN.pth and params.json) as a ckpt::Source of weights.
//
// Each file belongs to a tensor-parallel rank. wo and w2, and before Llama 3 tok_embeddings, are cut by columns, the
// other matrices by rows. Rows of wq and wk are ordered by neighbouring rotary pairs: in each head, row 2 j + h is row
// j of half h in our order. Sources: meta-llama/llama's and meta-llama/llama3's llama/model.py, and transformers'
// models/llama/convert_llama_weights_to_hf.py.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "ckpt/source.h"

namespace ms::convert {

// Returns "params.json and consolidated.00.pth"; empty if `folder` is not such a checkpoint.
std::string meta_sign(const std::string& folder);

// hf_cfg_dir: folder of a config.json that describes the model; empty: params.json does, and the value chosen for what
// it lacks (the sequence length) is appended to `decisions`. Throws kNotFound, kCorruptData (ranks are missing, or
// shapes differ from params.json), kUnsupported (experts, vision layers).
std::unique_ptr<ckpt::Source> open_meta(const std::string& folder, const std::string& hf_cfg_dir,
                                        std::vector<std::string>& decisions);

}  // namespace ms::convert
