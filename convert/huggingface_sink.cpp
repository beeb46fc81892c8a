#include <algorithm>
#include <array>
#include <filesystem>

#include "convert/detail/transposed.h"
#include "convert/hf_split.h"
#include "convert/huggingface.h"
#include "convert/name_map.h"
#include "convert/placed_result.h"
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

class HuggingFaceSink : public ckpt::Sink {
 public:
  explicit HuggingFaceSink(HfSinkOptions options);

  void begin(const ckpt::CheckpointInfo& info, const ckpt::ShardTable& targets) override;
  void write(int32_t target, int64_t first, int64_t count, const std::byte* data) override;
  int64_t page_offset(int32_t target, int64_t first) override {
    const Placement& place = placements_[static_cast<size_t>(target)];
    return (place.offset_bytes + first * item_sizes_[static_cast<size_t>(target)]) % core::kDirectAlignment;
  }
  bool keep(int32_t target, int64_t first, int64_t count, std::byte* scratch) override;
  // Whole rows, unless a row exceeds a chunk: a transposed matrix receives them as columns.
  int64_t chunk_elements(const core::ShardedTensor& target) const override {
    return detail::chunk_of_whole_rows(target, ckpt::Sink::chunk_elements(target));
  }
  std::filesystem::path commit() override;

 private:
  struct OutputFile {
    std::string name;
    std::vector<SafetensorsEntry> entries;
    std::vector<size_t> tensors;  // entries, as indices into the order of the state_dict
    int64_t data_bytes = 0;
    std::string preamble;

    void add(SafetensorsEntry entry, size_t tensor, int64_t size_bytes) {
      entries.push_back(std::move(entry));
      tensors.push_back(tensor);
      data_bytes += size_bytes;
    }
  };
  struct Placement {
    size_t file = 0;
    int64_t offset_bytes = 0;
    int64_t transposed_columns = 0;  // of the stored matrix; 0: not transposed
  };
  void refuse_existing_model() const;
  void split(std::vector<SafetensorsEntry> entries);
  void copy_tokenizer_files();
  json index() const;

  HfSinkOptions options_;
  fs::path folder_;
  PlacedResult result_;
  std::vector<OutputFile> files_;
  std::vector<Placement> placements_;  // one per target
  std::vector<int64_t> item_sizes_;    // one per target
  std::vector<int64_t> row_elements_;  // one per target
};

HuggingFaceSink::HuggingFaceSink(HfSinkOptions options)
    : options_(std::move(options)), folder_(options_.folder), result_(folder_, options_.writing) {
  if (options_.max_shard_size_bytes.value_or(1) < 1) {
    throw Error(ErrorCode::kInvalidArgument,
                cat("--max-shard-size ", *options_.max_shard_size_bytes, ": must be positive"));
  }
  refuse_existing_model();
}

void HuggingFaceSink::refuse_existing_model() const {
  if (!fs::exists(folder_)) return;
  if (!fs::is_directory(folder_)) throw Error(ErrorCode::kInvalidArgument, cat(folder_.string(), " is not a folder"));
  for (const auto& entry : fs::directory_iterator(folder_)) {
    const std::string name = entry.path().filename().string();
    if (is_model_file(name)) {
      throw Error(ErrorCode::kInvalidArgument,
                  cat(folder_.string(), " already contains a model (", name, "); give a new folder"));
    }
  }
}

// Splits as requested; else like the folder that came with the model, or by size.
void HuggingFaceSink::split(std::vector<SafetensorsEntry> entries) {
  std::vector<std::string> names;
  std::vector<int64_t> sizes;
  for (const SafetensorsEntry& entry : entries) {
    names.push_back(entry.name);
    sizes.push_back(static_cast<int64_t>(entry.size_bytes()));
  }
  std::optional<HfSplit> split;
  if (!options_.max_shard_size_bytes) split = split_of_index(options_.copy_from, names, kHfSafetensors);
  if (!split) split = split_by_size(sizes, options_.max_shard_size_bytes.value_or(kHfShardBytes), kHfSafetensors);
  files_.resize(split->files.size());
  for (size_t f = 0; f < files_.size(); ++f) files_[f].name = split->files[f];
  for (size_t t = 0; t < entries.size(); ++t) files_[split->file_of[t]].add(std::move(entries[t]), t, sizes[t]);
}

void HuggingFaceSink::begin(const ckpt::CheckpointInfo& info, const ckpt::ShardTable& targets) {
  const std::shared_ptr<const Family> family = family_of_result(options_.config, info.model_extra, options_.family);
  size_t next = 0;
  std::vector<SafetensorsEntry> entries;                          // in the order of the state_dict
  std::vector<std::vector<std::pair<size_t, Placement>>> pieces;  // per entry: target, place within the tensor
  for_each_tensor(*family, info.model, [&](const MappedTensor& mapped) {
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
      const int64_t step = mapped.transposed ? item : row_elements_.back() * item;  // distance between rows of a piece
      pieces.back().emplace_back(next, Placement{0, piece.row * step, mapped.transposed ? mapped.shape[1] : 0});
      ++next;
    }
    entries.push_back(std::move(entry));
  });
  for (; next < targets.size(); ++next) {  // passthrough tensors
    const core::ShardedTensor target = targets[next];
    MS_CHECK(target.local_shape == target.global_shape, "target ", next, " of ", target.key, " is not whole");
    SafetensorsEntry entry{target.key};
    entry.dtype = from_core_dtype(target.dtype);
    entry.shape.assign(target.local_shape.begin(), target.local_shape.end());
    const int64_t rows = target.local_shape.empty() ? 1 : target.local_shape[0];
    row_elements_.push_back(core::num_elements(target.local_shape) / std::max<int64_t>(1, rows));
    item_sizes_.push_back(core::size_of(target.dtype));
    pieces.push_back({{next, Placement{}}});
    entries.push_back(std::move(entry));
  }
  split(std::move(entries));

  placements_.resize(targets.size());
  std::vector<PlacedResult::FileSpec> specs;
  for (size_t f = 0; f < files_.size(); ++f) {
    OutputFile& out = files_[f];
    SafetensorsPreamble preamble = make_safetensors_preamble(out.entries, {{"format", "pt"}});
    PlacedResult::FileSpec& spec =
        specs.emplace_back(PlacedResult::FileSpec{out.name, static_cast<int64_t>(preamble.file_size_bytes)});
    for (size_t e = 0; e < out.entries.size(); ++e) {
      for (const auto& [target, place] : pieces[out.tensors[e]]) {
        placements_[target] = place;
        placements_[target].file = f;
        placements_[target].offset_bytes += static_cast<int64_t>(preamble.data_offsets[e]);
        spec.parts += targets.elements(target);
      }
    }
    out.preamble = std::move(preamble.bytes);
  }
  LayoutHash layout;
  layout.add(targets);
  for (const Placement& place : placements_) layout.add(place.offset_bytes);
  result_.opened = [this](size_t file, core::PlacedFile& placed) {
    placed.write(std::as_bytes(std::span(files_[file].preamble)), 0);
  };
  result_.begin(std::move(specs), std::move(layout));
  refuse_existing_model();  // another process may have created one before this one got the lock
}

void HuggingFaceSink::write(int32_t target, int64_t first, int64_t count, const std::byte* data) {
  const Placement& place = placements_.at(static_cast<size_t>(target));
  const int64_t item = item_sizes_[static_cast<size_t>(target)];
  const int64_t columns = row_elements_[static_cast<size_t>(target)];
  if (place.transposed_columns > 0) {
    detail::put_transposed(data, item, columns, first, count, place.transposed_columns,
                           [&](int64_t offset, std::span<const std::byte> run) {
                             result_.write(place.file, run, place.offset_bytes + offset);
                           });
  } else {
    result_.write(place.file, {data, static_cast<size_t>(count * item)}, place.offset_bytes + first * item);
  }
  result_.done(place.file, count);
}

bool HuggingFaceSink::keep(int32_t target, int64_t first, int64_t count, std::byte* scratch) {
  const Placement& place = placements_.at(static_cast<size_t>(target));
  const int64_t item = item_sizes_[static_cast<size_t>(target)];
  if (place.transposed_columns > 0 ||
      !result_.keep(place.file, {scratch, static_cast<size_t>(count * item)}, place.offset_bytes + first * item)) {
    return false;
  }
  result_.done(place.file, count);
  return true;
}

void HuggingFaceSink::copy_tokenizer_files() {
  if (options_.copy_from.empty()) return;
  core::confine_reads(options_.copy_from);
  for (const auto& entry : fs::directory_iterator(options_.copy_from)) {
    const std::string name = entry.path().filename().string();
    if (!entry.is_regular_file() || !is_tokenizer_file(name)) continue;
    result_.write_text(name, core::read_text(entry.path().string(), 256 << 20));
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
  result_.write_text("config.json", hf_json_text(options_.config));
  if (options_.generation_config.is_object()) {
    result_.write_text("generation_config.json", hf_json_text(options_.generation_config));
  }
  copy_tokenizer_files();
  // The file that makes the folder a model comes last: the index, or the only weight file.
  std::string last = files_.front().name;
  if (files_.size() > 1 || last != "model.safetensors") {
    last = hf_index_name(kHfSafetensors);
    result_.write_text(last, hf_json_text(index()));
  }
  result_.commit({last});
  return folder_;
}

}  // namespace

std::vector<core::ShardedTensor> hf_targets(const Family& family, const core::TransformerConfig& model,
                                            const std::function<core::DType(const std::string& key)>& dtype,
                                            std::span<const core::ShardedTensor> others) {
  check_named(family, model, "a Hugging Face result");
  std::vector<core::ShardedTensor> targets;
  for_each_tensor(family, model, [&](const MappedTensor& mapped) {
    for (const TensorPiece& piece : mapped.pieces) {
      targets.push_back({mapped.key, mapped.role, dtype(mapped.key), mapped.global_shape, piece.offset, piece.extent});
    }
  });
  targets.insert(targets.end(), others.begin(), others.end());
  return targets;
}

std::unique_ptr<ckpt::Sink> make_hf_sink(HfSinkOptions options) {
  return std::make_unique<HuggingFaceSink>(std::move(options));
}

}  // namespace ms::convert
