#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <numeric>

#include "core/error.h"
#include "core/io/file.h"
#include "train/data/indexed_dataset.h"

namespace ms::train {
namespace {

using core::cat;
using core::Error;
using core::ErrorCode;

constexpr size_t kBufferBytes = size_t{4} << 20;

// Collects bytes and writes them to a file in large pieces.
class BufferedFile {
 public:
  explicit BufferedFile(const std::string& path) : file_(core::File::create(path)) { buffer_.reserve(kBufferBytes); }

  std::vector<std::byte>& room(size_t size_bytes) {
    if (buffer_.size() + size_bytes > kBufferBytes) flush();
    return buffer_;
  }
  template <class T>
  void put(T value) {
    std::vector<std::byte>& to = room(sizeof(T));
    const auto* at = reinterpret_cast<const std::byte*>(&value);
    to.insert(to.end(), at, at + sizeof(T));
  }
  void finish() {
    flush();
    file_.fsync();
    file_.close();
  }

 private:
  void flush() {
    file_.pwrite(buffer_, offset_);
    offset_ += static_cast<int64_t>(buffer_.size());
    buffer_.clear();
  }
  core::File file_;
  std::vector<std::byte> buffer_;
  int64_t offset_ = 0;
};

template <class T>
void put_tokens(std::span<const int32_t> tokens, BufferedFile& file) {
  constexpr size_t kPiece = kBufferBytes / 16;
  while (!tokens.empty()) {
    const std::span<const int32_t> piece = tokens.first(std::min(kPiece, tokens.size()));
    std::vector<std::byte>& to = file.room(piece.size() * sizeof(T));
    size_t at = to.size();
    to.resize(at + piece.size() * sizeof(T));
    for (const int32_t token : piece) {
      const T value = static_cast<T>(token);
      std::memcpy(to.data() + at, &value, sizeof(T));
      at += sizeof(T);
    }
    tokens = tokens.subspan(piece.size());
  }
}

}  // namespace

struct IndexedDatasetBuilder::Impl {
  Impl(std::string p, TokenType t, int64_t max)
      : prefix(std::move(p)),
        type(t),
        max_sequence_length(max),
        temporary_bin(cat(bin_path(prefix), ".tmp-", ::getpid())),
        temporary_idx(cat(idx_path(prefix), ".tmp-", ::getpid())),
        bin(temporary_bin) {}

  std::string prefix;
  TokenType type;
  int64_t max_sequence_length;
  std::string temporary_bin, temporary_idx;
  BufferedFile bin;
  std::vector<int32_t> lengths;
  std::vector<int64_t> documents{0};
  int64_t num_tokens = 0;
  bool finished = false;
};

IndexedDatasetBuilder::IndexedDatasetBuilder(std::string prefix, TokenType type, int64_t max_sequence_length) {
  MS_CHECK(type == TokenType::kUint16 || type == TokenType::kInt32, "type ", token_type_name(type));
  MS_CHECK(max_sequence_length > 0 && max_sequence_length <= INT32_MAX, "max_sequence_length ", max_sequence_length);
  impl_ = std::make_unique<Impl>(std::move(prefix), type, max_sequence_length);
}

IndexedDatasetBuilder::~IndexedDatasetBuilder() {
  if (impl_->finished) return;
  ::unlink(impl_->temporary_bin.c_str());
  ::unlink(impl_->temporary_idx.c_str());
}

void IndexedDatasetBuilder::add_document(std::span<const int32_t> tokens) {
  const auto length = static_cast<int64_t>(tokens.size());
  add_document(tokens, {&length, 1});
}

void IndexedDatasetBuilder::add_document(std::span<const int32_t> tokens, std::span<const int64_t> sequence_lengths) {
  MS_CHECK(!impl_->finished, "add_document after finalize");
  MS_CHECK(std::accumulate(sequence_lengths.begin(), sequence_lengths.end(), int64_t{0}) ==
               static_cast<int64_t>(tokens.size()),
           "sequences ", sequence_lengths, " of a document of ", tokens.size(), " tokens");
  const int32_t last = impl_->type == TokenType::kUint16 ? UINT16_MAX : INT32_MAX;
  for (const int32_t token : tokens) {
    if (token < 0 || token > last) {
      throw Error(ErrorCode::kInvalidArgument, cat("token id ", token, " does not fit ", token_type_name(impl_->type)));
    }
  }
  if (impl_->type == TokenType::kUint16) {
    put_tokens<uint16_t>(tokens, impl_->bin);
  } else {
    put_tokens<int32_t>(tokens, impl_->bin);
  }
  impl_->num_tokens += static_cast<int64_t>(tokens.size());
  for (const int64_t length : sequence_lengths) {
    for (int64_t rest = length; rest > 0; rest -= impl_->lengths.back()) {
      impl_->lengths.push_back(static_cast<int32_t>(std::min(rest, impl_->max_sequence_length)));
    }
  }
  impl_->documents.push_back(static_cast<int64_t>(impl_->lengths.size()));
}

void IndexedDatasetBuilder::finalize() {
  MS_CHECK(!impl_->finished, "finalize twice");
  impl_->bin.finish();
  BufferedFile idx(impl_->temporary_idx);
  for (const char c : {'M', 'M', 'I', 'D', 'I', 'D', 'X', '\0', '\0'}) idx.put(c);
  idx.put(uint64_t{1});
  idx.put(static_cast<uint8_t>(impl_->type));
  idx.put(static_cast<uint64_t>(impl_->lengths.size()));
  idx.put(static_cast<uint64_t>(impl_->documents.size()));
  for (const int32_t length : impl_->lengths) idx.put(length);
  int64_t pointer = 0;
  for (const int32_t length : impl_->lengths) {
    idx.put(pointer);
    pointer += length * token_size_bytes(impl_->type);
  }
  for (const int64_t first : impl_->documents) idx.put(first);
  idx.finish();
  // An old .idx must never exist beside the new .bin: remove it first, and rename the new one last.
  std::error_code ignored;
  std::filesystem::remove(idx_path(impl_->prefix), ignored);
  core::rename_durably(impl_->temporary_bin, bin_path(impl_->prefix));
  core::rename_durably(impl_->temporary_idx, idx_path(impl_->prefix));
  impl_->finished = true;
}

int64_t IndexedDatasetBuilder::num_documents() const { return static_cast<int64_t>(impl_->documents.size()) - 1; }
int64_t IndexedDatasetBuilder::num_tokens() const { return impl_->num_tokens; }
}  // namespace ms::train
