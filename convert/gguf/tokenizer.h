// Converts tokenizer.json of a Hugging Face folder into the metadata that llama.cpp reads from a GGUF file.
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

// folder: contains tokenizer.json, and possibly tokenizer_config.json and config.json; empty, or without a
// tokenizer.json: the file gets no tokenizer, which is noted in `decisions`. vocab_size: ids without a token are filled
// up to it. Throws kCorruptData for a tokenizer.json that contradicts itself or has ids of vocab_size and more,
// kUnsupported for one that is not BPE.
void add_gguf_tokenizer(const std::string& folder, std::string_view architecture, int64_t vocab_size,
                        GgufValues& values, std::vector<std::string>& decisions);

}  // namespace ms::convert
