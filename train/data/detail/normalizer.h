// Changes text before it is split into words: the normalizer of a tokenizer.json.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace ms::train::detail {

// `text` with every `from` (not empty) replaced by `to`, left to right.
std::string replace_all(std::string_view text, std::string_view from, std::string_view to);

// The literal text of a tokenizer.json's {"String": "..."}. Throws kUnsupported, with a message that begins with
// `what`, for a regular expression or an empty text.
std::string literal_pattern(const nlohmann::json& pattern, std::string_view what);

class Normalizer {
 public:
  // json: the "normalizer" of a tokenizer.json: null, NFC, Prepend, Replace of a literal text, or a Sequence of them.
  // Throws kUnsupported naming the type, nlohmann's exceptions for a wrong structure.
  explicit Normalizer(const nlohmann::json& json);

  // Returns false and does not change `out` if well-formed `text` is already normal.
  bool normalize(std::string_view text, std::string& out) const;

 private:
  struct Step {
    enum class Kind { kNfc, kPrepend, kReplace } kind;
    std::string from, to;  // kReplace; kPrepend puts `to` before any text but the empty one
  };
  void add(const nlohmann::json& json);
  static bool apply(const Step& step, std::string_view text, std::string& out);

  std::vector<Step> steps_;
};

}  // namespace ms::train::detail
