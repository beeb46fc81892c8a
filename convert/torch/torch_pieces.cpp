#include "convert/torch/torch_pieces.h"

#include <algorithm>
#include <list>
#include <map>
#include <mutex>
#include <utility>

#include "convert/detail/printable.h"
#include "core/error.h"

namespace ms::convert {
namespace {

using core::cat;
using core::Error;
using core::ErrorCode;
using detail::printable;

constexpr size_t kMaxOpenFiles = 64;

}  // namespace

// The most recently used files, and the CRC checks of every file that was opened.
struct TorchPieces::Cache {
  std::mutex mutex;
  std::list<std::pair<uint32_t, std::shared_ptr<const TorchFile>>> opened;  // most recent first
  std::map<uint32_t, std::shared_ptr<RecordChecks>> checks;
  bool one_pass = false;
};

TorchPieces::TorchPieces(std::string where) : where_(std::move(where)), cache_(std::make_unique<Cache>()) {}
TorchPieces::~TorchPieces() = default;

uint32_t TorchPieces::add_file(std::string path) {
  paths_.push_back(std::move(path));
  return static_cast<uint32_t>(paths_.size() - 1);
}

uint32_t TorchPieces::add_view(uint32_t file, TorchTensor tensor) {
  uint64_t end = tensor.elements() == 0 ? 0 : tensor.offset + 1;  // in elements of its storage
  for (size_t axis = 0; end > 0 && axis < tensor.shape.size(); ++axis) {
    end += (tensor.shape[axis] - 1) * tensor.stride[axis];
  }
  views_.push_back({file, end * (bits_of(tensor.dtype) / 8), std::move(tensor)});
  return static_cast<uint32_t>(views_.size() - 1);
}

uint64_t TorchPieces::elements_of(uint32_t view) const { return views_[view].tensor.elements(); }
const std::string& TorchPieces::path_of(uint32_t view) const { return paths_[views_[view].file]; }

size_t TorchPieces::add_tensor(std::string name, std::vector<uint64_t> shape, std::vector<Run> runs) {
  const auto corrupt = [&](const auto&... parts) {
    return Error(ErrorCode::kCorruptData, cat(where_, ": ", printable(name), " ", parts...));
  };
  uint64_t wanted = 1;
  for (const uint64_t length : shape) {
    if (__builtin_mul_overflow(wanted, length, &wanted)) throw corrupt("has too many elements to count");
  }
  Entry entry;
  uint64_t held = 0;
  for (const Run& run : runs) {
    const View& view = views_[run.view];
    if (&run != &runs[0] && view.tensor.dtype != entry.dtype) {
      throw corrupt("comes in parts of ", safetensors_dtype_name(entry.dtype), " and ",
                    safetensors_dtype_name(view.tensor.dtype));
    }
    entry.dtype = view.tensor.dtype;
    const uint64_t there = view.tensor.elements();
    if (run.count > there || run.first > there - run.count) {
      throw corrupt("should have elements ", run.first, " to ", run.first + run.count, " of a tensor in ",
                    paths_[view.file], ", which has ", there);
    }
    held += run.count;
    entry.ends.push_back(held);
  }
  if (held != wanted) throw corrupt("has shape ", shape, ", but its parts have ", held, " elements");
  entry.at = end_;
  if (__builtin_mul_overflow(wanted, bits_of(entry.dtype) / 8, &entry.bytes) ||
      __builtin_add_overflow(end_, entry.bytes, &end_)) {
    throw corrupt("has too many bytes to count");
  }
  if (!by_name_.emplace(name, entries_.size()).second) throw corrupt("occurs twice");
  entry.name = std::move(name);
  entry.shape = std::move(shape);
  entry.runs = std::move(runs);
  entries_.push_back(std::move(entry));
  return entries_.size() - 1;
}

TensorFile::Tensor TorchPieces::operator[](size_t index) const {
  const Entry& entry = entries_[index];
  return {entry.name, entry.dtype, entry.shape, entry.at, entry.at + entry.bytes};
}

std::optional<size_t> TorchPieces::find(std::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? std::nullopt : std::optional(found->second);
}

void TorchPieces::read(uint64_t offset, std::span<std::byte> out) const {
  if (out.empty()) return;
  const auto after = std::upper_bound(entries_.begin(), entries_.end(), offset,
                                      [](uint64_t at, const Entry& entry) { return at < entry.at; });
  MS_CHECK(after != entries_.begin(), "byte ", offset, " is in no tensor");
  const Entry& entry = *std::prev(after);
  read_runs(entry, (offset - entry.at) / (bits_of(entry.dtype) / 8), out, true);
}

void TorchPieces::peek(size_t index, uint64_t first, std::span<std::byte> out) const {
  read_runs(entries_[index], first, out, false);
}

void TorchPieces::read_runs(const Entry& entry, uint64_t element, std::span<std::byte> out, bool check) const {
  const uint64_t item = bits_of(entry.dtype) / 8;
  auto run = static_cast<size_t>(std::upper_bound(entry.ends.begin(), entry.ends.end(), element) - entry.ends.begin());
  for (; !out.empty(); ++run) {
    MS_CHECK(run < entry.runs.size(), "element ", element, " is after the end of ", entry.name);
    const uint64_t begin = entry.ends[run] - entry.runs[run].count;
    const uint64_t count = std::min(entry.ends[run] - element, out.size() / item);
    read_view(views_[entry.runs[run].view], entry.runs[run].first + element - begin, out.first(count * item), check);
    out = out.subspan(count * item);
    element += count;
  }
}

void TorchPieces::read_view(const View& view, uint64_t first, std::span<std::byte> out, bool check) const {
  if (out.empty()) return;
  const std::shared_ptr<const TorchFile> file = open(view.file);
  const size_t record = view.tensor.record;
  const auto& records = file->archive().entries();
  if (record >= records.size() || static_cast<uint64_t>(records[record].bytes) < view.storage_bytes) {
    throw Error(ErrorCode::kCorruptData, cat(paths_[view.file], ": changed while it was being read"));
  }
  check ? file->read(view.tensor, first, out) : file->peek(view.tensor, first, out);
}

void TorchPieces::begin_one_pass() {
  cache_->one_pass = true;
  for (const auto& [file, checks] : cache_->checks) checks->set_one_pass(true);
}

void TorchPieces::end_one_pass(bool all) {
  cache_->one_pass = false;
  for (const auto& [file, checks] : cache_->checks) {
    checks->set_one_pass(false);
    if (checks->has_parts()) checks->finish(TorchFile(paths_[file]).archive());
  }
  for (const View& view : views_) {
    if (all) open(view.file)->checks()->check(open(view.file)->archive(), view.tensor.record);
  }
}

std::shared_ptr<const TorchFile> TorchPieces::open(uint32_t file) const {
  std::lock_guard lock(cache_->mutex);
  auto& opened = cache_->opened;
  const auto found = std::find_if(opened.begin(), opened.end(), [&](const auto& one) { return one.first == file; });
  if (found != opened.end()) {
    opened.splice(opened.begin(), opened, found);
    return found->second;
  }
  std::shared_ptr<RecordChecks>& checks = cache_->checks[file];
  auto made = std::make_shared<TorchFile>(ArchiveRange::whole(paths_[file]), checks);
  checks = made->checks();
  checks->set_one_pass(cache_->one_pass);
  opened.emplace_front(file, made);
  if (opened.size() > kMaxOpenFiles) opened.pop_back();
  return made;
}

}  // namespace ms::convert
