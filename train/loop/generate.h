// Generates text from a prompt. One whole forward pass per token, without a key/value cache; runs on any layout.
#pragma once

#include <functional>
#include <string>

#include "train/data/tokenizer.h"
#include "train/model/gpt_stage.h"

namespace ms::train {

// Continues `prompt` by count tokens; the same text on all ranks. temperature 0: the likeliest token; else sampled with
// `seed`. The context is the last max_position_embeddings tokens. goes_on: asked by all ranks after each token, the
// same answer on all; false ends the text there.
std::string generate(RankState& state, GptStage& stage, Tokenizer& tokenizer, const std::string& prompt, int64_t count,
                     double temperature, uint64_t seed, const std::function<bool()>& goes_on);

}  // namespace ms::train
