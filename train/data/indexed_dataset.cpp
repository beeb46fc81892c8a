#include "train/data/indexed_dataset.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <optional>

#include "core/error.h"
#include "core/io/file.h"
#include "kernels/checksum.h"
#include "train/data/detail/mapped_file.h"

namespace ms::train {
namespace {

using core::cat;
using core::Error;
using core::ErrorCode;

constexpr std::array<char, 9> kMagic = {'M', 'M', 'I', 'D', 'I', 'D', 'X', '\0', '\0'};
constexpr int64_t kHeaderBytes = 9 + 8 + 1 + 8 + 8;

// The .idx packs its arrays without padding, so they are unaligned.
template <class T>
T load(const std::byte* at, int64_t index = 0) {
  T value;
  std::memcpy(&value, at + index * static_cast<int64_t>(sizeof(T)), sizeof(T));
  return value;
}

// Converts count tokens of type T to int32; false if one is negative or above INT32_MAX.
template <class T>
bool widen(const std::byte* from, std::span<int32_t> out) {
  bool fits = true;
  for (size_t i = 0; i < out.size(); ++i) {
    const T value = load<T>(from, static_cast<int64_t>(i));
    if constexpr (std::is_signed_v<T>) fits = fits && value >= 0;
    if constexpr (sizeof(T) > 4) fits = fits && value <= INT32_MAX;
    out[i] = static_cast<int32_t>(value);
  }
  return fits;
}

bool widen(TokenType type, const std::byte* from, std::span<int32_t> out) {
  switch (type) {
    case TokenType::kUint8:
      return widen<uint8_t>(from, out);
    case TokenType::kInt8:
      return widen<int8_t>(from, out);
    case TokenType::kInt16:
      return widen<int16_t>(from, out);
    case TokenType::kInt32:
      return widen<int32_t>(from, out);
    case TokenType::kInt64:
      return widen<int64_t>(from, out);
    case TokenType::kUint16:
      return widen<uint16_t>(from, out);
  }
  return false;
}

}  // namespace

int64_t token_size_bytes(TokenType type) {
  switch (type) {
    case TokenType::kUint8:
    case TokenType::kInt8:
      return 1;
    case TokenType::kInt16:
    case TokenType::kUint16:
      return 2;
    case TokenType::kInt32:
      return 4;
    case TokenType::kInt64:
      return 8;
  }
  MS_CHECK(false, "token type ", static_cast<int>(type));
}

std::string_view token_type_name(TokenType type) {
  switch (type) {
    case TokenType::kUint8:
      return "uint8";
    case TokenType::kInt8:
      return "int8";
    case TokenType::kInt16:
      return "int16";
    case TokenType::kInt32:
      return "int32";
    case TokenType::kInt64:
      return "int64";
    case TokenType::kUint16:
      return "uint16";
  }
  MS_CHECK(false, "token type ", static_cast<int>(type));
}

TokenType token_type_for_vocab(int64_t vocab_size) {
  return vocab_size < 65500 ? TokenType::kUint16 : TokenType::kInt32;
}

std::string bin_path(const std::string& prefix) { return prefix + ".bin"; }
std::string idx_path(const std::string& prefix) { return prefix + ".idx"; }

struct IndexedDataset::Impl {
  Impl(const std::string& dataset_prefix, bool use_mmap) : prefix(dataset_prefix), idx(idx_path(dataset_prefix)) {
    if (use_mmap) {
      mapped_bin.emplace(bin_path(prefix));
      // Check against the size of the mapping, since that is what is read.
      bin_size = static_cast<int64_t>(mapped_bin->bytes().size());
    } else {
      bin_size = core::File::open_read(bin_path(prefix)).size_bytes();
    }
    parse_header();
    check_sequences();
    check_documents();
  }

  [[noreturn]] void corrupt(const std::string& what) const {
    throw Error(ErrorCode::kCorruptData, cat(idx_path(prefix), ": ", what));
  }

  void parse_header() {
    const auto size = static_cast<int64_t>(idx.bytes().size());
    const std::byte* at = idx.bytes().data();
    if (size < kHeaderBytes) {
      corrupt(cat(size, " bytes, but the header of an indexed data set has ", kHeaderBytes, ". Is it truncated?"));
    }
    if (std::memcmp(at, kMagic.data(), kMagic.size()) != 0) {
      corrupt("does not begin with MMIDIDX: not an index of Megatron's indexed data set");
    }
    const auto version = load<uint64_t>(at + 9);
    if (version != 1) corrupt(cat("version ", version, ", expected 1"));
    const auto code = static_cast<int>(load<uint8_t>(at + 17));
    if (code == 6 || code == 7) {
      throw Error(ErrorCode::kUnsupported,
                  cat(idx_path(prefix), ": contains floating-point values (dtype code ", code, "), not token ids"));
    }
    if (code < 1 || code > 8) corrupt(cat("dtype code ", code, ", expected 1 to 5 or 8"));
    type = static_cast<TokenType>(code);
    const auto sequences = load<uint64_t>(at + 18);
    const auto entries = load<uint64_t>(at + 26);
    const auto room = static_cast<uint64_t>(size - kHeaderBytes);
    if (sequences > room / 12 || entries > (room - sequences * 12) / 8) {
      corrupt(cat(size, " bytes, too few for ", sequences, " sequences and ", entries,
                  " document indices. Is it truncated, or still being written?"));
    }
    const uint64_t rest = room - sequences * 12 - entries * 8;
    if (rest != 0 && rest == sequences) {
      throw Error(ErrorCode::kUnsupported, cat(idx_path(prefix), ": a multimodal data set (each of its ", sequences,
                                               " sequences has a mode): only text can be read"));
    }
    if (rest != 0) {
      corrupt(cat(rest, " bytes too many for ", sequences, " sequences and ", entries, " document indices"));
    }
    if (entries == 0) corrupt("no document indices: at least the final one must exist");
    num_sequences = static_cast<int64_t>(sequences);
    num_documents = static_cast<int64_t>(entries) - 1;
    lengths = at + kHeaderBytes;
    pointers = lengths + num_sequences * 4;
    documents = pointers + num_sequences * 8;
  }

  void check_sequences() {
    const int64_t token_bytes = token_size_bytes(type);
    int64_t end = 0;
    for (int64_t s = 0; s < num_sequences; ++s) {
      const auto length = load<int32_t>(lengths, s);
      const auto pointer = load<int64_t>(pointers, s);
      if (length < 0) corrupt(cat("sequence ", s, " has length ", length));
      const int64_t size = length * token_bytes;
      if (pointer < 0 || pointer > bin_size || size > bin_size - pointer) {
        corrupt(cat("sequence ", s, " of ", length, " tokens lies at byte ", pointer, ", but ", bin_path(prefix),
                    " has ", bin_size, " bytes. Is it truncated, or from another data set than the .idx?"));
      }
      end = std::max(end, pointer + size);
      num_tokens += length;
    }
    if (end != bin_size) {
      corrupt(cat("describes ", end, " bytes, but ", bin_path(prefix), " has ", bin_size,
                  ". Are the two files of one make?"));
    }
  }

  void check_documents() const {
    int64_t previous = 0;
    for (int64_t d = 0; d <= num_documents; ++d) {
      const auto first = load<int64_t>(documents, d);
      if (first < previous || first > num_sequences || (d == 0 && first != 0)) {
        corrupt(cat("document index ", d, " is ", first,
                    ": document indices must increase from 0 to the number of sequences, ", num_sequences));
      }
      previous = first;
    }
    if (previous != num_sequences) {
      corrupt(cat("the last document index is ", previous, ", but there are ", num_sequences, " sequences"));
    }
  }

  std::string prefix;
  detail::MappedFile idx;
  std::optional<detail::MappedFile> mapped_bin;
  int64_t bin_size = 0;
  TokenType type = TokenType::kUint16;
  int64_t num_sequences = 0;
  int64_t num_documents = 0;
  int64_t num_tokens = 0;
  const std::byte* lengths = nullptr;
  const std::byte* pointers = nullptr;
  const std::byte* documents = nullptr;
};

void check_data_set_exists(const std::string& prefix) {
  for (const std::string& path : {idx_path(prefix), bin_path(prefix)}) {
    std::error_code ignored;
    if (std::filesystem::exists(path, ignored)) continue;
    const std::string_view end = std::string_view(prefix).substr(prefix.size() - std::min<size_t>(prefix.size(), 4));
    throw Error(ErrorCode::kNotFound,
                cat("data set ", prefix, ": there is no ", path, ". ",
                    end == ".bin" || end == ".idx" ? "Give the prefix, without .bin or .idx"
                                                   : "Make it with msdata preprocess, which prints the prefix"));
  }
}

IndexedDataset::IndexedDataset(const std::string& prefix, bool use_mmap) {
  check_data_set_exists(prefix);
  impl_ = std::make_unique<Impl>(prefix, use_mmap);
}
IndexedDataset::~IndexedDataset() = default;
IndexedDataset::IndexedDataset(IndexedDataset&&) noexcept = default;
IndexedDataset& IndexedDataset::operator=(IndexedDataset&&) noexcept = default;

const std::string& IndexedDataset::prefix() const { return impl_->prefix; }
TokenType IndexedDataset::token_type() const { return impl_->type; }
int64_t IndexedDataset::num_sequences() const { return impl_->num_sequences; }
int64_t IndexedDataset::num_documents() const { return impl_->num_documents; }
int64_t IndexedDataset::num_tokens() const { return impl_->num_tokens; }
int64_t IndexedDataset::bin_size_bytes() const { return impl_->bin_size; }

int64_t IndexedDataset::sequence_length(int64_t sequence) const {
  MS_CHECK(sequence >= 0 && sequence < impl_->num_sequences, "sequence ", sequence);
  return load<int32_t>(impl_->lengths, sequence);
}

std::vector<int32_t> IndexedDataset::sequence_lengths(int64_t begin, int64_t end) const {
  MS_CHECK(begin >= 0 && begin <= end && end <= impl_->num_sequences, "sequences ", begin, " to ", end);
  std::vector<int32_t> out(static_cast<size_t>(end - begin));
  if (!out.empty()) std::memcpy(out.data(), impl_->lengths + begin * 4, out.size() * 4);
  return out;
}

int64_t IndexedDataset::document_index(int64_t document) const {
  MS_CHECK(document >= 0 && document <= impl_->num_documents, "document ", document);
  return load<int64_t>(impl_->documents, document);
}

uint64_t IndexedDataset::idx_hash() const {
  return kernels::xxh3(impl_->idx.bytes().data(), impl_->idx.bytes().size());
}

void IndexedDataset::read(int64_t sequence, int64_t offset, std::span<int32_t> out) const {
  const auto count = static_cast<int64_t>(out.size());
  if (sequence < 0 || sequence >= impl_->num_sequences || offset < 0 ||
      count > load<int32_t>(impl_->lengths, sequence) - offset) {
    throw Error(ErrorCode::kInvalidArgument,
                cat(impl_->prefix, ": tokens ", offset, " to ", offset + count, " of sequence ", sequence,
                    " do not exist: there are ", impl_->num_sequences, " sequences"));
  }
  const int64_t token_bytes = token_size_bytes(impl_->type);
  const int64_t at = load<int64_t>(impl_->pointers, sequence) + offset * token_bytes;
  bool fits = false;
  if (impl_->mapped_bin) {
    fits = widen(impl_->type, impl_->mapped_bin->bytes().data() + at, out);
  } else {
    std::vector<std::byte> raw(out.size() * static_cast<size_t>(token_bytes));
    // Opened for each read, as in Megatron: a blend of hundreds of data sets must not hold as many file descriptors.
    core::File::open_read(bin_path(impl_->prefix)).pread(raw, at);
    fits = widen(impl_->type, raw.data(), out);
  }
  if (!fits) {
    throw Error(ErrorCode::kCorruptData, cat(bin_path(impl_->prefix), ": sequence ", sequence,
                                             " contains a value that is not a token id (negative, or above 2^31 - 1)"));
  }
}

}  // namespace ms::train
