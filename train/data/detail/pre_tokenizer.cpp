#include "train/data/detail/pre_tokenizer.h"

#include <algorithm>

#include "core/error.h"
#include "core/io/json.h"
#include "train/data/detail/normalizer.h"
#include "train/data/detail/unicode.h"

namespace ms::train::detail {
namespace {

using core::cat;
using core::Error;
using core::ErrorCode;
using nlohmann::json;

// The pattern of Llama 3 (tiktoken's cl100k_base). Qwen 2's is the same with single digits instead of up to three.
constexpr const char* kLlama3Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kQwen2Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kGpt2Pattern = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

struct Char {
  uint32_t value = 0;
  CharClass kind = CharClass::kOther;
  size_t size_bytes = 0;  // 0: end of the text
  bool is(CharClass wanted) const { return size_bytes != 0 && kind == wanted; }
  bool is_newline() const { return size_bytes != 0 && (value == '\r' || value == '\n'); }
};

Char char_at(std::string_view text, size_t at) {
  if (at >= text.size()) return {};
  const CodePoint c = decode_utf8(text.substr(at));
  return {c.value, char_class(c.value), static_cast<size_t>(c.size_bytes)};
}

// End of the run of `kind` that begins at `at`; at most `limit` characters.
size_t run_end(std::string_view text, size_t at, CharClass kind, size_t limit = SIZE_MAX) {
  for (; limit > 0; --limit) {
    const Char c = char_at(text, at);
    if (!c.is(kind)) break;
    at += c.size_bytes;
  }
  return at;
}

// 's 't 'm 'd 're 've 'll at the start, or 0. Under (?i:) the long s, U+017F, is an s.
size_t contraction(std::string_view text, bool ignore_case) {
  if (text.size() < 2 || text[0] != '\'') return 0;
  const auto letter = [&](size_t at) {
    const char c = at < text.size() ? text[at] : '\0';
    return ignore_case && c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  };
  const char first = letter(1);
  const char second = letter(2);
  if (first == 's' || first == 't' || first == 'm' || first == 'd') return 2;
  if ((first == 'r' || first == 'v') && second == 'e') return 3;
  if (first == 'l' && second == 'l') return 3;
  if (ignore_case && text.substr(1, 2) == "\xC5\xBF") return 3;
  return 0;
}

// \s+(?!\S)|\s+ : a run of white space leaves its last character to the word after it.
size_t white_space(std::string_view text) {
  size_t end = 0;
  size_t last = 0;
  for (Char c = char_at(text, 0); c.is(CharClass::kSpace); c = char_at(text, end)) {
    last = end;
    end += c.size_bytes;
  }
  return end == text.size() || last == 0 ? end : last;
}

size_t match_gpt2(std::string_view text) {
  if (const size_t size = contraction(text, false); size != 0) return size;
  const Char first = char_at(text, 0);
  if (!first.is(CharClass::kSpace)) return run_end(text, 0, first.kind);
  const Char second = char_at(text, 1);
  if (first.value == ' ' && second.size_bytes != 0 && !second.is(CharClass::kSpace)) {
    return run_end(text, 1, second.kind);
  }
  return white_space(text);
}

size_t match_llama3(std::string_view text, size_t max_digits) {
  if (const size_t size = contraction(text, true); size != 0) return size;
  const Char first = char_at(text, 0);
  if (first.is(CharClass::kLetter)) return run_end(text, 0, CharClass::kLetter);
  if (first.is(CharClass::kNumber)) return run_end(text, 0, CharClass::kNumber, max_digits);
  const Char second = char_at(text, first.size_bytes);
  if (second.is(CharClass::kLetter) && !first.is_newline()) {
    return run_end(text, first.size_bytes, CharClass::kLetter);
  }
  size_t end = 0;
  if (first.is(CharClass::kOther)) end = run_end(text, 0, CharClass::kOther);
  if (first.value == ' ' && second.is(CharClass::kOther)) end = run_end(text, 1, CharClass::kOther);
  if (end != 0) {
    while (char_at(text, end).is_newline()) ++end;
    return end;
  }
  // \s*[\r\n]+ : up to the last line end in the run of white space.
  size_t after_newline = 0;
  for (Char c = first; c.is(CharClass::kSpace); c = char_at(text, end)) {
    end += c.size_bytes;
    if (c.is_newline()) after_newline = end;
  }
  return after_newline != 0 ? after_newline : white_space(text);
}

// Digits: separates numbers from other text, each digit alone or in runs.
size_t match_digits(std::string_view text, bool each_alone) {
  if (char_at(text, 0).is(CharClass::kNumber)) return run_end(text, 0, CharClass::kNumber, each_alone ? 1 : SIZE_MAX);
  size_t end = 0;
  for (Char c = char_at(text, 0); c.size_bytes != 0 && !c.is(CharClass::kNumber); c = char_at(text, end)) {
    end += c.size_bytes;
  }
  return end;
}

// Splits at a literal text: the length of the first piece.
size_t match_literal(const std::string& literal, std::string_view text, bool joins_previous, bool joins_next) {
  const size_t found = text.find(literal, joins_next && text.starts_with(literal) ? literal.size() : 0);
  if (found == std::string_view::npos) return text.size();
  if (joins_previous) return found + literal.size();
  return found == 0 ? literal.size() : found;
}

[[noreturn]] void unsupported(const std::string& what) {
  throw Error(ErrorCode::kUnsupported,
              cat("pre_tokenizer: ", what,
                  " is not built in: known are ByteLevel, Metaspace, Digits, and Split by a literal text or by the "
                  "pattern of GPT-2, Llama 3 or Qwen 2"));
}

}  // namespace

PreTokenizer::PreTokenizer(const json& json) {
  if (!json.is_null()) add(json);
}

void PreTokenizer::add(const json& json) {
  using Kind = Step::Kind;
  const auto type = json.at("type").get<std::string>();
  if (byte_level_) unsupported(cat(type, " after ByteLevel"));
  if (type == "Sequence") {
    for (const auto& part : json.at("pretokenizers")) add(part);
  } else if (type == "ByteLevel") {
    byte_level_ = true;
    if (json.value("add_prefix_space", true)) steps_.push_back({Kind::kPrefixSpace, ""});
    if (json.value("use_regex", true)) steps_.push_back({Kind::kGpt2, ""});
  } else if (type == "Digits") {
    steps_.push_back({json.value("individual_digits", false) ? Kind::kDigit : Kind::kDigits, ""});
  } else if (type == "Split") {
    add_split(json);
  } else if (type == "Metaspace") {
    add_metaspace(json);
  } else {
    unsupported(type);
  }
}

void PreTokenizer::add_split(const json& json) {
  using Kind = Step::Kind;
  const auto& pattern = json.at("pattern");
  const auto behavior = json.at("behavior").get<std::string>();
  const bool invert = json.value("invert", false);
  const auto refuse_behavior = [&] {
    unsupported(cat("Split by ", pattern.dump(), " with behavior ", behavior, invert ? " inverted" : ""));
  };
  if (!pattern.contains("Regex")) {
    if (invert) refuse_behavior();
    const std::string literal = literal_pattern(pattern, "pre_tokenizer: Split");
    if (behavior == "Isolated") {
      steps_.push_back({Kind::kIsolated, literal});
    } else if (behavior == "MergedWithPrevious") {
      steps_.push_back({Kind::kMergedWithPrevious, literal});
    } else if (behavior == "MergedWithNext") {
      steps_.push_back({Kind::kMergedWithNext, literal});
    } else {
      refuse_behavior();
    }
    return;
  }
  // The known patterns match all of a text, so keeping only the matches gives the same words.
  if (!(behavior == "Isolated" && !invert) && !(behavior == "Removed" && invert)) refuse_behavior();
  const auto regex = pattern.at("Regex").get<std::string>();
  if (regex == kLlama3Pattern) {
    steps_.push_back({Kind::kLlama3, ""});
  } else if (regex == kQwen2Pattern) {
    steps_.push_back({Kind::kQwen2, ""});
  } else if (regex == kGpt2Pattern) {
    steps_.push_back({Kind::kGpt2, ""});
  } else {
    unsupported("the pattern " + regex);
  }
}

void PreTokenizer::add_metaspace(const json& json) {
  const auto replacement = json.at("replacement").get<std::string>();
  if (replacement.empty()) throw Error(ErrorCode::kCorruptData, "pre_tokenizer: Metaspace with an empty replacement");
  const auto scheme = json.value("prepend_scheme", json.value("add_prefix_space", true) ? "always" : "never");
  using Prepend = Step::Prepend;
  if (scheme != "always" && scheme != "first" && scheme != "never")
    unsupported("Metaspace with prepend_scheme " + scheme);
  steps_.push_back({Step::Kind::kMetaspace, replacement,
                    scheme == "always"  ? Prepend::kAlways
                    : scheme == "first" ? Prepend::kFirst
                                        : Prepend::kNever});
  if (json.value("split", true)) steps_.push_back({Step::Kind::kMergedWithNext, replacement});
}

size_t PreTokenizer::match(const Step& step, std::string_view text) {
  switch (step.kind) {
    case Step::Kind::kGpt2:
      return match_gpt2(text);
    case Step::Kind::kLlama3:
      return match_llama3(text, 3);
    case Step::Kind::kQwen2:
      return match_llama3(text, 1);
    case Step::Kind::kDigit:
      return match_digits(text, true);
    case Step::Kind::kDigits:
      return match_digits(text, false);
    case Step::Kind::kIsolated:
      return match_literal(step.text, text, false, false);
    case Step::Kind::kMergedWithPrevious:
      return match_literal(step.text, text, true, false);
    case Step::Kind::kMergedWithNext:
      return match_literal(step.text, text, false, true);
    case Step::Kind::kPrefixSpace:
    case Step::Kind::kMetaspace:
      break;  // these do not split
  }
  return text.size();
}

void PreTokenizer::split(std::string_view text, bool at_start, std::vector<std::string_view>& words,
                         std::deque<std::string>& storage) const {
  if (text.empty()) return;
  const size_t first = words.size();
  words.push_back(text);
  for (const Step& step : steps_) {
    if (step.kind == Step::Kind::kPrefixSpace) {
      for (size_t i = first; i < words.size(); ++i) {
        if (words[i].front() != ' ') words[i] = storage.emplace_back(1, ' ').append(words[i]);
      }
      continue;
    }
    if (step.kind == Step::Kind::kMetaspace) {
      for (size_t i = first; i < words.size(); ++i) {
        std::string& word = storage.emplace_back(replace_all(words[i], " ", step.text));
        const bool prepend =
            step.prepend == Step::Prepend::kAlways || (step.prepend == Step::Prepend::kFirst && at_start && i == first);
        if (prepend && !word.starts_with(step.text)) word.insert(0, step.text);
        words[i] = word;
      }
      continue;
    }
    const std::vector<std::string_view> pieces(words.begin() + static_cast<std::ptrdiff_t>(first), words.end());
    words.resize(first);
    for (std::string_view piece : pieces) {
      while (!piece.empty()) {
        const size_t size = match(step, piece);
        words.push_back(piece.substr(0, size));
        piece.remove_prefix(size);
      }
    }
  }
}

}  // namespace ms::train::detail
