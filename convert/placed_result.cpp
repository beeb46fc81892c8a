#include "convert/placed_result.h"

#include <sys/stat.h>

#include <algorithm>
#include <set>
#include <utility>

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

// Smaller writes cost less to repeat than to record.
constexpr size_t kNotedBytes = size_t{64} << 10;
constexpr int64_t kNotesVersion = 1;

int64_t allocated_bytes(const fs::path& path) {
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0 ? int64_t{status.st_blocks} * 512 : 0;
}

}  // namespace

void LayoutHash::add(std::string_view text) {
  add(static_cast<int64_t>(text.size()));
  hash_.update(text.data(), text.size());
}

void LayoutHash::add(const ckpt::ShardTable& targets) {
  add(static_cast<int64_t>(targets.size()));
  for (size_t i = 0; i < targets.size(); ++i) {
    const core::ShardedTensor target = targets[i];
    add(target.key);
    add(static_cast<int64_t>(target.role) * 256 + static_cast<int64_t>(target.dtype));
    for (const core::Dims* dims : {&target.global_shape, &target.global_offset, &target.local_shape}) {
      for (const int64_t extent : *dims) add(extent);
    }
  }
}

PlacedResult::PlacedResult(fs::path folder, WriteOptions options)
    : folder_(std::move(folder)), options_(std::move(options)) {}

PlacedResult::~PlacedResult() {
  if (!committed_ && options_.resume && result_ != nullptr && notes_ != nullptr) result_->leave();
}

void PlacedResult::begin(std::vector<FileSpec> files, LayoutHash&& layout) {
  const bool resumes = options_.resume && !options_.job.empty();
  result_ = std::make_unique<core::ResultFolder>(folder_, resumes);
  layout.add(options_.job);
  layout.add(kNotesVersion);
  int64_t bytes = 0;
  for (FileSpec& spec : files) {
    layout.add(spec.path);
    layout.add(spec.size_bytes);
    bytes += spec.size_bytes;
    Output& output = outputs_.emplace_back();
    output.remaining = spec.parts;
    output.spec = std::move(spec);
  }
  if (!options_.job.empty()) {
    notes_ = std::make_unique<core::WriteNotes>(result_->notes_path().string(), layout.value(), resumes);
  }
  if (resumes) remove_unknown_files();
  for (const Output& output : outputs_) {
    fs::path folder = result_->staged();
    for (const fs::path& part : fs::path(output.spec.path).parent_path()) core::make_directory(folder /= part);
    if (resumes) bytes -= std::min(output.spec.size_bytes, allocated_bytes(result_->staged() / output.spec.path));
  }
  const std::string place = result_->staged().string();
  if (const int64_t room = core::available_bytes(place); room < bytes) {
    throw Error(ErrorCode::kIo, cat(folder_.string(), ": the result needs ", bytes, " bytes, but only ", room,
                                    " are free there. Free space or use another folder."));
  }
  const core::WritePathChoice choice = core::choose_write_path(place, options_.write_path);
  core::log_debug("convert.write", cat("writing by ", choice.why));
  write_path_ = choice.path;
}

// Removes files of another job, and small files that the interrupted attempt was writing.
void PlacedResult::remove_unknown_files() const {
  std::set<fs::path> known;
  for (const Output& output : outputs_) {
    if (notes_->has_earlier()) known.insert((result_->staged() / output.spec.path).lexically_normal());
  }
  std::vector<fs::path> unknown;
  for (const auto& entry : fs::recursive_directory_iterator(result_->staged())) {
    if (!entry.is_directory() && !known.contains(entry.path().lexically_normal())) unknown.push_back(entry.path());
  }
  for (const fs::path& path : unknown) fs::remove(path);
}

PlacedResult::Output& PlacedResult::open(size_t file) {
  Output& output = outputs_[file];
  std::call_once(output.begun, [&] {
    output.file = std::make_unique<core::PlacedFile>((result_->staged() / output.spec.path).string(),
                                                     output.spec.size_bytes, write_path_, may_keep());
    if (opened) opened(file, *output.file);
  });
  return output;
}

void PlacedResult::write(size_t file, std::span<const std::byte> bytes, int64_t offset) {
  open(file).file->write(bytes, offset);
  if (notes_ != nullptr && bytes.size() >= kNotedBytes) notes_->add(static_cast<int64_t>(file), offset, bytes);
}

bool PlacedResult::keep(size_t file, std::span<std::byte> bytes, int64_t offset) {
  if (!may_keep()) return false;
  const auto noted = notes_->earlier(static_cast<int64_t>(file), offset, static_cast<int64_t>(bytes.size()));
  if (!noted) return false;
  open(file).file->read(bytes, offset);
  return core::WriteNotes::hash_of(bytes) == *noted;
}

void PlacedResult::done(size_t file, int64_t parts) {
  if (outputs_[file].remaining.fetch_sub(parts) == parts) finish(file);
}

void PlacedResult::finish(size_t file) {
  Output& output = open(file);
  output.file->finish();
  output.file.reset();
}

void PlacedResult::write_text(const std::string& path, std::string_view text) {
  core::write_text_atomically((result_->staged() / path).string(), text);
}

void PlacedResult::commit(const std::vector<std::string>& last) {
  for (size_t file = 0; file < outputs_.size(); ++file) {
    const Output& output = outputs_[file];
    MS_CHECK(output.remaining == 0, output.remaining.load(), " parts of ", output.spec.path, " were not written");
    if (output.spec.parts == 0) finish(file);
  }
  result_->publish(last);
  committed_ = true;
}

}  // namespace ms::convert
