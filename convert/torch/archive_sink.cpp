#include "convert/torch/archive_sink.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <set>

#include "convert/torch/torch_writer.h"
#include "core/error.h"
#include "core/io/atomic_directory.h"
#include "core/io/file.h"
#include "core/log.h"

namespace ms::convert {
namespace {

namespace fs = std::filesystem;
using core::cat;
using core::Error;
using core::ErrorCode;

class ArchiveSink final : public ckpt::Sink {
 public:
  explicit ArchiveSink(ArchiveSinkOptions options) : options_(std::move(options)) {}
  ~ArchiveSink() override {
    outputs_.clear();
    directory_.reset();
    std::error_code ignored;
    if (made_parent_ && !committed_) fs::remove(options_.folder.parent_path(), ignored);  // only if empty
  }

  void begin(const ckpt::CheckpointInfo& info, const ckpt::ShardTable& targets) override;
  void write(int32_t target, int64_t first, int64_t count, const std::byte* data) override;
  int32_t file_of(int32_t target) const override { return options_.places[static_cast<size_t>(target)].file; }
  fs::path commit() override;

 private:
  struct Output {
    core::File file;
    std::unique_ptr<core::BulkWriter> bulk;
    std::unique_ptr<TorchWriter> writer;
    std::once_flag begun;
    std::atomic<int64_t> remaining{0};  // elements

    TorchWriter::Output put() const {
      return [this](std::span<const std::byte> bytes, int64_t at) {
        core::BulkWriter::Batch batch(*bulk);
        bulk->submit(bytes, at, batch);
        bulk->wait(batch);
      };
    }
  };
  void begin_file(size_t index);
  void finish_file(Output& output);

  ArchiveSinkOptions options_;
  bool made_parent_ = false, committed_ = false;
  core::WritePath write_path_ = core::WritePath::kBuffered;
  std::unique_ptr<core::AtomicDirectory> directory_;
  std::vector<std::unique_ptr<Output>> outputs_;  // of the files
  std::vector<int8_t> item_sizes_;                // of the targets
};

void ArchiveSink::begin(const ckpt::CheckpointInfo&, const ckpt::ShardTable& targets) {
  MS_CHECK(options_.places.size() == targets.size(), options_.places.size(), " places of ", targets.size(), " targets");
  if (fs::exists(options_.folder)) {
    throw Error(ErrorCode::kInvalidArgument, cat(options_.folder.string(), " is there already; give another folder"));
  }
  int64_t bytes = 0;
  for (const ArchiveFile& file : options_.files) {
    for (const int64_t storage : file.storage_bytes) bytes += storage;
    outputs_.push_back(std::make_unique<Output>());
  }
  for (size_t t = 0; t < targets.size(); ++t) {
    item_sizes_.push_back(static_cast<int8_t>(core::size_of(targets.dtype_of(t))));
    outputs_[static_cast<size_t>(options_.places[t].file)]->remaining += targets.elements(t);
  }
  const fs::path parent = options_.folder.parent_path();
  made_parent_ = !fs::exists(parent);
  core::make_directories_durably(parent);
  if (const int64_t room = core::available_bytes(parent.string()); room < bytes) {
    throw Error(ErrorCode::kIo, cat(parent.string(), ": the checkpoint takes ", bytes, " bytes, but only ", room,
                                    " are free. Make room or save elsewhere."));
  }
  const core::WritePathChoice choice = core::choose_write_path(parent.string(), options_.write_path);
  core::log_debug("convert.write", cat("writing by ", choice.why));
  write_path_ = choice.path;
  directory_ = std::make_unique<core::AtomicDirectory>(options_.folder.string() + core::temporary_suffix());
  for (const ArchiveFile& file : options_.files) {
    fs::path folder = directory_->path();
    for (const fs::path& part : fs::path(file.path).parent_path()) core::make_directory(folder /= part);
  }
}

void ArchiveSink::begin_file(size_t index) {
  const ArchiveFile& plan = options_.files[index];
  Output& output = *outputs_[index];
  output.writer = std::make_unique<TorchWriter>(plan.pickle(), plan.storage_bytes);
  output.file = core::File::create((directory_->path() / plan.path).string());
  const int64_t size_bytes = output.writer->size_bytes();
  output.file.preallocate(size_bytes);
  const std::byte last{};  // of its final size also where nothing can be preallocated
  output.file.pwrite({&last, 1}, size_bytes - 1);
  output.bulk = std::make_unique<core::BulkWriter>(output.file, write_path_);
  for (const auto& [storage, bytes] : plan.contents) {
    output.writer->write(output.put(), storage, 0, std::as_bytes(std::span(bytes)));
  }
}

void ArchiveSink::write(int32_t target, int64_t first, int64_t count, const std::byte* data) {
  const ArchivePlace& place = options_.places[static_cast<size_t>(target)];
  const int64_t item = item_sizes_[static_cast<size_t>(target)];
  Output& output = *outputs_[static_cast<size_t>(place.file)];
  std::call_once(output.begun, [&] { begin_file(static_cast<size_t>(place.file)); });
  output.writer->write(output.put(), static_cast<size_t>(place.storage), place.offset_bytes + first * item,
                       {data, static_cast<size_t>(count * item)});
  if (output.remaining.fetch_sub(count) == count) finish_file(output);
}

void ArchiveSink::finish_file(Output& output) {
  output.writer->finish(output.put());
  output.writer.reset();
  output.bulk.reset();
  output.file.fsync();
  output.file.close();
}

fs::path ArchiveSink::commit() {
  std::set<fs::path> folders;
  for (size_t f = 0; f < outputs_.size(); ++f) {
    Output& output = *outputs_[f];
    MS_CHECK(output.remaining == 0, output.remaining.load(), " elements of ", options_.files[f].path,
             " were not written");
    std::call_once(output.begun, [&] {  // one that no target goes to
      begin_file(f);
      finish_file(output);
    });
    for (fs::path folder = fs::path(options_.files[f].path).parent_path(); !folder.empty();
         folder = folder.parent_path()) {
      folders.insert(folder);
    }
  }
  for (const fs::path& folder : folders) core::fsync_directory((directory_->path() / folder).string());
  if (!directory_->commit(options_.folder)) {
    throw Error(ErrorCode::kInvalidArgument, cat(options_.folder.string(), " is there already; give another folder"));
  }
  committed_ = true;
  if (options_.committed) options_.committed();
  return options_.folder;
}

}  // namespace

std::unique_ptr<ckpt::Sink> make_archive_sink(ArchiveSinkOptions options) {
  return std::make_unique<ArchiveSink>(std::move(options));
}

}  // namespace ms::convert
