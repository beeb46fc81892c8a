// Byte-level byte-pair encoding (Sennrich et al., arXiv 1508.07909, on bytes as in GPT-2): a word starts as its bytes;
// the adjacent pair that was merged earliest in training is merged, leftmost first, until no pair is known.
#pragma once

#include <array>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace ms::train::detail {

// The character by which byte-level vocabularies write a byte (printable ones stand for themselves, the others for
// U+0100 onward), and back; -1 for a character that stands for no byte.
uint32_t char_of_byte(uint8_t byte);
int byte_of_char(uint32_t code_point);

class BytePairModel {
 public:
  // json: the "model" of a tokenizer.json. Throws kUnsupported (another model, options that change the result),
  // kCorruptData (a merge of unknown tokens), nlohmann's exceptions for a wrong shape.
  explicit BytePairModel(const nlohmann::json& json);

  // Appends the ids of one word (raw bytes). O(n log n).
  void encode_word(std::string_view word, std::vector<int32_t>& out) const;

  // Raw bytes of each token, by id; empty where there is none.
  const std::vector<std::string>& tokens() const { return tokens_; }

 private:
  struct Merge {
    int32_t rank;
    int32_t id;
  };
  const Merge* find_merge(int32_t left, int32_t right) const;

  std::vector<std::string> tokens_;
  std::unordered_map<std::string, int32_t> ids_;
  std::unordered_map<uint64_t, Merge> merges_;
  std::array<int32_t, 256> byte_ids_{};
  bool ignore_merges_ = false;
};

}  // namespace ms::train::detail
