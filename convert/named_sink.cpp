#include "convert/named_sink.h"

#include <atomic>
#include <deque>
#include <span>
#include <utility>

#include "convert/hf_split.h"
#include "convert/huggingface_config.h"
#include "convert/safetensors.h"
#include "convert/torch/torch_writer.h"
#include "core/error.h"
#include "core/io/json.h"

namespace ms::convert {
namespace {

namespace fs = std::filesystem;
using core::cat;
using core::Error;
using core::ErrorCode;
using nlohmann::json;

int64_t bytes_of(const NamedOutput& output) { return core::num_elements(output.shape) * core::size_of(output.dtype); }

class NamedSink final : public ckpt::Sink {
 public:
  explicit NamedSink(NamedSinkOptions options)
      : options_(std::move(options)),
        kind_{options_.stem.c_str(), options_.torch ? ".bin" : ".safetensors"},
        result_(options_.folder, options_.writing) {
    if (options_.max_shard_size_bytes < 1) {
      throw Error(ErrorCode::kInvalidArgument,
                  cat("--max-shard-size ", options_.max_shard_size_bytes, ": must be positive"));
    }
    refuse_existing_files();
  }

  void begin(const ckpt::CheckpointInfo& info, const ckpt::ShardTable& targets) override;
  void write(int32_t target, int64_t first, int64_t count, const std::byte* data) override;
  bool keep(int32_t target, int64_t first, int64_t count, std::byte* scratch) override;
  int64_t page_offset(int32_t target, int64_t first) override {
    return offset_of(target, first) % core::kDirectAlignment;
  }
  int32_t file_of(int32_t target) const override {
    return static_cast<int32_t>(places_[static_cast<size_t>(target)].file);
  }
  fs::path commit() override;

 private:
  struct File {
    std::string name;
    std::vector<size_t> outputs;          // indices
    std::string preamble;                 // safetensors
    std::unique_ptr<TorchWriter> writer;  // torch
    std::atomic<int64_t> remaining{0};    // elements not yet written; at 0 the file is finished
  };
  // Position of a target: its file, and in it the storage, or the byte where its data begins.
  struct Place {
    size_t file = 0, storage = 0;
    int64_t offset_bytes = 0, item = 1;
  };

  void refuse_existing_files() const;
  void deal_outputs();
  std::string torch_pickle(const File& file) const;
  // Lays a file out; returns the places of its outputs in of_output, by output index.
  PlacedResult::FileSpec lay_out(size_t index, std::vector<Place>& of_output);
  TorchWriter::Output put(size_t file) {
    return [this, file](std::span<const std::byte> bytes, int64_t at) { result_.write(file, bytes, at); };
  }
  void open_file(size_t index, core::PlacedFile& placed);
  int64_t offset_of(int32_t target, int64_t first) const;  // in the file
  void part_done(size_t file, int64_t count);
  json index() const;

  NamedSinkOptions options_;
  HfFiles kind_;  // of a model's folder; refers to options_
  PlacedResult result_;
  std::deque<File> files_;
  std::vector<Place> places_;  // one per target
};

void NamedSink::refuse_existing_files() const {
  if (!fs::exists(options_.folder)) return;
  if (!fs::is_directory(options_.folder)) {
    throw Error(ErrorCode::kInvalidArgument, cat(options_.folder.string(), " is not a folder"));
  }
  for (const auto& entry : fs::directory_iterator(options_.folder)) {
    const std::string name = entry.path().filename().string();
    const bool is_weights =
        name.starts_with(kind_.stem) && (name.ends_with(kind_.extension) || name.ends_with(hf_index_name(kind_)));
    if (options_.single.empty() ? !is_weights : name != options_.single) continue;
    throw Error(ErrorCode::kInvalidArgument,
                cat(options_.folder.string(), " already contains a model (", name, "); give a new folder"));
  }
}

void NamedSink::deal_outputs() {
  std::vector<int64_t> sizes;
  for (const NamedOutput& output : options_.outputs) sizes.push_back(bytes_of(output));
  HfSplit split = split_by_size(sizes, options_.single.empty() ? options_.max_shard_size_bytes : INT64_MAX, kind_);
  if (split.files.empty()) split.files.push_back(cat(kind_.stem, kind_.extension));  // there are no tensors
  if (!options_.single.empty()) split.files = {options_.single};
  for (std::string& name : split.files) files_.emplace_back().name = std::move(name);
  for (size_t o = 0; o < split.file_of.size(); ++o) files_[split.file_of[o]].outputs.push_back(o);
}

// A dictionary of tensors, each with its own storage.
std::string NamedSink::torch_pickle(const File& file) const {
  return make_pickle([&](PickleWriter& pickle) {
    pickle.dict([&] {
      for (size_t i = 0; i < file.outputs.size(); ++i) {
        const NamedOutput& output = options_.outputs[file.outputs[i]];
        pickle.text(output.key);
        write_torch_tensor(pickle, {.dtype = from_core_dtype(output.dtype),
                                    .storage = i,
                                    .storage_elements = core::num_elements(output.shape),
                                    .shape = output.shape});
      }
    });
  });
}

PlacedResult::FileSpec NamedSink::lay_out(size_t index, std::vector<Place>& of_output) {
  File& file = files_[index];
  std::vector<int64_t> storages;
  std::vector<SafetensorsEntry> entries;
  for (size_t i = 0; i < file.outputs.size(); ++i) {
    const NamedOutput& output = options_.outputs[file.outputs[i]];
    of_output[file.outputs[i]] = {index, i, 0, core::size_of(output.dtype)};
    storages.push_back(bytes_of(output));
    entries.push_back({output.key, from_core_dtype(output.dtype), {output.shape.begin(), output.shape.end()}});
    file.remaining += core::num_elements(output.shape);
  }
  PlacedResult::FileSpec spec{.path = file.name, .parts = file.remaining > 0 ? 1 : 0};
  if (options_.torch) {
    file.writer = std::make_unique<TorchWriter>(torch_pickle(file), storages);
    spec.size_bytes = file.writer->size_bytes();
    return spec;
  }
  SafetensorsPreamble preamble = make_safetensors_preamble(entries, {{"format", "pt"}});
  for (size_t i = 0; i < file.outputs.size(); ++i) {
    of_output[file.outputs[i]].offset_bytes = static_cast<int64_t>(preamble.data_offsets[i]);
  }
  file.preamble = std::move(preamble.bytes);
  spec.size_bytes = static_cast<int64_t>(preamble.file_size_bytes);
  return spec;
}

void NamedSink::begin(const ckpt::CheckpointInfo&, const ckpt::ShardTable& targets) {
  deal_outputs();
  std::vector<Place> of_output(options_.outputs.size());
  std::vector<PlacedResult::FileSpec> specs;
  for (size_t f = 0; f < files_.size(); ++f) specs.push_back(lay_out(f, of_output));
  size_t target = 0;
  LayoutHash layout;
  layout.add(targets);
  for (size_t o = 0; o < options_.outputs.size(); ++o) {
    const NamedOutput& output = options_.outputs[o];
    if (core::num_elements(output.shape) == 0) continue;
    MS_CHECK(target < targets.size() && targets.key(targets.tensor_of(target)) == output.key &&
                 targets.dtype_of(target) == output.dtype && targets.extents(target) == output.shape,
             "target ", target, " is not ", output.key);
    places_.push_back(of_output[o]);
    layout.add(static_cast<int64_t>(of_output[o].file));
    layout.add(offset_of(static_cast<int32_t>(target), 0));
    ++target;
  }
  MS_CHECK(target == targets.size(), "more targets than outputs");
  result_.opened = [this](size_t index, core::PlacedFile& placed) { open_file(index, placed); };
  result_.begin(std::move(specs), std::move(layout));
  refuse_existing_files();  // another process may have created one before this one got the lock
}

void NamedSink::open_file(size_t index, core::PlacedFile& placed) {
  File& file = files_[index];
  if (!file.writer) return placed.write(std::as_bytes(std::span(file.preamble)), 0);
  if (file.remaining > 0) return;
  // Nothing will be written to it.
  file.writer->finish([&](std::span<const std::byte> bytes, int64_t at) { placed.write(bytes, at); });
}

int64_t NamedSink::offset_of(int32_t target, int64_t first) const {
  const Place& place = places_[static_cast<size_t>(target)];
  const File& file = files_[place.file];
  return file.writer ? file.writer->place_of(place.storage, first * place.item)
                     : place.offset_bytes + first * place.item;
}

void NamedSink::write(int32_t target, int64_t first, int64_t count, const std::byte* data) {
  const Place& place = places_[static_cast<size_t>(target)];
  const std::span bytes(data, static_cast<size_t>(count * place.item));
  if (TorchWriter* const writer = files_[place.file].writer.get()) {
    writer->write(put(place.file), place.storage, first * place.item, bytes);
  } else {
    result_.write(place.file, bytes, offset_of(target, first));
  }
  part_done(place.file, count);
}

bool NamedSink::keep(int32_t target, int64_t first, int64_t count, std::byte* scratch) {
  const Place& place = places_[static_cast<size_t>(target)];
  const std::span bytes(scratch, static_cast<size_t>(count * place.item));
  if (!result_.keep(place.file, bytes, offset_of(target, first))) return false;
  if (TorchWriter* const writer = files_[place.file].writer.get()) {
    writer->keep(place.storage, first * place.item, bytes);
  }
  part_done(place.file, count);
  return true;
}

void NamedSink::part_done(size_t file, int64_t count) {
  if (files_[file].remaining.fetch_sub(count) != count) return;
  if (files_[file].writer) files_[file].writer->finish(put(file));
  result_.done(file, 1);
}

json NamedSink::index() const {
  int64_t bytes = 0, elements = 0;
  json weight_map = json::object();
  for (const File& file : files_) {
    for (const size_t o : file.outputs) {
      weight_map[options_.outputs[o].key] = file.name;
      bytes += bytes_of(options_.outputs[o]);
      elements += core::num_elements(options_.outputs[o].shape);
    }
  }
  return {{"metadata", {{"total_parameters", elements}, {"total_size", bytes}}}, {"weight_map", weight_map}};
}

fs::path NamedSink::commit() {
  for (const auto& [name, text] : options_.texts) result_.write_text(name, text);
  std::string last = files_.front().name;  // the file that makes the folder a model comes last
  if (files_.size() > 1) {
    last = hf_index_name(kind_);
    result_.write_text(last, hf_json_text(index()));
  }
  result_.commit({last});
  return options_.single.empty() ? options_.folder : options_.folder / options_.single;
}

}  // namespace

std::unique_ptr<ckpt::Sink> make_named_sink(NamedSinkOptions options) {
  return std::make_unique<NamedSink>(std::move(options));
}

}  // namespace ms::convert
