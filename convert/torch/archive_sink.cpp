#include "convert/torch/archive_sink.h"

#include <algorithm>
#include <atomic>
#include <deque>
#include <mutex>

#include "convert/detail/transposed.h"
#include "convert/torch/torch_writer.h"
#include "core/error.h"

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
        result_(options_.root, options_.writing),
        transposes_(std::any_of(options_.places.begin(), options_.places.end(),
                                [](const ArchivePlace& place) { return place.transposed_columns > 0; })) {}

  void begin(const ckpt::CheckpointInfo& info, const ckpt::ShardTable& targets) override;
  void write(int32_t target, int64_t first, int64_t count, const std::byte* data) override;
  int64_t page_offset(int32_t target, int64_t first) override {
    return offset_of(target, first) % core::kDirectAlignment;
  }
  bool keep(int32_t target, int64_t first, int64_t count, std::byte* scratch) override;
  int64_t chunk_elements(const core::ShardedTensor& target) const override {
    const int64_t chunk = ckpt::Sink::chunk_elements(target);
    return transposes_ ? detail::chunk_of_whole_rows(target, chunk) : chunk;
  }
  int32_t file_of(int32_t target) const override { return options_.places[static_cast<size_t>(target)].file; }
  fs::path commit() override;

 private:
  struct Opened {  // state of one archive
    std::once_flag begun;
    std::unique_ptr<TorchWriter> writer;
    std::atomic<int64_t> remaining{0};  // elements not yet written
  };
  fs::path folder() const { return options_.folder.empty() ? options_.root : options_.root / options_.folder; }
  void refuse_existing_folder() const;
  PlacedResult::FileSpec spec_of(const ArchiveFile& file) const;
  void open_file(size_t index, core::PlacedFile& file);
  Opened& archive_of(const ArchivePlace& place);
  Opened& begun_archive(const ArchivePlace& place);
  int64_t offset_of(int32_t target, int64_t first);  // in the file; not for transposed targets
  void part_done(const ArchivePlace& place, int64_t count);
  TorchWriter::Output output(const ArchivePlace& place) {
    const int64_t at = plan_of(place).at;
    return [this, file = static_cast<size_t>(place.file), at](std::span<const std::byte> bytes, int64_t offset) {
      result_.write(file, bytes, at + offset);
    };
  }
  const Archive& plan_of(const ArchivePlace& place) const {
    return options_.files[static_cast<size_t>(place.file)].archives[static_cast<size_t>(place.archive)];
  }
  static void begin_archive(const Archive& plan, const TorchWriter::Output& output, Opened& archive);
  static void finish_archive(const TorchWriter::Output& output, Opened& archive);

  ArchiveSinkOptions options_;
  PlacedResult result_;
  bool transposes_;
  std::deque<std::deque<Opened>> archives_;  // one deque per file
  std::vector<int8_t> item_sizes_;           // one per target
  std::vector<int64_t> row_elements_;        // row length of transposed targets; 0 for others
};

void ArchiveSink::refuse_existing_folder() const {
  if (!fs::exists(folder())) return;
  throw Error(ErrorCode::kInvalidArgument, cat(folder().string(), " already exists; give another folder"));
}

PlacedResult::FileSpec ArchiveSink::spec_of(const ArchiveFile& file) const {
  MS_CHECK(!file.archives.empty(), "nothing in ", file.path);
  const Archive& last = file.archives.back();
  return {(fs::path(options_.folder) / file.path).string(),
          last.at + TorchWriter(last.pickle(), last.storage_bytes).size_bytes()};
}

void ArchiveSink::begin(const ckpt::CheckpointInfo&, const ckpt::ShardTable& targets) {
  MS_CHECK(options_.places.size() == targets.size(), options_.places.size(), " places of ", targets.size(), " targets");
  refuse_existing_folder();
  std::vector<PlacedResult::FileSpec> specs;
  LayoutHash layout;
  for (const ArchiveFile& file : options_.files) {
    specs.push_back(spec_of(file));
    std::deque<Opened>& archives = archives_.emplace_back();
    for (size_t a = 0; a < file.archives.size(); ++a) archives.emplace_back();
  }
  for (size_t t = 0; t < targets.size(); ++t) {
    const ArchivePlace& place = options_.places[t];
    item_sizes_.push_back(static_cast<int8_t>(core::size_of(targets.dtype_of(t))));
    row_elements_.push_back(place.transposed_columns > 0 ? targets.extent(t, 1) : 0);
    Opened& archive = archive_of(place);
    if (archive.remaining == 0) ++specs[static_cast<size_t>(place.file)].parts;
    archive.remaining += targets.elements(t);
    for (const int64_t number : {int64_t{place.archive}, int64_t{place.storage}, place.offset_bytes})
      layout.add(number);
  }
  layout.add(targets);
  result_.opened = [this](size_t index, core::PlacedFile& file) { open_file(index, file); };
  result_.begin(std::move(specs), std::move(layout));
  refuse_existing_folder();  // another process may have created it before this one got the lock
}

void ArchiveSink::begin_archive(const Archive& plan, const TorchWriter::Output& output, Opened& archive) {
  archive.writer = std::make_unique<TorchWriter>(plan.pickle(), plan.storage_bytes);
  for (const auto& [storage, bytes] : plan.contents) {
    archive.writer->write(output, storage, 0, std::as_bytes(std::span(bytes)));
  }
}

void ArchiveSink::finish_archive(const TorchWriter::Output& output, Opened& archive) {
  archive.writer->finish(output);
  archive.writer.reset();
}

// Writes the archives that no target goes to.
void ArchiveSink::open_file(size_t index, core::PlacedFile& file) {
  const ArchiveFile& plan = options_.files[index];
  for (size_t a = 0; a < plan.archives.size(); ++a) {
    if (archives_[index][a].remaining > 0) continue;
    const TorchWriter::Output output = [&file, at = plan.archives[a].at](std::span<const std::byte> bytes,
                                                                         int64_t offset) {
      file.write(bytes, at + offset);
    };
    begin_archive(plan.archives[a], output, archives_[index][a]);
    finish_archive(output, archives_[index][a]);
  }
}

ArchiveSink::Opened& ArchiveSink::archive_of(const ArchivePlace& place) {
  return archives_[static_cast<size_t>(place.file)][static_cast<size_t>(place.archive)];
}

ArchiveSink::Opened& ArchiveSink::begun_archive(const ArchivePlace& place) {
  Opened& archive = archive_of(place);
  std::call_once(archive.begun, [&] { begin_archive(plan_of(place), output(place), archive); });
  return archive;
}

int64_t ArchiveSink::offset_of(int32_t target, int64_t first) {
  const ArchivePlace& place = options_.places[static_cast<size_t>(target)];
  const int64_t within = place.offset_bytes + first * item_sizes_[static_cast<size_t>(target)];
  return plan_of(place).at + begun_archive(place).writer->place_of(static_cast<size_t>(place.storage), within);
}

void ArchiveSink::write(int32_t target, int64_t first, int64_t count, const std::byte* data) {
  const ArchivePlace& place = options_.places[static_cast<size_t>(target)];
  const int64_t item = item_sizes_[static_cast<size_t>(target)];
  const TorchWriter::Output out = output(place);
  Opened& archive = begun_archive(place);
  const auto put = [&](int64_t offset, std::span<const std::byte> bytes) {
    archive.writer->write(out, static_cast<size_t>(place.storage), place.offset_bytes + offset, bytes);
  };
  if (const int64_t columns = row_elements_[static_cast<size_t>(target)]; columns > 0) {
    detail::put_transposed(data, item, columns, first, count, place.transposed_columns, put);
  } else {
    put(first * item, {data, static_cast<size_t>(count * item)});
  }
  part_done(place, count);
}

bool ArchiveSink::keep(int32_t target, int64_t first, int64_t count, std::byte* scratch) {
  const ArchivePlace& place = options_.places[static_cast<size_t>(target)];
  if (!result_.may_keep() || row_elements_[static_cast<size_t>(target)] > 0) return false;
  const std::span<std::byte> bytes(scratch, static_cast<size_t>(count * item_sizes_[static_cast<size_t>(target)]));
  if (!result_.keep(static_cast<size_t>(place.file), bytes, offset_of(target, first))) return false;
  const int64_t within = place.offset_bytes + first * item_sizes_[static_cast<size_t>(target)];
  begun_archive(place).writer->keep(static_cast<size_t>(place.storage), within, bytes);
  part_done(place, count);
  return true;
}

void ArchiveSink::part_done(const ArchivePlace& place, int64_t count) {
  Opened& archive = archive_of(place);
  if (archive.remaining.fetch_sub(count) != count) return;
  finish_archive(output(place), archive);
  result_.done(static_cast<size_t>(place.file), 1);
}

fs::path ArchiveSink::commit() {
  for (const auto& [name, text] : options_.texts) {
    result_.write_text((fs::path(options_.folder) / name).string(), text());
  }
  std::vector<std::string> last;
  for (const auto& [name, text] : options_.pointers) {
    result_.write_text(name, text);
    last.push_back(name);
  }
  result_.commit(last);
  return folder();
}

}  // namespace

std::unique_ptr<ckpt::Sink> make_archive_sink(ArchiveSinkOptions options) {
  return std::make_unique<ArchiveSink>(std::move(options));
}

}  // namespace ms::convert
