// Converts text to token ids and back.
//
// The types are Megatron's (megatron/training/tokenizer/tokenizer.py), plus ByteLevelTokenizer (a byte is its own id,
// eod is 256; nothing to download). Ids equal those of the libraries that Megatron uses: `tokenizers`, `sentencepiece`.
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

  // Appends the ids of text to out. The byte-level tokenizer keeps malformed UTF-8 unchanged; the others read each bad
  // byte as U+FFFD. Special tokens that the tokenizer adds around a text (Llama 3: <|begin_of_text|>) are included. Not
  // thread-safe, because it keeps a cache of words: give each thread its own by fork().
  virtual void encode(std::string_view text, std::vector<int32_t>& out) = 0;
  std::vector<int32_t> encode(std::string_view text);

  // The bytes of ids; end-of-document gives nothing. Throws kInvalidArgument for an id outside [0, vocab_size()).
  virtual std::string decode(std::span<const int32_t> ids) const = 0;

  // Largest id + 1. Megatron pads the embedding from this number.
  virtual int64_t vocab_size() const = 0;
  // End of document (Megatron's eod; Hugging Face's eos_token). nullopt: the tokenizer defines none.
  virtual std::optional<int32_t> eod() const = 0;
  // Type and a hash of the contents: equal descriptions give equal ids.
  virtual std::string description() const = 0;
  // The same tokenizer with a cache of its own; the tables are shared.
  virtual std::unique_ptr<Tokenizer> fork() const = 0;
};

// The tokenizer that the flags of the same names select.
struct TokenizerChoice {
  std::string tokenizer_type = "ByteLevelTokenizer";
  std::string tokenizer_model;
  std::string vocab_file;
  std::string merge_file;
  int64_t vocab_size = 0;
  int64_t vocab_extra_ids = 0;
};

// The types and their files:
//   ByteLevelTokenizer         none
//   GPT2BPETokenizer           vocab_file, merge_file: GPT-2's vocab.json and merges.txt
//   SentencePieceTokenizer, GPTSentencePieceTokenizer, Llama2Tokenizer
//                              tokenizer_model: a .model, or the folder of tokenizer.model
//   HuggingFaceTokenizer, PretrainedFromHF
//                              tokenizer_model: a tokenizer.json, or its folder
//   NullTokenizer              vocab_size: texts are ids already, as decimal numbers; eod is vocab_size
// Throws kInvalidArgument (unknown type; files missing, or given to a type that has none), kNotFound, kCorruptData
// (wrong
// contents), kUnsupported (a part of a tokenizer.json that is not implemented, named).
std::unique_ptr<Tokenizer> make_tokenizer(const TokenizerChoice& choice);

// Throws kInvalidArgument, with what to do about it, if the tokenizer defines no end of document, which `flag` needs.
void require_eod(const Tokenizer& tokenizer, const TokenizerChoice& choice, const char* flag);

}  // namespace ms::train
