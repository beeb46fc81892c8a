// Text to token ids and back.
//
// Two kinds: ByteLevelTokenizer (a byte is its own id, eod is 256; nothing to download) and HuggingFaceTokenizer, a
// byte-level BPE read from a tokenizer.json (GPT-2, Llama 3, Qwen 2 and 3), whose ids equal those of the `tokenizers`
// library.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ms::train {

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // Appends the ids of text to out. Malformed UTF-8 passes unchanged through the byte-level tokenizer; the others read
  // each bad byte as U+FFFD. Special tokens that the tokenizer puts around a text (Llama 3: <|begin_of_text|>) come
  // along. One caller at a time, for it keeps a cache of words: give each thread its own by fork().
  virtual void encode(std::string_view text, std::vector<int32_t>& out) = 0;
  std::vector<int32_t> encode(std::string_view text);

  // Bytes of ids; end-of-document is nothing. Throws kInvalidArgument for an id outside [0, vocab_size()).
  virtual std::string decode(std::span<const int32_t> ids) const = 0;

  // Ids are below this (largest id + 1); Megatron pads the embedding from it.
  virtual int64_t vocab_size() const = 0;
  // End of document (Megatron's eod; Hugging Face's eos_token). nullopt: the tokenizer names none.
  virtual std::optional<int32_t> eod() const = 0;
  // Type and a hash of the contents: equal descriptions give equal ids.
  virtual std::string description() const = 0;
  // The same tokenizer with a cache of its own; the tables are shared.
  virtual std::unique_ptr<Tokenizer> fork() const = 0;
};

// type: ByteLevelTokenizer, or HuggingFaceTokenizer (alias PretrainedFromHF). model: tokenizer.json or its folder, for
//   the second; empty for the first.
// Throws kInvalidArgument (unknown type; a model given or missing wrongly), kNotFound, kCorruptData (not a valid
//   tokenizer.json), kUnsupported (a model, normalizer or pre-tokenizer that is not built in, named).
std::unique_ptr<Tokenizer> make_tokenizer(std::string_view type, const std::string& model);

}  // namespace ms::train
