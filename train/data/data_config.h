// The flags that select data sets and tokenizer, under Megatron's names (megatron/training/arguments.py,
// _add_data_args).
#pragma once

#include <string>
#include <vector>

#include "train/data/tokenizer.h"

namespace ms::train {

struct DataConfig {
  static constexpr const char* kDefaultSplit = "969,30,1";  // Megatron's default for --data-path

  std::vector<std::string> data_path;
  std::string split;  // empty: kDefaultSplit
  std::vector<std::string> train_data_path;
  std::vector<std::string> valid_data_path;
  std::vector<std::string> test_data_path;
  std::string data_args_path;
  std::string per_split_data_args_path;
  std::string data_cache_path;
  std::string tokenizer_type = "ByteLevelTokenizer";
  std::string tokenizer_model;
  std::string vocab_file;
  std::string merge_file;
  int64_t vocab_extra_ids = 0;
  bool eod_mask_loss = false;
  bool mock_data = false;
  bool mmap_bin_files = true;

  template <class Visitor>
  static void fields(Visitor&& field) {
    using C = DataConfig;
    field("data_path", &C::data_path,
          "Data sets as prefixes of .bin/.idx: P, or weight1 P1 weight2 P2.., or P1 P2.. (weighted by length); -: "
          "read from stdin");
    field("split", &C::split, "Shares of the documents of --data-path for training, validation and test (969,30,1)");
    field("train_data_path", &C::train_data_path,
          "Training data sets, written as for --data-path; excludes --data-path and --split");
    field("valid_data_path", &C::valid_data_path,
          "Validation data sets, written as for --data-path; excludes --data-path and --split");
    field("test_data_path", &C::test_data_path,
          "Test data sets, written as for --data-path; excludes --data-path and --split");
    field("data_args_path", &C::data_args_path, "File that contains the list for --data-path; for long lists");
    field("per_split_data_args_path", &C::per_split_data_args_path,
          "JSON file whose \"train\", \"valid\" and \"test\" contain the lists for the three flags above");
    field("data_cache_path", &C::data_cache_path,
          "Folder of the cached sample indices; empty: <prefix>/cache/GPTDataset_indices");
    field("tokenizer_type", &C::tokenizer_type,
          "ByteLevelTokenizer, GPT2BPETokenizer, SentencePieceTokenizer, GPTSentencePieceTokenizer, "
          "Llama2Tokenizer, HuggingFaceTokenizer (PretrainedFromHF), or NullTokenizer; must be the one that made "
          "the data");
    field("tokenizer_model", &C::tokenizer_model, "tokenizer.json or a SentencePiece .model, or its folder");
    field("vocab_file", &C::vocab_file,
          "vocab.json of GPT2BPETokenizer, which is the default type if this and --merge-file are given");
    field("merge_file", &C::merge_file, "merges.txt of GPT2BPETokenizer");
    field("vocab_extra_ids", &C::vocab_extra_ids,
          "Number of <extra_id_N> tokens that SentencePieceTokenizer adds to its vocabulary");
    field("eod_mask_loss", &C::eod_mask_loss, "Ignore the loss where the input is the end-of-document token");
    field("mock_data", &C::mock_data,
          "Train on made-up documents that need no file: tokens count up to 4094, --seed shuffles them; a third each "
          "for training, validation and test, whatever --split says. For tests of layout, memory and speed");
    field("mmap_bin_files", &C::mmap_bin_files,
          "Map the .bin files into memory; off: read them in pieces, for file systems that map slowly");
  }

  // True if train, validation or test data have paths of their own.
  bool has_separate_paths() const {
    return !train_data_path.empty() || !valid_data_path.empty() || !test_data_path.empty() ||
           !per_split_data_args_path.empty();
  }
  bool has_default_split() const { return split.empty() || split == kDefaultSplit; }

  // Cross-field rules; throws kInvalidArgument naming the flags, and what list_data_sets() throws, whose files it
  // reads.
  void validate() const;

  // vocab_size: --vocab-size, which the NullTokenizer needs.
  TokenizerChoice tokenizer(int64_t vocab_size) const;
};

}  // namespace ms::train
