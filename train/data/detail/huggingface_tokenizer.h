// A BPE tokenizer described by a tokenizer.json: added tokens, normalizer, pre-tokenizer, model and post-processor, in
// the order in which the `tokenizers` library applies them, and its decoder for the way back. GPT-2's older pair of
// files, vocab.json and merges.txt, is read as the equivalent tokenizer.json.
#pragma once

#include <memory>
#include <string>
#include <unordered_map>

#include "train/data/tokenizer.h"

namespace ms::train::detail {

struct HuggingFaceModel;  // the tables, shared by forks

class HuggingFaceTokenizer : public Tokenizer {
 public:
  // path: tokenizer.json or its folder. The eod is eos_token of tokenizer_config.json or special_tokens_map.json in the
  // same folder, otherwise the first of the usual names among the added tokens.
  explicit HuggingFaceTokenizer(const std::string& path);
  // GPT-2's vocab.json and merges.txt, as Megatron's GPT2BPETokenizer reads them: there are no added tokens, so
  // "<|endoftext|>" in a text is ordinary text; as an id it is the eod. Throws as make_tokenizer() does.
  HuggingFaceTokenizer(const std::string& vocab_file, const std::string& merge_file);

  void encode(std::string_view text, std::vector<int32_t>& out) override;
  std::string decode(std::span<const int32_t> ids) const override;
  int64_t vocab_size() const override;
  std::optional<int32_t> eod() const override;
  std::string description() const override;
  std::unique_ptr<Tokenizer> fork() const override;

 private:
  explicit HuggingFaceTokenizer(std::shared_ptr<const HuggingFaceModel> model) : model_(std::move(model)) {}
  void encode_words(std::string_view text, bool at_start, std::vector<int32_t>& out);

  std::shared_ptr<const HuggingFaceModel> model_;
  std::unordered_map<std::string, std::vector<int32_t>> cache_;  // ids of short words
  std::string key_;                                              // buffer for look-ups
};

}  // namespace ms::train::detail
