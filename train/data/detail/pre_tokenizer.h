// Splits text into the words that BPE works on: the pre_tokenizer of a tokenizer.json.
//
// The patterns of GPT-2, Llama 3 and Qwen 2 are matched by hand, because a regular-expression library with Unicode
// categories is not worth a dependency for three patterns. Any other pattern is refused by name.
#pragma once

#include <deque>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace ms::train::detail {

class PreTokenizer {
 public:
  // json: the "pre_tokenizer" of a tokenizer.json: null (the text is one word), or ByteLevel, Metaspace, Digits and
  // Split by a known pattern or a literal text; one of them, or a Sequence in which ByteLevel is last. Throws
  // kUnsupported naming the type or the pattern, nlohmann's exceptions for a wrong structure.
  explicit PreTokenizer(const nlohmann::json& json);

  // True if the model works on bytes (ByteLevel), false if on characters.
  bool byte_level() const { return byte_level_; }

  // Appends the words of well-formed `text`; concatenated they are the text, changed by Metaspace or a prefix space if
  // there is one. They point into text or into `storage`. at_start: text is the beginning of the document.
  void split(std::string_view text, bool at_start, std::vector<std::string_view>& words,
             std::deque<std::string>& storage) const;

 private:
  struct Step {
    enum class Kind {
      kGpt2,
      kLlama3,
      kQwen2,
      kDigit,
      kDigits,
      kPrefixSpace,
      kMetaspace,
      kIsolated,            // a literal text is a word of its own,
      kMergedWithPrevious,  // ends a word,
      kMergedWithNext,      // or begins one
    } kind;
    std::string text;  // the literal; kMetaspace: the character that replaces a space
    enum class Prepend { kNever, kFirst, kAlways } prepend = Prepend::kNever;
  };
  void add(const nlohmann::json& json);
  void add_split(const nlohmann::json& json);
  void add_metaspace(const nlohmann::json& json);
  static size_t match(const Step& step, std::string_view text);

  std::vector<Step> steps_;
  bool byte_level_ = false;
};

}  // namespace ms::train::detail
