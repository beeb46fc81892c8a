// Cuts text into the words that BPE works on: the pre_tokenizer of a tokenizer.json.
//
// The patterns of GPT-2, Llama 3 and Qwen 2 are matched by hand, since no regular-expression library with Unicode
// categories is worth a dependency for three patterns; anything else is refused by name.
#pragma once

#include <deque>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace ms::train::detail {

class PreTokenizer {
 public:
  // json: the "pre_tokenizer" of a tokenizer.json: ByteLevel, or a Sequence of Split and Digits that ends in ByteLevel.
  // Throws kUnsupported naming the type or the pattern, nlohmann's exceptions for a wrong shape.
  explicit PreTokenizer(const nlohmann::json& json);

  // Appends the words of well-formed `text`, which together are the text. They look into text or into `storage`.
  void split(std::string_view text, std::vector<std::string_view>& words, std::deque<std::string>& storage) const;

 private:
  enum class Step { kGpt2, kLlama3, kQwen2, kDigit, kDigits, kPrefixSpace };
  void add(const nlohmann::json& json);
  static size_t match(Step step, std::string_view text);

  std::vector<Step> steps_;
};

}  // namespace ms::train::detail
