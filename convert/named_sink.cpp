#include "convert/named_sink.h"

#include <algorithm>
#include <atomic>
#include <deque>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>

#include "convert/huggingface_config.h"
#include "convert/safetensors.h"
#include "convert/torch/torch_writer.h"
#include "core/error.h"
#include "core/io/file.h"
#include "core/io/placed_file.h"
#include "core/io/result_folder.h"

namespace ms::convert {
namespace {

namespace fs = std::filesystem;
using core::cat;
using core::Error;
using core::ErrorCode;
using nlohmann::json;

std::string five_digits(size_t number) {
  const std::string digits = std::to_string(number);
  return std::string(5 - std::min<size_t>(5, digits.size()), '0') + digits;
}

class NamedSink final : public ckpt::Sink {
 public:
  explicit NamedSink(NamedSinkOptions options) : options_(std::move(options)) {
    if (options_.max_shard_size_bytes < 1) {
      throw Error(ErrorCode::kInvalidArgument,
                  cat("--max-shard-size ", options_.max_shard_size_bytes, ": must be positive"));
    }
    refuse_what_is_there();
  }

  void begin(const ckpt::CheckpointInfo& info, const ckpt::ShardTable& targets) override;
  void write(int32_t target, int64_t first, int64_t count, const std::byte* data) override;
  int32_t file_of(int32_t target) const override {
    return static_cast<int32_t>(places_[static_cast<size_t>(target)].file);
  }
  fs::path commit() override;

 private:
  struct File {
    std::string name;
    std::vector<size_t> outputs;  // indices
    int64_t data_bytes = 0;
    std::string preamble;                 // safetensors
    std::unique_ptr<TorchWriter> writer;  // torch
    int64_t size_bytes = 0;
    std::once_flag begun;  // with the first write, so that few are open at a time
    std::unique_ptr<core::PlacedFile> placed;
    std::atomic<int64_t> remaining{0};  // elements; with the last one the file is durable and closed
  };
  // Of a target: its file, and there its storage, or the byte where its data begin.
  struct Place {
    size_t file = 0, storage = 0;
    int64_t offset_bytes = 0, item = 1;
  };

  std::string ending() const { return options_.torch ? ".bin" : ".safetensors"; }
  std::string index_name() const { return cat(options_.stem, ending(), ".index.json"); }
  File& open(size_t number);
  TorchWriter::Output put(File& file) {
    return [&file](std::span<const std::byte> bytes, int64_t at) { file.placed->write(bytes, at); };
  }
  void finish(File& file);
  int64_t elements_of(const File& file) const {
    int64_t elements = 0;
    for (const size_t o : file.outputs) elements += core::num_elements(options_.outputs[o].shape);
    return elements;
  }
  void refuse_what_is_there() const;
  void deal_outputs();
  std::string torch_pickle(const File& file) const;
  json index() const;

  NamedSinkOptions options_;
  core::WritePath write_path_ = core::WritePath::kBuffered;
  std::unique_ptr<core::ResultFolder> result_;
  std::deque<File> files_;
  std::vector<Place> places_;  // of the targets
};

void NamedSink::refuse_what_is_there() const {
  if (!fs::exists(options_.folder)) return;
  if (!fs::is_directory(options_.folder)) {
    throw Error(ErrorCode::kInvalidArgument, cat(options_.folder.string(), " is not a folder"));
  }
  for (const auto& entry : fs::directory_iterator(options_.folder)) {
    const std::string name = entry.path().filename().string();
    const bool taken =
        options_.single.empty()
            ? name.starts_with(options_.stem) && (name.ends_with(ending()) || name.ends_with(ending() + ".index.json"))
            : name == options_.single;
    if (!taken) continue;
    throw Error(ErrorCode::kInvalidArgument,
                cat(options_.folder.string(), " holds a model already (", name, "); give a new folder"));
  }
}

// As huggingface_hub splits (serialization/_base.py): greedily, in order; a tensor above the limit goes into a file of
// its own, which does not close the one being filled.
void NamedSink::deal_outputs() {
  const int64_t limit = options_.single.empty() ? options_.max_shard_size_bytes : INT64_MAX;
  std::optional<size_t> current;
  const auto add = [&](size_t file, size_t output, int64_t bytes) {
    files_[file].outputs.push_back(output);
    files_[file].data_bytes += bytes;
  };
  for (size_t o = 0; o < options_.outputs.size(); ++o) {
    const NamedOutput& output = options_.outputs[o];
    const int64_t bytes = core::num_elements(output.shape) * core::size_of(output.dtype);
    if (bytes > limit) {
      files_.emplace_back();
      add(files_.size() - 1, o, bytes);
      continue;
    }
    if (!current || files_[*current].data_bytes > limit - bytes) {
      files_.emplace_back();
      current = files_.size() - 1;
    }
    add(*current, o, bytes);
  }
  for (size_t f = 0; f < files_.size(); ++f) {
    files_[f].name = !options_.single.empty() ? options_.single
                     : files_.size() == 1
                         ? options_.stem + ending()
                         : cat(options_.stem, "-", five_digits(f + 1), "-of-", five_digits(files_.size()), ending());
  }
}

// A dictionary of tensors, each with a storage of its own.
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

void NamedSink::begin(const ckpt::CheckpointInfo&, const ckpt::ShardTable& targets) {
  deal_outputs();
  std::vector<Place> of_output(options_.outputs.size());
  int64_t total_bytes = 0;
  for (size_t f = 0; f < files_.size(); ++f) {
    File& file = files_[f];
    std::vector<int64_t> storages;
    std::vector<SafetensorsEntry> entries;
    for (size_t i = 0; i < file.outputs.size(); ++i) {
      const NamedOutput& output = options_.outputs[file.outputs[i]];
      const int64_t count = core::num_elements(output.shape), item = core::size_of(output.dtype);
      of_output[file.outputs[i]] = {f, i, 0, item};
      storages.push_back(count * item);
      entries.push_back({output.key, from_core_dtype(output.dtype), {output.shape.begin(), output.shape.end()}});
    }
    if (options_.torch) {
      file.writer = std::make_unique<TorchWriter>(torch_pickle(file), storages);
      file.size_bytes = file.writer->size_bytes();
    } else {
      SafetensorsPreamble preamble = make_safetensors_preamble(entries, {{"format", "pt"}});
      for (size_t i = 0; i < file.outputs.size(); ++i) {
        of_output[file.outputs[i]].offset_bytes = static_cast<int64_t>(preamble.data_offsets[i]);
      }
      file.preamble = std::move(preamble.bytes);
      file.size_bytes = static_cast<int64_t>(preamble.file_size_bytes);
    }
    file.remaining = elements_of(file);
    total_bytes += file.size_bytes;
  }
  size_t target = 0;
  for (size_t o = 0; o < options_.outputs.size(); ++o) {
    const NamedOutput& output = options_.outputs[o];
    if (core::num_elements(output.shape) == 0) continue;
    MS_CHECK(target < targets.size() && targets.key(targets.tensor_of(target)) == output.key &&
                 targets.dtype_of(target) == output.dtype && targets.extents(target) == output.shape,
             "target ", target, " is not ", output.key);
    places_.push_back(of_output[o]);
    ++target;
  }
  MS_CHECK(target == targets.size(), "more targets than outputs");
  result_ = std::make_unique<core::ResultFolder>(options_.folder);
  refuse_what_is_there();  // another process may have made one before this one had the lock
  const std::string place = result_->staged().string();
  if (const int64_t room = core::available_bytes(place); room < total_bytes) {
    throw Error(ErrorCode::kIo, cat(options_.folder.string(), ": the result takes ", total_bytes, " bytes, but only ",
                                    room, " are free there. Make room or save elsewhere."));
  }
  write_path_ = core::choose_write_path(place, options_.write_path).path;
}

NamedSink::File& NamedSink::open(size_t number) {
  File& file = files_[number];
  std::call_once(file.begun, [&] {
    file.placed =
        std::make_unique<core::PlacedFile>((result_->staged() / file.name).string(), file.size_bytes, write_path_);
    if (!file.writer) file.placed->write(std::as_bytes(std::span(file.preamble)), 0);
  });
  return file;
}

void NamedSink::finish(File& file) {
  if (file.writer) file.writer->finish(put(file));
  file.placed->finish();
  file.placed.reset();
}

void NamedSink::write(int32_t target, int64_t first, int64_t count, const std::byte* data) {
  const Place& place = places_[static_cast<size_t>(target)];
  File& file = open(place.file);
  const std::span bytes(data, static_cast<size_t>(count * place.item));
  if (file.writer) {
    file.writer->write(put(file), place.storage, first * place.item, bytes);
  } else {
    file.placed->write(bytes, place.offset_bytes + first * place.item);
  }
  if (file.remaining.fetch_sub(count) == count) finish(file);
}

json NamedSink::index() const {
  int64_t bytes = 0, elements = 0;
  json weight_map = json::object();
  for (const File& file : files_) {
    bytes += file.data_bytes;
    for (const size_t o : file.outputs) {
      weight_map[options_.outputs[o].key] = file.name;
      elements += core::num_elements(options_.outputs[o].shape);
    }
  }
  return {{"metadata", {{"total_parameters", elements}, {"total_size", bytes}}}, {"weight_map", weight_map}};
}

fs::path NamedSink::commit() {
  for (size_t f = 0; f < files_.size(); ++f) {
    MS_CHECK(files_[f].remaining == 0, files_[f].name, " was not written whole");
    if (elements_of(files_[f]) == 0) finish(open(f));  // no write came
  }
  const auto write_text = [&](const std::string& name, const std::string& text) {
    core::write_text_atomically((result_->staged() / name).string(), text);
  };
  for (const auto& [name, text] : options_.texts) write_text(name, text);
  const bool several = files_.size() > 1;
  if (several) write_text(index_name(), hf_json_text(index()));
  result_->publish({several ? index_name() : files_.front().name});  // what makes the folder a model comes last
  return options_.single.empty() ? options_.folder : options_.folder / options_.single;
}

}  // namespace

std::unique_ptr<ckpt::Sink> make_named_sink(NamedSinkOptions options) {
  return std::make_unique<NamedSink>(std::move(options));
}

}  // namespace ms::convert
