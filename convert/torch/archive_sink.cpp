#include "convert/torch/archive_sink.h"

#include <algorithm>
#include <atomic>
#include <deque>
#include <mutex>
#include <set>

#include "convert/detail/transposed.h"
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
  explicit ArchiveSink(ArchiveSinkOptions options)
      : options_(std::move(options)),
        parent_(options_.folder.has_parent_path() ? options_.folder.parent_path() : "."),
        transposes_(std::any_of(options_.places.begin(), options_.places.end(),
                                [](const ArchivePlace& place) { return place.transposed_columns > 0; })) {}
  ~ArchiveSink() override {
    outputs_.clear();
    directory_.reset();
    std::error_code ignored;
    if (made_parent_ && !committed_) fs::remove(parent_, ignored);  // only if empty
  }

  void begin(const ckpt::CheckpointInfo& info, const ckpt::ShardTable& targets) override;
  void write(int32_t target, int64_t first, int64_t count, const std::byte* data) override;
  int64_t chunk_elements(const core::ShardedTensor& target) const override {
    const int64_t chunk = ckpt::Sink::chunk_elements(target);
    return transposes_ ? detail::chunk_of_whole_rows(target, chunk) : chunk;
  }
  int32_t file_of(int32_t target) const override { return options_.places[static_cast<size_t>(target)].file; }
  fs::path commit() override;

 private:
  struct Opened {  // an archive
    std::once_flag begun;
    std::unique_ptr<TorchWriter> writer;
    std::atomic<int64_t> remaining{0};  // elements
  };
  struct Output {
    core::File file;
    std::unique_ptr<core::BulkWriter> bulk;
    std::once_flag begun;
    std::deque<Opened> archives;
    std::atomic<size_t> remaining{0};  // archives that targets go to

    TorchWriter::Output put(const Archive& archive) const {
      return [this, begin = archive.at](std::span<const std::byte> bytes, int64_t at) {
        core::BulkWriter::Batch batch(*bulk);
        bulk->submit(bytes, begin + at, batch);
        bulk->wait(batch);
      };
    }
  };
  void begin_file(size_t index);
  static void begin_archive(const Archive& plan, const Output& output, Opened& archive);
  static void finish_archive(const Archive& plan, const Output& output, Opened& archive);
  static void finish_file(Output& output);

  ArchiveSinkOptions options_;
  std::filesystem::path parent_;
  bool transposes_;
  bool made_parent_ = false, committed_ = false;
  core::WritePath write_path_ = core::WritePath::kBuffered;
  std::unique_ptr<core::AtomicDirectory> directory_;
  std::deque<Output> outputs_;         // of the files
  std::vector<int8_t> item_sizes_;     // of the targets
  std::vector<int64_t> row_elements_;  // of those that are transposed; 0 for others
};

void ArchiveSink::begin(const ckpt::CheckpointInfo&, const ckpt::ShardTable& targets) {
  MS_CHECK(options_.places.size() == targets.size(), options_.places.size(), " places of ", targets.size(), " targets");
  if (fs::exists(options_.folder)) {
    throw Error(ErrorCode::kInvalidArgument, cat(options_.folder.string(), " is there already; give another folder"));
  }
  int64_t bytes = 0;
  for (const ArchiveFile& file : options_.files) {
    Output& output = outputs_.emplace_back();
    for (const Archive& archive : file.archives) {
      for (const int64_t storage : archive.storage_bytes) bytes += storage;
      output.archives.emplace_back();
    }
  }
  for (size_t t = 0; t < targets.size(); ++t) {
    const ArchivePlace& place = options_.places[t];
    item_sizes_.push_back(static_cast<int8_t>(core::size_of(targets.dtype_of(t))));
    row_elements_.push_back(place.transposed_columns > 0 ? targets.extent(t, 1) : 0);
    Output& output = outputs_[static_cast<size_t>(place.file)];
    Opened& archive = output.archives[static_cast<size_t>(place.archive)];
    if (archive.remaining == 0) ++output.remaining;
    archive.remaining += targets.elements(t);
  }
  made_parent_ = !fs::exists(parent_);
  core::make_directories_durably(parent_);
  if (const int64_t room = core::available_bytes(parent_.string()); room < bytes) {
    throw Error(ErrorCode::kIo, cat(parent_.string(), ": the checkpoint takes ", bytes, " bytes, but only ", room,
                                    " are free. Make room or save elsewhere."));
  }
  const core::WritePathChoice choice = core::choose_write_path(parent_.string(), options_.write_path);
  core::log_debug("convert.write", cat("writing by ", choice.why));
  write_path_ = choice.path;
  directory_ = std::make_unique<core::AtomicDirectory>(options_.folder.string() + core::temporary_suffix());
  for (const ArchiveFile& file : options_.files) {
    fs::path folder = directory_->path();
    for (const fs::path& part : fs::path(file.path).parent_path()) core::make_directory(folder /= part);
  }
}

void ArchiveSink::begin_archive(const Archive& plan, const Output& output, Opened& archive) {
  archive.writer = std::make_unique<TorchWriter>(plan.pickle(), plan.storage_bytes);
  for (const auto& [storage, bytes] : plan.contents) {
    archive.writer->write(output.put(plan), storage, 0, std::as_bytes(std::span(bytes)));
  }
}

void ArchiveSink::finish_archive(const Archive& plan, const Output& output, Opened& archive) {
  archive.writer->finish(output.put(plan));
  archive.writer.reset();
}

void ArchiveSink::begin_file(size_t index) {
  const ArchiveFile& plan = options_.files[index];
  Output& output = outputs_[index];
  MS_CHECK(!plan.archives.empty(), "nothing in ", plan.path);
  output.file = core::File::create((directory_->path() / plan.path).string());
  const Archive& behind = plan.archives.back();
  const int64_t size_bytes = behind.at + TorchWriter(behind.pickle(), behind.storage_bytes).size_bytes();
  output.file.preallocate(size_bytes);
  const std::byte last{};  // of its final size also where nothing can be preallocated
  output.file.pwrite({&last, 1}, size_bytes - 1);
  output.bulk = std::make_unique<core::BulkWriter>(output.file, write_path_);
  for (size_t a = 0; a < plan.archives.size(); ++a) {
    if (output.archives[a].remaining > 0) continue;
    begin_archive(plan.archives[a], output, output.archives[a]);
    finish_archive(plan.archives[a], output, output.archives[a]);
  }
}

void ArchiveSink::write(int32_t target, int64_t first, int64_t count, const std::byte* data) {
  const ArchivePlace& place = options_.places[static_cast<size_t>(target)];
  const int64_t item = item_sizes_[static_cast<size_t>(target)];
  const Archive& plan = options_.files[static_cast<size_t>(place.file)].archives[static_cast<size_t>(place.archive)];
  Output& output = outputs_[static_cast<size_t>(place.file)];
  Opened& archive = output.archives[static_cast<size_t>(place.archive)];
  std::call_once(output.begun, [&] { begin_file(static_cast<size_t>(place.file)); });
  std::call_once(archive.begun, [&] { begin_archive(plan, output, archive); });
  const auto put = [&](int64_t offset, std::span<const std::byte> bytes) {
    archive.writer->write(output.put(plan), static_cast<size_t>(place.storage), place.offset_bytes + offset, bytes);
  };
  if (const int64_t columns = row_elements_[static_cast<size_t>(target)]; columns > 0) {
    detail::put_transposed(data, item, columns, first, count, place.transposed_columns, put);
  } else {
    put(first * item, {data, static_cast<size_t>(count * item)});
  }
  if (archive.remaining.fetch_sub(count) != count) return;
  finish_archive(plan, output, archive);
  if (output.remaining.fetch_sub(1) == 1) finish_file(output);
}

void ArchiveSink::finish_file(Output& output) {
  output.bulk.reset();
  output.file.fsync();
  output.file.close();
}

fs::path ArchiveSink::commit() {
  std::set<fs::path> folders;
  for (size_t f = 0; f < outputs_.size(); ++f) {
    Output& output = outputs_[f];
    MS_CHECK(output.remaining == 0, output.remaining.load(), " archives of ", options_.files[f].path,
             " were not written whole");
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
  for (const auto& [name, text] : options_.texts) {
    core::write_text_atomically((directory_->path() / name).string(), text());
  }
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
