#include "convert/gguf/tokenizer.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <map>
#include <optional>

#include "convert/detail/printable.h"
#include "convert/huggingface_config.h"
#include "core/error.h"
#include "core/io/file.h"
#include "core/io/json.h"

namespace ms::convert {
namespace {

namespace fs = std::filesystem;
using core::cat;
using core::Error;
using core::ErrorCode;
using detail::printable;
using nlohmann::json;

constexpr int64_t kMaxJsonBytes = 128 << 20;
// llama.cpp's token types.
enum Type : int32_t { kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4, kUnused = 5, kByte = 6 };

// The pre-tokenizer, which splits text before bytes are merged, identified by its regular expression.
struct Splitter {
  std::string_view part;  // of the expression
  std::string_view name;
};
constexpr Splitter kSplitters[] = {{R"(\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*)", "llama-bpe"},
                                   {R"(\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*)", "qwen2"}};

// Finds the part of a tokenizer (normalizer, pre_tokenizer) of this type, in a sequence or alone.
const json* find_part(const json& part, std::string_view type) {
  if (!part.is_object()) return nullptr;
  if (part.value("type", json()) == type) return &part;
  for (const char* list : {"pretokenizers", "normalizers"}) {
    if (!part.contains(list) || !part[list].is_array()) continue;
    for (const json& inner : part[list]) {
      if (inner.is_object() && inner.value("type", json()) == type) return &inner;
    }
  }
  return nullptr;
}

class Tokenizer {
 public:
  Tokenizer(const fs::path& folder, int64_t vocab_size)
      : folder_(folder), path_((folder / "tokenizer.json").string()), json_(read_json(path_, kMaxJsonBytes)) {
    if (!json_.is_object() || !json_.contains("model") || !json_["model"].is_object()) corrupt("it has no model");
    const json& model = json_["model"];
    if (!model.contains("vocab") || !model["vocab"].is_object() || model.value("type", json("BPE")) != "BPE") {
      throw Error(ErrorCode::kUnsupported, cat(path_, ": not a BPE tokenizer, the only kind supported for gguf"));
    }
    by_bytes_ = model.value("byte_fallback", json(false)) == true;  // sentencepiece's
    tokens_.resize(static_cast<size_t>(vocab_size));
    types_.assign(static_cast<size_t>(vocab_size), 0);
    for (const auto& [token, id] : model["vocab"].items()) add(token, id, type_of(token));
    if (json_.contains("added_tokens")) add_added(json_["added_tokens"]);
    if (!model.contains("merges") || !model["merges"].is_array()) corrupt("its model has no list of merges");
    for (const json& merge : model["merges"]) add_merge(merge);
    for (size_t id = 0; id < tokens_.size(); ++id) {
      if (types_[id] != 0) continue;
      tokens_[id] = cat("[PAD", id, "]");
      types_[id] = kUnused;
    }
  }

  void write(std::string_view architecture, GgufValues& values, std::vector<std::string>& decisions) const;

 private:
  [[noreturn]] void corrupt(const auto&... parts) const {
    throw Error(ErrorCode::kCorruptData, cat(path_, ": ", parts...));
  }
  int32_t type_of(const std::string& token) const {
    unsigned byte = 0;
    char end = 0;
    if (by_bytes_ && token.size() == 6 && std::sscanf(token.c_str(), "<0x%2X%c", &byte, &end) == 2 && end == '>') {
      return kByte;
    }
    return token == json_["model"].value("unk_token", json()) ? kUnknown : kNormal;
  }
  size_t checked_id(const std::string& token, const json& id) const {
    if (!id.is_number_unsigned() || id.get<uint64_t>() >= tokens_.size()) {
      corrupt("the token ", printable(token), " has the id ", printable(id.dump()), ", but the model has ",
              tokens_.size(), " tokens");
    }
    return id.get<size_t>();
  }
  void add(const std::string& token, const json& id, int32_t type) {
    const size_t at = checked_id(token, id);
    if (types_[at] != 0) corrupt("the tokens ", printable(tokens_[at]), " and ", printable(token), " have the same id");
    tokens_[at] = token;
    types_[at] = type;
    ids_.emplace(token, at);
  }
  void add_added(const json& added);
  void add_merge(const json& merge);
  std::string_view splitter(std::string_view architecture) const;
  std::optional<uint32_t> special_id(const json& config, const json& tokenizer_config, const char* name) const;
  bool adds_space() const;

  fs::path folder_;
  std::string path_;
  json json_;
  bool by_bytes_ = false;
  std::vector<std::string> tokens_;
  std::vector<int32_t> types_;  // 0: there is none
  std::map<std::string, size_t> ids_;
  std::vector<std::string> merges_;
  std::map<size_t, size_t> merged_;  // token -> the first merge that makes it
};

void Tokenizer::add_added(const json& added) {
  if (!added.is_array()) corrupt("added_tokens is not a list");
  for (const json& token : added) {
    const bool whole =
        token.is_object() && token.contains("content") && token["content"].is_string() && token.contains("id");
    if (!whole) corrupt("an added token without content or id");
    const std::string text = token["content"].get<std::string>();
    const size_t id = checked_id(text, token["id"]);
    const bool special = token.value("special", json(false)) == true;
    if (types_[id] != 0 && tokens_[id] != text) {
      corrupt("the tokens ", printable(tokens_[id]), " and ", printable(text), " have the same id");
    }
    tokens_[id] = text;
    if (types_[id] != kUnknown) types_[id] = special ? kControl : kUserDefined;
    ids_.emplace(text, id);
  }
}

void Tokenizer::add_merge(const json& merge) {
  std::string left, right;
  if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
    left = merge[0].get<std::string>();
    right = merge[1].get<std::string>();
  } else if (merge.is_string() && merge.get<std::string>().find(' ') != std::string::npos) {
    const std::string text = merge.get<std::string>();
    left = text.substr(0, text.find(' '));
    right = text.substr(text.find(' ') + 1);
  } else {
    corrupt("a merge that is not a pair: ", printable(merge.dump(-1, ' ', true, json::error_handler_t::replace)));
  }
  const auto made = ids_.find(left + right);
  if (made == ids_.end()) corrupt("the merge of ", printable(left), " and ", printable(right), " makes no token");
  merged_.emplace(made->second, merges_.size());
  merges_.push_back(cat(left, " ", right));
}

// Returns an empty string if it is unknown.
std::string_view Tokenizer::splitter(std::string_view architecture) const {
  const json before = json_.value("pre_tokenizer", json());
  if (const json* split = find_part(before, "Split"); split && split->contains("pattern")) {
    const json& pattern = (*split)["pattern"];
    const std::string text = pattern.is_object() && pattern.contains("Regex") && pattern["Regex"].is_string()
                                 ? pattern["Regex"].get<std::string>()
                                 : std::string();
    for (const Splitter& one : kSplitters) {
      if (text.find(one.part) != std::string::npos) return architecture == "glm4" ? "glm4" : one.name;
    }
    return "";
  }
  const json* bytes = find_part(before, "ByteLevel");
  return bytes && bytes->value("use_regex", json(true)) == true ? "gpt-2" : "";
}

// Returns the id of bos, eos, .. in config.json or tokenizer_config.json: a number, the first of a list, or a string.
std::optional<uint32_t> Tokenizer::special_id(const json& config, const json& tokenizer_config,
                                              const char* name) const {
  const std::string token = cat(name, "_token");
  json said = tokenizer_config.is_object() ? tokenizer_config.value(token, json()) : json();
  if (said.is_object()) said = said.value("content", json());
  if (said.is_string()) {
    const auto found = ids_.find(said.get<std::string>());
    if (found != ids_.end()) return static_cast<uint32_t>(found->second);
  }
  json id = config.is_object() ? config.value(token + "_id", json()) : json();
  if (id.is_array() && !id.empty()) id = json(id[0]);
  const bool inside = id.is_number_unsigned() && id.get<uint64_t>() < tokens_.size();
  return inside ? std::optional(id.get<uint32_t>()) : std::nullopt;
}

bool Tokenizer::adds_space() const {
  if (find_part(json_.value("normalizer", json()), "Prepend") != nullptr) return true;
  const json before = json_.value("pre_tokenizer", json());
  const json* space = find_part(before, "Metaspace");
  return space && space->value("prepend_scheme", json("always")) != "never";
}

void Tokenizer::write(std::string_view architecture, GgufValues& values, std::vector<std::string>& decisions) const {
  const auto read_beside = [&](const char* name) {
    return fs::exists(folder_ / name) ? read_json((folder_ / name).string(), kMaxJsonBytes) : json::object();
  };
  const json config = read_beside("config.json"), tokenizer_config = read_beside("tokenizer_config.json");
  values.set("tokenizer.ggml.model", std::string_view(by_bytes_ ? "llama" : "gpt2"));
  std::string_view pre = by_bytes_ ? "default" : splitter(architecture);
  if (pre.empty()) {
    pre = "default";
    decisions.push_back(
        cat(path_, ": its pre-tokenizer is unknown, and is written as ", pre, ": llama.cpp may tokenize differently"));
  }
  values.set("tokenizer.ggml.pre", pre);
  values.set("tokenizer.ggml.tokens", std::span(tokens_));
  values.set("tokenizer.ggml.token_type", std::span(types_));
  if (by_bytes_) {  // merges are ordered by score: the earlier the better
    std::vector<float> scores(tokens_.size(), 0.0f);
    for (const auto& [token, merge] : merged_) scores[token] = -static_cast<float>(merge);
    values.set("tokenizer.ggml.scores", std::span<const float>(scores));
    values.set_flag("tokenizer.ggml.add_space_prefix", adds_space());
  } else {
    values.set("tokenizer.ggml.merges", std::span(merges_));
  }
  const std::pair<const char*, const char*> specials[] = {
      {"bos", "bos_token_id"}, {"eos", "eos_token_id"}, {"unk", "unknown_token_id"}, {"pad", "padding_token_id"}};
  for (const auto& [name, key] : specials) {
    if (const auto id = special_id(config, tokenizer_config, name)) values.set(cat("tokenizer.ggml.", key), *id);
  }
  for (const char* name : {"add_bos_token", "add_eos_token"}) {
    const json flag = tokenizer_config.is_object() ? tokenizer_config.value(name, json()) : json();
    if (flag.is_boolean()) values.set_flag(cat("tokenizer.ggml.", name), flag.get<bool>());
  }
  json chat = tokenizer_config.is_object() ? tokenizer_config.value("chat_template", json()) : json();
  if (fs::exists(folder_ / "chat_template.jinja")) {
    chat = core::read_text((folder_ / "chat_template.jinja").string(), kMaxJsonBytes);
  }
  if (chat.is_string()) values.set("tokenizer.chat_template", std::string_view(chat.get_ref<const std::string&>()));
}

}  // namespace

void add_gguf_tokenizer(const std::string& folder, std::string_view architecture, int64_t vocab_size,
                        GgufValues& values, std::vector<std::string>& decisions) {
  if (folder.empty() || !fs::exists(fs::path(folder) / "tokenizer.json")) {
    values.set("tokenizer.ggml.model", std::string_view("no_vocab"));
    decisions.push_back(cat("there is no tokenizer.json", folder.empty() ? std::string() : cat(" in ", folder),
                            ": the file gets no tokenizer; --hf-cfg-dir names a folder that has one"));
    return;
  }
  Tokenizer(folder, vocab_size).write(architecture, values, decisions);
}

}  // namespace ms::convert
