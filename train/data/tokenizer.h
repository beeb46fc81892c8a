// Text to token ids and back.
//
// Their types are Megatron's (megatron/training/tokenizer/tokenizer.py), and ByteLevelTokenizer (a byte is its own id,
// eod is 256; nothing to download). Ids equal those of the libraries that Megatron calls: `tokenizers`,
// `sentencepiece`.
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

// Which tokenizer, as the flags of the same names say.
struct TokenizerChoice {
  std::string tokenizer_type = "ByteLevelTokenizer";
  std::string tokenizer_model;
  std::string vocab_file;
  std::string merge_file;
  int64_t vocab_size = 0;
  int64_t vocab_extra_ids = 0;
};

// The types, and what each needs:
//   ByteLevelTokenizer         nothing
//   GPT2BPETokenizer           vocab_file, merge_file: GPT-2's vocab.json and merges.txt
//   SentencePieceTokenizer, GPTSentencePieceTokenizer, Llama2Tokenizer
//                              tokenizer_model: a .model, or the folder of tokenizer.model
//   HuggingFaceTokenizer, PretrainedFromHF
//                              tokenizer_model: a tokenizer.json, or its folder
//   NullTokenizer              vocab_size: texts are ids already, as decimal numbers; eod is vocab_size
// Throws kInvalidArgument (unknown type; files given or missing wrongly), kNotFound, kCorruptData (not such a file),
//   kUnsupported (a part of a tokenizer.json that is not built in, named).
std::unique_ptr<Tokenizer> make_tokenizer(const TokenizerChoice& choice);

}  // namespace ms::train
