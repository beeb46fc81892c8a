#include "train/data/data_config.h"

#include <sstream>

#include "core/error.h"
#include "core/io/file.h"
#include "core/io/json.h"
#include "train/data/build_datasets.h"

namespace ms::train {
namespace {

using core::cat;
using core::Error;
using core::ErrorCode;
using nlohmann::json;

constexpr int64_t kMaxListBytes = int64_t{1} << 28;

std::vector<std::string> words(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> out;
  for (std::string word; in >> word;) out.push_back(word);
  return out;
}

// One split of --per-split-data-args-path: a string of words, or a list whose weights may be numbers.
std::vector<std::string> split_list(const json& value, const std::string& where) {
  if (value.is_null()) return {};
  if (value.is_string()) return words(value.get<std::string>());
  const auto fail = [&] {
    throw Error(ErrorCode::kCorruptData, cat(where, " is ", value.dump(), ": expected a list of weights and prefixes"));
  };
  if (!value.is_array()) fail();
  std::vector<std::string> out;
  for (const json& element : value) {
    if (!element.is_string() && !element.is_number()) fail();
    out.push_back(element.is_string() ? element.get<std::string>() : element.dump());
  }
  return out;
}

}  // namespace

DataLists list_data_sets(const DataConfig& config) {
  DataLists lists{config.data_path, {config.train_data_path, config.valid_data_path, config.test_data_path}};
  if (!config.data_args_path.empty()) {
    if (!lists.data_path.empty()) {
      throw Error(ErrorCode::kInvalidArgument, "--data-args-path and --data-path both list the data: give one of them");
    }
    lists.data_path = words(core::read_text(config.data_args_path, kMaxListBytes));
    if (lists.data_path.empty()) {
      throw Error(ErrorCode::kInvalidArgument, cat("--data-args-path ", config.data_args_path, " lists no data set"));
    }
  }
  if (const std::string& path = config.per_split_data_args_path; !path.empty()) {
    for (const auto& list : lists.per_split) {
      if (list.empty()) continue;
      throw Error(ErrorCode::kInvalidArgument,
                  "--per-split-data-args-path replaces --train-data-path, --valid-data-path and --test-data-path: give "
                  "one or the other");
    }
    const json object =
        core::parse_json(core::read_text(path, kMaxListBytes), cat("--per-split-data-args-path ", path));
    if (!object.is_object()) {
      throw Error(ErrorCode::kCorruptData, cat("--per-split-data-args-path ", path, ": expected an object"));
    }
    for (const auto& [key, value] : object.items()) {
      const std::array<const char*, 3> names = {"train", "valid", "test"};
      const auto at = std::find(names.begin(), names.end(), key);
      if (at == names.end()) {
        throw Error(ErrorCode::kCorruptData, cat("--per-split-data-args-path ", path, ": the key \"", key,
                                                 "\" is not one of train, valid and test"));
      }
      lists.per_split[static_cast<size_t>(at - names.begin())] = split_list(value, cat(path, ": \"", key, "\""));
    }
  }
  return lists;
}

void DataConfig::validate() const {
  const DataLists lists = list_data_sets(*this);
  const bool separate =
      std::any_of(lists.per_split.begin(), lists.per_split.end(), [](auto& list) { return !list.empty(); });
  if (mock_data && (separate || !lists.data_path.empty())) {
    throw Error(ErrorCode::kInvalidArgument,
                "--mock-data needs no data: leave out --data-path (--data-args-path), --train-data-path, "
                "--valid-data-path and --test-data-path (--per-split-data-args-path)");
  }
  if (separate && !lists.data_path.empty()) {
    throw Error(ErrorCode::kInvalidArgument,
                "--data-path (--data-args-path) excludes --train-data-path, --valid-data-path and --test-data-path "
                "(--per-split-data-args-path): use the first, with --split, or the others");
  }
  if (separate && !has_default_split()) {
    throw Error(
        ErrorCode::kInvalidArgument,
        cat("--split ", split,
            " divides --data-path; with --train-data-path, --valid-data-path or --test-data-path do not give it"));
  }
  if (!split.empty()) parse_split(split);
  parse_blend(lists.data_path, "--data-path");
  parse_blend(lists.per_split[0], "--train-data-path");
  parse_blend(lists.per_split[1], "--valid-data-path");
  parse_blend(lists.per_split[2], "--test-data-path");
}

TokenizerChoice DataConfig::tokenizer(int64_t vocab_size) const {
  // Megatron's pretrain_gpt.py uses GPT2BPETokenizer for these files unless told otherwise.
  const bool by_files = tokenizer_type == DataConfig{}.tokenizer_type && !vocab_file.empty() && !merge_file.empty();
  return {by_files ? "GPT2BPETokenizer" : tokenizer_type,
          tokenizer_model,
          vocab_file,
          merge_file,
          vocab_size,
          vocab_extra_ids};
}

}  // namespace ms::train
