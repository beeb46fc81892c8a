#include "train/data/tokenizer.h"

#include <charconv>

#include "core/error.h"
#include "core/printable.h"
#include "train/data/detail/huggingface_tokenizer.h"
#include "train/data/detail/sentencepiece_tokenizer.h"

namespace ms::train {
namespace {

using core::cat;
using core::Error;
using core::ErrorCode;

class ByteLevelTokenizer : public Tokenizer {
 public:
  void encode(std::string_view text, std::vector<int32_t>& out) override {
    const size_t first = out.size();
    out.resize(first + text.size());
    for (size_t i = 0; i < text.size(); ++i) out[first + i] = static_cast<uint8_t>(text[i]);
  }
  std::string decode(std::span<const int32_t> ids) const override {
    std::string text;
    for (const int32_t id : ids) {
      if (id < 0 || id > kEod) {
        throw Error(ErrorCode::kInvalidArgument, cat("token id ", id, " is not below the vocabulary size ", kEod + 1));
      }
      if (id != kEod) text += static_cast<char>(id);
    }
    return text;
  }
  int64_t vocab_size() const override { return kEod + 1; }
  std::optional<int32_t> eod() const override { return kEod; }
  std::string description() const override { return "ByteLevelTokenizer"; }
  std::unique_ptr<Tokenizer> fork() const override { return std::make_unique<ByteLevelTokenizer>(); }

 private:
  static constexpr int32_t kEod = 256;
};

// Numbers as text, for data that was tokenized elsewhere (Megatron's _NullTokenizer).
class NullTokenizer : public Tokenizer {
 public:
  explicit NullTokenizer(int64_t vocab_size) : eod_(static_cast<int32_t>(vocab_size)) {}

  void encode(std::string_view text, std::vector<int32_t>& out) override {
    constexpr std::string_view kSpace = " \t\r\n";
    for (size_t at = text.find_first_not_of(kSpace); at != std::string_view::npos;) {
      const size_t end = std::min(text.find_first_of(kSpace, at), text.size());
      const std::string_view word = text.substr(at, end - at);
      int32_t id = -1;
      const auto [stop, error] = std::from_chars(word.data(), word.data() + word.size(), id);
      if (error != std::errc() || stop != word.data() + word.size() || id < 0 || id > eod_) {
        throw Error(ErrorCode::kCorruptData, cat("NullTokenizer: \"", word, "\" is not an id from 0 to ", eod_));
      }
      out.push_back(id);
      at = text.find_first_not_of(kSpace, end);
    }
  }
  std::string decode(std::span<const int32_t> ids) const override {
    std::string text;
    for (const int32_t id : ids) {
      if (id < 0 || id > eod_) {
        throw Error(ErrorCode::kInvalidArgument, cat("token id ", id, " is not below the vocabulary size ", eod_ + 1));
      }
      if (id != eod_) text += cat(text.empty() ? "" : " ", id);
    }
    return text;
  }
  int64_t vocab_size() const override { return int64_t{eod_} + 1; }
  std::optional<int32_t> eod() const override { return eod_; }
  std::string description() const override { return cat("NullTokenizer ", eod_); }
  std::unique_ptr<Tokenizer> fork() const override { return std::make_unique<NullTokenizer>(*this); }

 private:
  int32_t eod_;
};

struct Need {
  const char* flag;
  bool wanted;
  bool given;
  const char* what;
};

void check_files(const TokenizerChoice& choice, bool model, bool vocab_and_merges, const char* model_is) {
  const Need needs[] = {{"--tokenizer-model", model, !choice.tokenizer_model.empty(), model_is},
                        {"--vocab-file", vocab_and_merges, !choice.vocab_file.empty(), "GPT-2's vocab.json"},
                        {"--merge-file", vocab_and_merges, !choice.merge_file.empty(), "GPT-2's merges.txt"}};
  for (const Need& need : needs) {
    if (need.wanted && !need.given) {
      throw Error(ErrorCode::kInvalidArgument,
                  cat("--tokenizer-type ", choice.tokenizer_type, " needs ", need.flag, ": ", need.what));
    }
    if (!need.wanted && need.given) {
      throw Error(ErrorCode::kInvalidArgument,
                  cat(need.flag, " with --tokenizer-type ", choice.tokenizer_type,
                      ", which does not read this file. Use ", "--tokenizer-type ",
                      need.flag[2] == 't' ? "HuggingFaceTokenizer or GPTSentencePieceTokenizer" : "GPT2BPETokenizer"));
    }
  }
}

}  // namespace

std::vector<int32_t> Tokenizer::encode(std::string_view text) {
  std::vector<int32_t> out;
  encode(text, out);
  return out;
}

std::unique_ptr<Tokenizer> make_tokenizer(const TokenizerChoice& choice) {
  using SentencePiece = detail::SentencePieceTokenizer;
  const std::string& type = choice.tokenizer_type;
  if (choice.vocab_extra_ids != 0 && type != "SentencePieceTokenizer") {
    throw Error(ErrorCode::kInvalidArgument,
                cat("--vocab-extra-ids ", choice.vocab_extra_ids, " with --tokenizer-type ", type,
                    ": only SentencePieceTokenizer adds ids"));
  }
  const auto sentencepiece = [&](SentencePiece::Kind kind) {
    check_files(choice, true, false, "a SentencePiece .model, or the folder of tokenizer.model");
    return std::make_unique<SentencePiece>(kind, choice.tokenizer_model, choice.vocab_extra_ids);
  };
  if (type == "SentencePieceTokenizer") return sentencepiece(SentencePiece::Kind::kSentencePiece);
  if (type == "GPTSentencePieceTokenizer") return sentencepiece(SentencePiece::Kind::kGpt);
  if (type == "Llama2Tokenizer") return sentencepiece(SentencePiece::Kind::kLlama2);
  if (type == "HuggingFaceTokenizer" || type == "PretrainedFromHF") {
    check_files(choice, true, false, "a tokenizer.json or its folder");
    return std::make_unique<detail::HuggingFaceTokenizer>(choice.tokenizer_model);
  }
  if (type == "GPT2BPETokenizer") {
    check_files(choice, false, true, "");
    return std::make_unique<detail::HuggingFaceTokenizer>(choice.vocab_file, choice.merge_file);
  }
  if (type == "ByteLevelTokenizer") {
    check_files(choice, false, false, "");
    return std::make_unique<ByteLevelTokenizer>();
  }
  if (type == "NullTokenizer") {
    check_files(choice, false, false, "");
    if (choice.vocab_size < 1 || choice.vocab_size > INT32_MAX - 1) {
      throw Error(ErrorCode::kInvalidArgument,
                  cat("--tokenizer-type NullTokenizer needs --vocab-size, 1 to 2147483646; it is ", choice.vocab_size));
    }
    return std::make_unique<NullTokenizer>(choice.vocab_size);
  }
  throw Error(ErrorCode::kInvalidArgument,
              cat("--tokenizer-type ", core::shown_value(type),
                  ": expected ByteLevelTokenizer, GPT2BPETokenizer, SentencePieceTokenizer, GPTSentencePieceTokenizer, "
                  "Llama2Tokenizer, HuggingFaceTokenizer, PretrainedFromHF or NullTokenizer"));
}

void require_eod(const Tokenizer& tokenizer, const TokenizerChoice& choice, const char* flag) {
  if (tokenizer.eod()) return;
  const std::string& type = choice.tokenizer_type;
  const bool is_gpt2 = type == "GPT2BPETokenizer";
  const char* const cure = is_gpt2 ? "give a vocab.json with <|endoftext|>"
                           : type == "HuggingFaceTokenizer" || type == "PretrainedFromHF"
                               ? "put eos_token into tokenizer_config.json beside the tokenizer.json"
                               : "give a model with an eos piece (eos_id of SentencePiece's trainer)";
  throw Error(ErrorCode::kInvalidArgument, cat(flag, " needs an end-of-document token, which ", type, " ",
                                               is_gpt2 ? choice.vocab_file : choice.tokenizer_model,
                                               " does not name: ", cure, ", or leave ", flag, " out"));
}

}  // namespace ms::train
