// SentencePiece's .model files (unigram and BPE), run by SentencePiece's own library, with the conventions of
// Megatron's three tokenizers.
#pragma once

#include <memory>
#include <string>

#include "train/data/tokenizer.h"

namespace ms::train::detail {

struct SentencePieceModel;  // the library's processor, shared by forks

class SentencePieceTokenizer : public Tokenizer {
 public:
  // The conventions of megatron/training/tokenizer/tokenizer.py:
  enum class Kind {
    kSentencePiece,  // eod is <EOD>, added at the end of the vocabulary with <CLS>, <SEP>, <MASK> and those of pad,
                     // bos, eos and --vocab-extra-ids that are missing; such names in a text become their ids
    kGpt,            // only the ids of the model; eod is </s>
    kLlama2,         // as kGpt, and each text begins with <s>
  };

  // path: the .model, or the folder that contains it as tokenizer.model. vocab_extra_ids: 0 except with kSentencePiece.
  // Throws kNotFound, kCorruptData (not a model, or one that would make the library read out of bounds),
  // kInvalidArgument, kUnsupported (kLlama2 with a model without <s>).
  SentencePieceTokenizer(Kind kind, const std::string& path, int64_t vocab_extra_ids);

  void encode(std::string_view text, std::vector<int32_t>& out) override;
  std::string decode(std::span<const int32_t> ids) const override;
  int64_t vocab_size() const override;
  std::optional<int32_t> eod() const override;
  std::string description() const override;
  std::unique_ptr<Tokenizer> fork() const override;

 private:
  explicit SentencePieceTokenizer(std::shared_ptr<const SentencePieceModel> model) : model_(std::move(model)) {}

  std::shared_ptr<const SentencePieceModel> model_;
};

// Throws kCorruptData unless the character maps of a serialized model are consistent: the library follows their offsets
// unchecked.
void check_character_maps(std::string_view serialized_model);

}  // namespace ms::train::detail
