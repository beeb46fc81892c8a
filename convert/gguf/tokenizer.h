// tokenizer.json of a Hugging Face folder, as llama.cpp wants it in a GGUF file.
//
// Sources: the format of huggingface/tokenizers (tokenizer.json), llama.cpp's gguf-py/gguf/vocab.py and the keys
// tokenizer.* of gguf-py/gguf/constants.py.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "convert/gguf/layout.h"

namespace ms::convert {

// folder: of tokenizer.json, with tokenizer_config.json and config.json if they are there; empty, or without a
// tokenizer.json: the file gets none, which is said in `decisions`. vocab_size: ids that no token has are filled up.
// Throws kCorruptData for a tokenizer.json that contradicts itself or has ids of vocab_size and more, kUnsupported for
// one that is no BPE.
void add_gguf_tokenizer(const std::string& folder, std::string_view architecture, int64_t vocab_size,
                        GgufValues& values, std::vector<std::string>& decisions);

}  // namespace ms::convert
