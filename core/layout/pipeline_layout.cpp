#include "core/layout/pipeline_layout.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <string>

#include "core/error.h"

namespace ms::layout {
namespace {

constexpr size_t kMaxLetters = size_t{1} << 16;

template <class... Parts>
[[noreturn]] void refuse(std::string_view layout, const Parts&... parts) {
  constexpr size_t kShown = 80;
  throw core::Error(core::ErrorCode::kInvalidArgument,
                    core::cat("--pipeline-model-parallel-layout \"", layout.substr(0, kShown),
                              layout.size() > kShown ? ".." : "", "\": ", parts...));
}

// The text without repetitions and commas.
class Expansion {
 public:
  explicit Expansion(std::string_view text) : text_(text) {}

  std::string run() {
    std::string letters = sequence();
    if (at_ < text_.size()) refuse(text_, "a ) at character ", at_ + 1, " closes nothing");
    return letters;
  }

 private:
  // Up to the end, or to a ) that is left unread.
  std::string sequence() {
    std::string letters;
    while (at_ < text_.size() && text_[at_] != ')') {
      if (text_[at_] == ',' || text_[at_] == ' ') {
        ++at_;
        continue;
      }
      const std::string part = item();
      const size_t times = repetitions();
      if (part.size() * times > kMaxLetters - letters.size())
        refuse(text_, "more than ", kMaxLetters, " layers and stages");
      for (size_t i = 0; i < times; ++i) letters += part;
    }
    return letters;
  }

  std::string item() {
    const char letter = text_[at_++];
    if (letter != '(') {
      if (std::string_view("Etm|L").find(letter) == std::string_view::npos)
        refuse(text_, "character ", at_, " is none of E, t, m, L, |, ( and )");
      return {letter};
    }
    const size_t begin = at_;
    if (++depth_ > kMaxDepth) refuse(text_, "more than ", kMaxDepth, " parentheses within each other");
    std::string inside = sequence();
    --depth_;
    if (at_ == text_.size()) refuse(text_, "the ( at character ", begin, " is not closed");
    ++at_;
    return inside;
  }

  // "*n"; 1 without.
  size_t repetitions() {
    if (at_ == text_.size() || text_[at_] != '*') return 1;
    const char* begin = text_.data() + at_ + 1;
    size_t times = 0;
    const auto [end, fault] = std::from_chars(begin, text_.data() + text_.size(), times);
    if (fault == std::errc::invalid_argument) refuse(text_, "no number after the * at character ", at_ + 1);
    if (fault != std::errc() || times > kMaxLetters) refuse(text_, "more than ", kMaxLetters, " layers and stages");
    at_ = static_cast<size_t>(end - text_.data());
    return times;
  }

  static constexpr int kMaxDepth = 8;
  std::string_view text_;
  size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace

PipelineLayout parse_pipeline_layout(std::string_view text) {
  const std::string letters = Expansion(text).run();
  PipelineLayout layout{{0}, {0}};
  std::string held;  // in order, without stages
  for (const char letter : letters) {
    if (letter == '|') {
      layout.layers.push_back(0);
      layout.mtp_layers.push_back(0);
      continue;
    }
    held += letter;
    if (letter == 't') ++layout.layers.back();
    if (letter == 'm') ++layout.mtp_layers.back();
  }
  if (letters.empty() || letters.front() != 'E') refuse(text, "the first stage must begin with the embedding, E");
  if (letters.back() != 'L') refuse(text, "the last stage must end with the loss, L");
  for (const char once : {'E', 'L'}) {
    if (std::count(held.begin(), held.end(), once) != 1) refuse(text, once, " may stand there only once");
  }
  if (const size_t mtp = held.find('m'); mtp != std::string::npos && held.find('t', mtp) != std::string::npos)
    refuse(text, "layers (t) come before those of multi-token prediction (m)");
  return layout;
}

}  // namespace ms::layout
