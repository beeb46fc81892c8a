// Converts tokens back to text: the decoder of a tokenizer.json.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace ms::train::detail {

class Decoder {
 public:
  // json: the "decoder" of a tokenizer.json: null, ByteLevel, Replace of a literal text, ByteFallback, Fuse, Strip,
  // Metaspace, or a Sequence of them. byte_level: tokens are already bytes, so that ByteLevel, the only type allowed
  // then, has nothing to do. Throws kUnsupported naming the type, nlohmann's exceptions for a wrong structure.
  Decoder(const nlohmann::json& json, bool byte_level);

  std::string decode(std::vector<std::string> tokens) const;

 private:
  struct Step {
    enum class Kind { kReplace, kByteFallback, kFuse, kStrip, kMetaspace } kind;
    std::string from, to;  // kReplace; kStrip and kMetaspace: the character in `from`
    size_t at_begin = 0;   // kStrip: how many of it at most; kMetaspace: 1 removes it from the first token
    size_t at_end = 0;     // kStrip
  };
  void add(const nlohmann::json& json, bool byte_level);
  static void apply(const Step& step, std::vector<std::string>& tokens);

  std::vector<Step> steps_;
  std::string separator_;  // between the tokens that the last step leaves
};

}  // namespace ms::train::detail
