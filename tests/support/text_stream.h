// A text as a stream of bytes, in reads or loans of at most `piece` bytes; several readers at once, like a file.
#pragma once

#include <algorithm>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "profile/ingest/byte_stream.h"

namespace ms::test {

class TextStream final : public profile::ByteStream {
 public:
  explicit TextStream(std::string_view text, size_t piece = SIZE_MAX, bool lends = false)
      : text_(text), piece_(piece), lends_(lends) {}

  size_t read(char* out, size_t size) override {
    const size_t n = std::min({size, piece_, text_.size() - at_});
    text_.substr(at_).copy(out, n);
    at_ += n;
    return n;
  }
  bool lends() const override { return lends_; }
  // Each loan has its own memory, so that sanitizers detect use after it was given back.
  std::span<char> lend() override {
    const size_t n = std::min(piece_, text_.size() - at_);
    if (n == 0) return {};
    loan_ = std::vector<char>(kBefore + n + kBehind);
    return {loan_.data() + kBefore, read(loan_.data() + kBefore, n)};
  }
  int64_t size() const override { return static_cast<int64_t>(text_.size()); }
  std::unique_ptr<profile::ByteStream> from(int64_t offset) const override {
    auto out = std::make_unique<TextStream>(text_, piece_, lends_);
    out->at_ = std::min(static_cast<size_t>(offset), text_.size());
    return out;
  }

 private:
  std::string_view text_;
  size_t piece_;
  bool lends_;
  size_t at_ = 0;
  std::vector<char> loan_;
};

}  // namespace ms::test
