#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>

#include "convert/detail/transposed.h"
#include "convert/huggingface.h"
#include "convert/name_map.h"
#include "convert/safetensors.h"
#include "core/error.h"
#include "core/io/file.h"

namespace ms::convert {
namespace {

namespace fs = std::filesystem;
using core::cat;
using core::Error;
using core::ErrorCode;
using nlohmann::json;

bool is_model_file(const std::string& name) {
  return name.starts_with("model") && (name.ends_with(".safetensors") || name.ends_with(".safetensors.index.json"));
}

bool is_tokenizer_file(const std::string& name) {
  static constexpr std::array<std::string_view, 5> kNames = {"special_tokens_map.json", "added_tokens.json",
                                                             "merges.txt", "vocab.json", "chat_template.json"};
  return name.starts_with("tokenizer") || name.ends_with(".model") || name.ends_with(".jinja") ||
         std::find(kNames.begin(), kNames.end(), name) != kNames.end();
}

std::string shard_name(size_t index, size_t count) {
  if (count == 1) return "model.safetensors";
  const auto five = [](size_t number) {
    const std::string digits = std::to_string(number);
    return std::string(5 - std::min<size_t>(5, digits.size()), '0') + digits;
  };
  return cat("model-", five(index + 1), "-of-", five(count), ".safetensors");
}

class HuggingFaceSink : public ckpt::Sink {
 public:
  explicit HuggingFaceSink(HfSinkOptions options);
  ~HuggingFaceSink() override;

  void begin(const ckpt::CheckpointInfo& info, const ckpt::ShardTable& targets) override;
  void write(int32_t target, int64_t first, int64_t count, const std::byte* data) override;
  // Whole rows, where a row is not larger than a chunk: a transposed matrix takes them as columns.
  int64_t chunk_elements(const core::ShardedTensor& target) const override {
    return detail::chunk_of_whole_rows(target, ckpt::Sink::chunk_elements(target));
  }
  std::filesystem::path commit() override;

 private:
  struct OutputFile {
    std::string name;
    std::vector<SafetensorsEntry> entries;
    std::vector<size_t> tensors;  // of entries: index into the order of the state_dict
    int64_t data_bytes = 0;
    core::File file;

    void add(SafetensorsEntry entry, size_t tensor, int64_t size_bytes) {
      entries.push_back(std::move(entry));
      tensors.push_back(tensor);
      data_bytes += size_bytes;
    }
  };
  struct Placement {
    size_t file = 0;
    int64_t offset_bytes = 0;
    int64_t transposed_columns = 0;  // of the stored matrix; 0: it is stored as we have it
  };
  std::string path_of(const std::string& name) const { return (folder_ / name).string(); }
  std::string temporary_of(const std::string& name) const { return cat(path_of(name), ".tmp-", ::getpid()); }
  void copy_tokenizer_files() const;
  json index() const;

  HfSinkOptions options_;
  fs::path folder_;
  bool made_folder_ = false;
  bool committed_ = false;
  std::vector<OutputFile> files_;
  std::vector<Placement> placements_;  // of the targets
  std::vector<int64_t> item_sizes_;    // of the targets
  std::vector<int64_t> row_elements_;  // of the targets
};

HuggingFaceSink::HuggingFaceSink(HfSinkOptions options) : options_(std::move(options)), folder_(options_.folder) {
  if (options_.max_shard_size_bytes < 1) {
    throw Error(ErrorCode::kInvalidArgument,
                cat("--max-shard-size ", options_.max_shard_size_bytes, ": must be positive"));
  }
  if (!fs::exists(folder_)) return;
  if (!fs::is_directory(folder_)) throw Error(ErrorCode::kInvalidArgument, cat(folder_.string(), " is not a folder"));
  for (const auto& entry : fs::directory_iterator(folder_)) {
    const std::string name = entry.path().filename().string();
    if (is_model_file(name)) {
      throw Error(ErrorCode::kInvalidArgument,
                  cat(folder_.string(), " holds a model already (", name, "); give a new folder"));
    }
  }
}

HuggingFaceSink::~HuggingFaceSink() {
  if (committed_) return;
  std::error_code ignored;
  for (const OutputFile& file : files_) {
    if (!file.name.empty()) fs::remove(temporary_of(file.name), ignored);
  }
  if (made_folder_) fs::remove(folder_, ignored);  // only if empty
}

void HuggingFaceSink::begin(const ckpt::CheckpointInfo& info, const ckpt::ShardTable& targets) {
  // As huggingface_hub splits (serialization/_base.py), so that the same files come out: greedily, in the order of the
  // state_dict; a tensor above the limit goes into a file of its own, which does not close the one being filled.
  const Family& family =
      options_.family != nullptr ? *options_.family : find_family(options_.config.at("model_type").get<std::string>());
  size_t next = 0;
  size_t number = 0;
  std::vector<std::vector<std::pair<size_t, Placement>>> pieces;  // by tensor: target, place within the tensor
  OutputFile current;
  for_each_tensor(family, info.model, [&](const MappedTensor& mapped) {
    SafetensorsEntry entry{mapped.name};
    entry.shape.assign(mapped.shape.begin(), mapped.shape.end());
    pieces.emplace_back();
    for (const TensorPiece& piece : mapped.pieces) {
      MS_CHECK(next < targets.size(), "targets end before ", mapped.name);
      const core::ShardedTensor target = targets[next];
      MS_CHECK(target.key == mapped.key && target.role == mapped.role && target.global_offset == piece.offset &&
                   target.local_shape == piece.extent,
               "target ", next, " is not the piece of ", mapped.name);
      entry.dtype = from_core_dtype(target.dtype);
      const int64_t item = core::size_of(target.dtype);
      row_elements_.push_back(core::num_elements(piece.extent) / piece.extent[0]);
      item_sizes_.push_back(item);
      const int64_t step = mapped.transposed ? item : row_elements_.back() * item;  // between rows of a piece
      pieces.back().emplace_back(next, Placement{0, piece.row * step, mapped.transposed ? mapped.shape[1] : 0});
      ++next;
    }
    const auto size = static_cast<int64_t>(entry.size_bytes());
    if (size > options_.max_shard_size_bytes) {
      OutputFile& alone = files_.emplace_back();
      alone.add(std::move(entry), number++, size);
      return;
    }
    if (current.data_bytes + size > options_.max_shard_size_bytes) {
      files_.push_back(std::move(current));
      current = OutputFile();
    }
    current.add(std::move(entry), number++, size);
  });
  if (!current.entries.empty()) files_.push_back(std::move(current));
  MS_CHECK(next == targets.size(), "more targets than the model has pieces");

  made_folder_ = fs::create_directories(folder_);
  placements_.resize(targets.size());
  for (size_t f = 0; f < files_.size(); ++f) {
    OutputFile& out = files_[f];
    out.name = shard_name(f, files_.size());
    const SafetensorsPreamble preamble = make_safetensors_preamble(out.entries, {{"format", "pt"}});
    out.file = core::File::create(temporary_of(out.name));
    out.file.preallocate(static_cast<int64_t>(preamble.file_size_bytes));
    out.file.pwrite(std::as_bytes(std::span(preamble.bytes)), 0);
    for (size_t e = 0; e < out.entries.size(); ++e) {
      for (const auto& [target, place] : pieces[out.tensors[e]]) {
        placements_[target] = place;
        placements_[target].file = f;
        placements_[target].offset_bytes += static_cast<int64_t>(preamble.data_offsets[e]);
      }
    }
  }
}

void HuggingFaceSink::write(int32_t target, int64_t first, int64_t count, const std::byte* data) {
  const Placement& place = placements_.at(static_cast<size_t>(target));
  const int64_t item = item_sizes_[static_cast<size_t>(target)];
  core::File& file = files_[place.file].file;
  const int64_t columns = row_elements_[static_cast<size_t>(target)];
  if (place.transposed_columns > 0) {
    detail::put_transposed(
        data, item, columns, first, count, place.transposed_columns,
        [&](int64_t offset, std::span<const std::byte> run) { file.pwrite(run, place.offset_bytes + offset); });
    return;
  }
  file.pwrite(std::span(data, static_cast<size_t>(count * item)), place.offset_bytes + first * item);
}

void HuggingFaceSink::copy_tokenizer_files() const {
  if (options_.copy_from.empty()) return;
  core::confine_reads(options_.copy_from);
  for (const auto& entry : fs::directory_iterator(options_.copy_from)) {
    const std::string name = entry.path().filename().string();
    if (!entry.is_regular_file() || !is_tokenizer_file(name)) continue;
    core::write_text_atomically(path_of(name), core::read_text(entry.path().string(), 256 << 20));
  }
}

json HuggingFaceSink::index() const {
  int64_t bytes = 0, elements = 0;
  json weight_map = json::object();
  for (const OutputFile& file : files_) {
    bytes += file.data_bytes;
    for (const SafetensorsEntry& entry : file.entries) {
      weight_map[entry.name] = file.name;
      elements += core::num_elements(core::Dims(entry.shape.begin(), entry.shape.end()));
    }
  }
  return {{"metadata", {{"total_parameters", elements}, {"total_size", bytes}}}, {"weight_map", weight_map}};
}

std::filesystem::path HuggingFaceSink::commit() {
  for (OutputFile& out : files_) out.file.fsync();
  core::write_text_atomically(path_of("config.json"), hf_json_text(options_.config));
  if (options_.generation_config.is_object()) {
    core::write_text_atomically(path_of("generation_config.json"), hf_json_text(options_.generation_config));
  }
  copy_tokenizer_files();
  for (OutputFile& out : files_) {
    out.file.close();
    core::rename_durably(temporary_of(out.name), path_of(out.name));
  }
  if (files_.size() > 1) core::write_text_atomically(path_of("model.safetensors.index.json"), hf_json_text(index()));
  committed_ = true;
  return folder_;
}

}  // namespace

std::vector<core::ShardedTensor> hf_targets(const Family& family, const core::TransformerConfig& model,
                                            const std::function<core::DType(const std::string& key)>& dtype) {
  std::vector<core::ShardedTensor> targets;
  for_each_tensor(family, model, [&](const MappedTensor& mapped) {
    for (const TensorPiece& piece : mapped.pieces) {
      targets.push_back({mapped.key, mapped.role, dtype(mapped.key), mapped.global_shape, piece.offset, piece.extent});
    }
  });
  return targets;
}

std::unique_ptr<ckpt::Sink> make_hf_sink(HfSinkOptions options) {
  return std::make_unique<HuggingFaceSink>(std::move(options));
}

}  // namespace ms::convert
