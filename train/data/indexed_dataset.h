// Reader and writer of Megatron's indexed data set: PREFIX.bin holds the token ids, one after another; PREFIX.idx holds
// the position of each sequence.
//
// The .idx, little-endian (megatron/core/datasets/indexed_dataset.py): "MMIDIDX\0\0", uint64 version 1, uint8 dtype
// code, uint64 sequences, uint64 n, int32 lengths[sequences] in tokens, int64 pointers[sequences] in bytes of the .bin,
// int64 document_indices[n]: the first sequence of each document and, last, the number of sequences. (A multimodal set
// has int8 modes after that, and is refused.)
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "train/data/sequence_source.h"

namespace ms::train {

// Codes in the .idx of the integer types that tokens may have.
enum class TokenType : uint8_t { kUint8 = 1, kInt8 = 2, kInt16 = 3, kInt32 = 4, kInt64 = 5, kUint16 = 8 };
int64_t token_size_bytes(TokenType type);
std::string_view token_type_name(TokenType type);
// uint16 for fewer than 65500 ids, else int32: Megatron's choice.
TokenType token_type_for_vocab(int64_t vocab_size);

std::string bin_path(const std::string& prefix);  // prefix + ".bin"
std::string idx_path(const std::string& prefix);

// Throws kNotFound, with the cure, unless both files of a data set exist.
void check_data_set_exists(const std::string& prefix);

// Reads one data set. Thread-safe after construction.
class IndexedDataset final : public SequenceSource {
 public:
  // Opens and checks both files: sizes before use, every pointer and length against the .bin, order of documents.
  // use_mmap: map the .bin; otherwise each read opens it. No file descriptor is kept open in either case.
  // Throws kNotFound (naming the missing file), kCorruptData, kUnsupported (a float dtype, a multimodal set), kIo.
  explicit IndexedDataset(const std::string& prefix, bool use_mmap = true);
  ~IndexedDataset() override;
  IndexedDataset(IndexedDataset&&) noexcept;
  IndexedDataset& operator=(IndexedDataset&&) noexcept;

  const std::string& prefix() const;
  const std::string& name() const override { return prefix(); }
  TokenType token_type() const;
  int64_t num_sequences() const;
  int64_t num_documents() const;
  int64_t num_tokens() const;
  int64_t bin_size_bytes() const;
  int64_t sequence_length(int64_t sequence) const override;  // tokens; sequence in [0, num_sequences())
  // Lengths of the sequences [begin, end). Copied, because they are unaligned in the .idx.
  std::vector<int32_t> sequence_lengths(int64_t begin, int64_t end) const;
  // First sequence of a document, for document in [0, num_documents()]; the last is num_sequences().
  int64_t document_index(int64_t document) const;
  // XXH3-64 of the whole .idx: the key of a cached sample index.
  uint64_t idx_hash() const;

  // Writes tokens [offset, offset + out.size()) of a sequence. Throws kInvalidArgument outside it, kCorruptData if a
  // token does not fit int32, kIo.
  void read(int64_t sequence, int64_t offset, std::span<int32_t> out) const override;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Writes one data set in a stream: tokens go to a temporary .bin as they arrive. Nothing appears under the final names
// until finalize(), which syncs and renames the .bin, then the .idx. Without finalize() the destructor removes what was
// written.
class IndexedDatasetBuilder {
 public:
  // max_sequence_length: longer documents become several sequences of one document, because a length is an int32.
  IndexedDatasetBuilder(std::string prefix, TokenType type, int64_t max_sequence_length = INT32_MAX);
  ~IndexedDatasetBuilder();
  IndexedDatasetBuilder(const IndexedDatasetBuilder&) = delete;
  IndexedDatasetBuilder& operator=(const IndexedDatasetBuilder&) = delete;

  // A document without tokens has no sequence but is counted. sequence_lengths: the lengths of the sequences into which
  // the document is divided; they add up to its tokens, and those of length 0 are left out. Default: one sequence.
  // Throws kInvalidArgument for an id that does not fit the type, kIo.
  void add_document(std::span<const int32_t> tokens, std::span<const int64_t> sequence_lengths);
  void add_document(std::span<const int32_t> tokens);
  void finalize();

  int64_t num_documents() const;
  int64_t num_tokens() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ms::train
