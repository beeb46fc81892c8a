#include "ckpt/reader.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>
#include <vector>

#include "ckpt/commit.h"
#include "ckpt/copy_box.h"
#include "ckpt/detail/chunk_cache.h"
#include "ckpt/detail/chunk_index.h"
#include "ckpt/detail/rank_file.h"
#include "ckpt/manifest.h"
#include "core/error.h"
#include "core/io/aligned_buffer.h"
#include "core/io/bulk_reader.h"
#include "core/io/file.h"
#include "core/io/json.h"
#include "core/layout/box.h"
#include "kernels/checksum.h"

namespace ms::ckpt {
namespace {

using core::cat;
using core::Error;
using core::ErrorCode;
using detail::ChunkCache;
namespace fs = std::filesystem;

constexpr size_t kMaxOpenFiles = 100;  // two descriptors each

// Opens files on first use and keeps at most kMaxOpenFiles of them.
class FileCache {
 public:
  void resize(size_t files) { files_.resize(files); }
  std::shared_ptr<const core::BulkReader> get(size_t index, const std::string& path) {
    std::lock_guard lock(mutex_);
    if (files_[index] == nullptr) {
      if (open_.size() >= kMaxOpenFiles) {
        files_[open_[next_]] = nullptr;  // readers that still use it keep it open
        open_[next_] = index;
        next_ = (next_ + 1) % kMaxOpenFiles;
      } else {
        open_.push_back(index);
      }
      files_[index] = std::make_shared<const core::BulkReader>(path);
    }
    return files_[index];
  }

 private:
  std::mutex mutex_;
  std::vector<std::shared_ptr<const core::BulkReader>> files_;
  std::vector<size_t> open_;
  size_t next_ = 0;
};

class NativeSource final : public Source {
 public:
  explicit NativeSource(fs::path directory) : directory_(std::move(directory)) {
    manifest_ = check_generation(directory_);
    files_.resize(manifest_.files.size());
    verified_ = std::make_unique<std::atomic<bool>[]>(manifest_.chunk_xxh3.size());
  }

  const CheckpointInfo& info() const override { return manifest_.info; }
  const ShardTable& shards() const override { return manifest_.boxes; }

  std::string describe(int32_t shard) const override {
    const auto box = static_cast<size_t>(shard);
    return cat(path_of(box), ":", manifest_.dataset_of(box));
  }

  std::optional<uint64_t> logical_xxh3(const std::string& key, core::TensorRole role) const override {
    const auto tensor = manifest_.boxes.find(key, role);
    return tensor ? std::optional(manifest_.logical_xxh3[static_cast<size_t>(*tensor)]) : std::nullopt;
  }

  void read(int32_t shard, const core::Dims& offset, const core::Dims& extent, std::byte* out) override {
    read_into(shard, offset, extent, out, extent, core::Dims(extent.size(), 0));
  }
  void read_into(int32_t shard, const core::Dims& offset, const core::Dims& extent, std::byte* out,
                 const core::Dims& out_shape, const core::Dims& out_offset) override;

  int64_t scratch_bytes() const override {  // the reader's buffer; stored bytes and planes
    const auto& places = manifest_.places;
    const auto is_compressed = [](const BoxPlace& place) { return place.compressed; };
    return core::BulkReader::kBufferBytes +
           (std::any_of(places.begin(), places.end(), is_compressed) ? 2 * kChunkBytes : 0);
  }
  bool expect_stream(int64_t cache_bytes, int threads) override {
    const auto chunks = static_cast<size_t>(std::max(cache_bytes / kChunkBytes, int64_t{threads} + 1));
    cache_ = std::make_unique<ChunkCache>(chunks, static_cast<size_t>(kChunkBytes));
    return true;
  }

 private:
  std::string path_of(size_t box) const { return (directory_ / manifest_.file_of(box).name).string(); }
  void load_chunk(int32_t shard, size_t chunk, std::byte* out);
  void decode_chunk(int32_t shard, size_t chunk, std::byte* out);
  const std::byte* last_decoded(int32_t shard, size_t chunk);
  void verify_chunk(int32_t shard, size_t chunk, std::span<const std::byte> bytes);

  static int64_t next_id() {
    static std::atomic<int64_t> last{0};
    return ++last;
  }

  const int64_t id_ = next_id();  // unique among the sources of this process
  fs::path directory_;
  Manifest manifest_;
  std::unique_ptr<std::atomic<bool>[]> verified_;  // per chunk of the manifest
  FileCache files_;
  std::unique_ptr<ChunkCache> cache_;  // while streaming
};

void NativeSource::verify_chunk(int32_t shard, size_t chunk, std::span<const std::byte> bytes) {
  const auto box = static_cast<size_t>(shard);
  const uint64_t seen = kernels::xxh3(bytes.data(), bytes.size()), expected = manifest_.chunks_of(box)[chunk];
  if (seen != expected) {
    const int64_t begin = manifest_.places[box].at + static_cast<int64_t>(chunk) * kChunkBytes;
    throw Error(ErrorCode::kCorruptData,
                cat(describe(shard), ": ", manifest_.boxes.key(manifest_.boxes.tensor_of(box)), ": bytes ", begin,
                    " to ", begin + static_cast<int64_t>(bytes.size()), " hash to ", core::hex16(seen),
                    " but the manifest says ", core::hex16(expected), ". The file is damaged."));
  }
  verified_[manifest_.first_chunk[box] + chunk].store(true, std::memory_order_relaxed);
}

// Reads and decodes a whole compressed chunk: up to kChunkBytes, padding included.
void NativeSource::decode_chunk(int32_t shard, size_t chunk, std::byte* out) {
  static thread_local core::AlignedBuffer buffer;
  const auto box = static_cast<size_t>(shard);
  const auto file = files_.get(static_cast<size_t>(manifest_.places[box].file), path_of(box));
  const int64_t size = manifest_.boxes.size_bytes(box), begin = static_cast<int64_t>(chunk) * kChunkBytes;
  const auto full = static_cast<size_t>(full_chunk_bytes(size));
  try {
    const ChunkEntry entry = read_chunk_index(file->file(), manifest_, box)[chunk];
    buffer.need(static_cast<size_t>(entry.bytes));
    const std::span stored(buffer.data(), static_cast<size_t>(entry.bytes));
    file->read(stored, entry.at);
    try {
      decode_stored(stored, static_cast<int>(core::size_of(manifest_.boxes.dtype_of(box))), {out, full});
      verify_chunk(shard, chunk, {out, static_cast<size_t>(std::min(kChunkBytes, size - begin))});
    } catch (const Error&) {
      check_stored(path_of(box), entry, stored);  // throws a more specific error
      throw;
    }
  } catch (const Error& e) {
    throw e.within(cat(describe(shard), ": ", manifest_.boxes.key(manifest_.boxes.tensor_of(box)), ": chunk ", chunk));
  }
}

// The same, cached until the thread's next call: boxes of one chunk are read one after another.
const std::byte* NativeSource::last_decoded(int32_t shard, size_t chunk) {
  struct Decoded {
    int64_t source = 0;
    uint32_t chunk = 0;
    std::vector<std::byte> values;
  };
  static thread_local Decoded last;
  const uint32_t index = manifest_.first_chunk[static_cast<size_t>(shard)] + static_cast<uint32_t>(chunk);
  if (last.source == id_ && last.chunk == index) return last.values.data();
  last.source = 0;
  last.values.resize(static_cast<size_t>(full_chunk_bytes(manifest_.boxes.size_bytes(static_cast<size_t>(shard)))));
  decode_chunk(shard, chunk, last.values.data());
  last.source = id_;
  last.chunk = index;
  return last.values.data();
}

// Reads a whole chunk.
void NativeSource::load_chunk(int32_t shard, size_t chunk, std::byte* out) {
  const auto box = static_cast<size_t>(shard);
  const BoxPlace& place = manifest_.places[box];
  if (place.compressed) return decode_chunk(shard, chunk, out);
  const int64_t begin = static_cast<int64_t>(chunk) * kChunkBytes;
  const std::span values(out, static_cast<size_t>(std::min(kChunkBytes, manifest_.boxes.size_bytes(box) - begin)));
  files_.get(static_cast<size_t>(place.file), path_of(box))->read(values, place.at + begin);
  verify_chunk(shard, chunk, values);
}

// Iterates over the chunks of the shard that intersect the box. A chunk is read whole and hashed the first time; later,
// only the part that is needed.
void NativeSource::read_into(int32_t shard, const core::Dims& offset, const core::Dims& extent, std::byte* out,
                             const core::Dims& out_shape, const core::Dims& out_offset) {
  const auto box_index = static_cast<size_t>(shard);
  const core::Dims shape = manifest_.boxes.extents(box_index);
  MS_CHECK(offset.size() == shape.size() && extent.size() == shape.size(), describe(shard));
  for (size_t axis = 0; axis < shape.size(); ++axis) {
    MS_CHECK(offset[axis] >= 0 && extent[axis] >= 0 && extent[axis] <= shape[axis] - offset[axis], describe(shard));
  }
  if (core::num_elements(extent) == 0) return;
  const BoxPlace& place = manifest_.places[box_index];
  const int64_t item = core::size_of(manifest_.boxes.dtype_of(box_index));
  const int64_t total = core::num_elements(shape);
  const int64_t chunk_elements = kChunkBytes / item;
  core::Dims last(offset);
  for (size_t axis = 0; axis < shape.size(); ++axis) last[axis] += extent[axis] - 1;
  const int64_t first_chunk = layout::flat_index(shape, offset) / chunk_elements;
  const int64_t last_chunk = layout::flat_index(shape, last) / chunk_elements;
  const bool dense_out = is_one_run(extent, out_shape);

  struct Part {
    layout::Box common;     // in the shard
    layout::Box container;  // the run of whole slices that contains it, dense in the file
    int64_t first;          // flat index of the container's first element
  };
  static thread_local std::vector<std::byte> scratch;
  std::vector<Part> parts;
  for (int64_t chunk = first_chunk; chunk <= last_chunk; ++chunk) {
    const int64_t chunk_first = chunk * chunk_elements;
    const int64_t count = std::min(chunk_elements, total - chunk_first);
    parts.clear();
    layout::for_each_box_of_range(shape, chunk_first, count, [&](const layout::Box& box, int64_t first) {
      if (auto common = layout::intersect(box.offset, box.extent, offset, extent)) {
        parts.push_back({std::move(*common), box, first});
      }
    });
    if (parts.empty()) continue;
    core::Dims part_last(parts.back().common.offset);
    for (size_t axis = 0; axis < shape.size(); ++axis) part_last[axis] += parts.back().common.extent[axis] - 1;
    int64_t begin = layout::flat_index(shape, parts.front().common.offset);  // flat range of the needed elements
    int64_t end = layout::flat_index(shape, part_last) + 1;
    const uint32_t index = manifest_.first_chunk[box_index] + static_cast<uint32_t>(chunk);
    const bool verified = verified_[index].load(std::memory_order_relaxed);
    const bool a_little = verified && !place.compressed && 4 * (end - begin) < count;
    ChunkCache::Chunk held;
    const std::byte* bytes = nullptr;  // address of element `begin`
    if (cache_ != nullptr && total * item >= kPackedBelow && (!a_little || cache_->has(index))) {
      held = cache_->get(index, [&](std::byte* to) { load_chunk(shard, static_cast<size_t>(chunk), to); });
      bytes = held.get() + (begin - chunk_first) * item;
    } else if (place.compressed) {
      bytes = last_decoded(shard, static_cast<size_t>(chunk)) + (begin - chunk_first) * item;
    } else {
      if (!verified) {
        begin = chunk_first;
        end = chunk_first + count;
      }
      // If the needed elements are contiguous both here and in `out`, read them directly into it.
      int64_t wanted = 0;
      for (const Part& part : parts) wanted += core::num_elements(part.common.extent);
      std::byte* direct = nullptr;
      if (wanted == end - begin && dense_out) {
        core::Dims at(parts.front().common.offset);
        for (size_t axis = 0; axis < shape.size(); ++axis) at[axis] -= offset[axis];
        direct = out + (layout::flat_index(out_shape, out_offset) + layout::flat_index(extent, at)) * item;
      }
      const auto size = static_cast<size_t>((end - begin) * item);
      if (direct == nullptr && scratch.size() < size) scratch.resize(size);
      const std::span<std::byte> span(direct != nullptr ? direct : scratch.data(), size);
      files_.get(static_cast<size_t>(place.file), path_of(box_index))->read(span, place.at + begin * item);
      if (!verified) verify_chunk(shard, static_cast<size_t>(chunk), span);
      if (direct != nullptr) continue;
      bytes = span.data();
    }
    for (const Part& part : parts) {
      core::Dims from(part.common.offset), to(part.common.offset);
      for (size_t axis = 0; axis < shape.size(); ++axis) {
        from[axis] -= part.container.offset[axis];
        to[axis] += out_offset[axis] - offset[axis];
      }
      // `begin` may lie inside the container: the pointer is where the container's first element would be.
      copy_box(bytes + (part.first - begin) * item, part.container.extent, from, out, out_shape, to, part.common.extent,
               item);
    }
  }
}

}  // namespace

std::unique_ptr<Source> open_native(const fs::path& path) {
  return std::make_unique<NativeSource>(resolve_generation(path));
}

bool is_native(const fs::path& path) {
  if (fs::exists(path / kManifestName)) return true;
  const auto generations = list_generations(path);
  return std::any_of(generations.begin(), generations.end(),
                     [](const Generation& generation) { return fs::exists(generation.path / kManifestName); });
}

}  // namespace ms::ckpt
