#include "ckpt/detail/rank_file.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <exception>
#include <map>
#include <semaphore>
#include <set>
#include <thread>

#include "ckpt/copy_box.h"
#include "ckpt/manifest.h"
#include "core/error.h"
#include "core/io/json.h"
#include "core/log.h"
#include "core/trace/span.h"
#include "kernels/checksum.h"

namespace ms::ckpt {
namespace {

class Permit {
 public:
  explicit Permit(std::counting_semaphore<>& permits) : permits_(permits) { permits_.acquire(); }
  ~Permit() { permits_.release(); }
  Permit(const Permit&) = delete;
  Permit& operator=(const Permit&) = delete;

 private:
  std::counting_semaphore<>& permits_;
};

}  // namespace

std::string rank_file_name(int rank) {
  char name[32];
  std::snprintf(name, sizeof name, "rank_%05d.h5", rank);
  return name;
}

std::string cut_cells_name(int rank) {
  char name[32];
  std::snprintf(name, sizeof name, "rank_%05d.cells", rank);
  return name;
}

uint64_t hash_structure(const core::File& file, const std::vector<BoxRecord>& boxes) {
  std::vector<std::pair<int64_t, int64_t>> data;  // begin, end
  for (const BoxRecord& box : boxes) {
    if (box.stored.empty()) data.emplace_back(box.at, box.at + bytes_of(box.tensor));
    for (const ChunkEntry& chunk : box.stored) data.emplace_back(chunk.at, chunk.at + chunk.bytes);
  }
  const int64_t size = file.size_bytes();
  data.emplace_back(size, size);
  std::sort(data.begin(), data.end());
  constexpr int64_t kPiece = int64_t{1} << 20;
  std::vector<std::byte> piece;
  std::vector<uint64_t> words;
  int64_t at = 0;
  for (const auto& [begin, end] : data) {
    if (begin > at) {
      words.push_back(static_cast<uint64_t>(at));
      words.push_back(static_cast<uint64_t>(begin - at));
      while (at < begin) {
        piece.resize(static_cast<size_t>(std::min(kPiece, begin - at)));
        file.pread(piece, at);
        words.push_back(kernels::xxh3(piece.data(), piece.size()));
        at += static_cast<int64_t>(piece.size());
      }
    }
    at = std::max(at, end);
  }
  return kernels::xxh3(words.data(), words.size() * sizeof(uint64_t));
}

RankFile::RankFile(const std::string& directory, int rank, std::vector<core::ShardedTensor> boxes,
                   const Options& options)
    : path_(directory + "/" + rank_file_name(rank)),
      rank_(rank),
      cut_cells_(directory + "/" + cut_cells_name(rank), options.cut_cells_bytes),
      compress_(options.compress),
      stop_(options.stop) {
  record_.name = rank_file_name(rank);
  for (auto& box : boxes) {
    MS_CHECK(bytes_of(box) > 0, box.key, ": a box without elements");
    BoxRecord entry{std::move(box), {}, 0, {}, false, {}};
    entry.chunk_xxh3.resize(static_cast<size_t>((bytes_of(entry.tensor) + kChunkBytes - 1) / kChunkBytes));
    record_.boxes.push_back(std::move(entry));
  }
  record_.logical.resize(record_.boxes.size());
  hashed_.resize(record_.boxes.size());
  lay_out();
  file_ = core::File::open_write(path_);
  int64_t most = file_.size_bytes();  // upper bound, if no chunk shrinks; HDF5 truncates the file when it closes it
  for (const ChunkPlace& chunk : chunks_) {
    const int64_t full = full_chunk_bytes(bytes_of(record_.boxes[chunk.box].tensor));
    most += (full + core::kDirectAlignment - 1) / core::kDirectAlignment * core::kDirectAlignment;
  }
  file_.preallocate(most);
  try {
    writer_.emplace(file_, options.write_path, options.bytes_per_second);
  } catch (const core::Error& e) {
    // This path worked when it was probed. If rings or locked memory have run out, the save continues at lower speed.
    core::log_warning("ckpt.write", core::cat(path_, " is written through the page cache: ", e.what()));
    writer_.emplace(file_, core::WritePath::kBuffered, options.bytes_per_second);
  }
  later_.emplace(*writer_);
}

// Creates every dataset and attribute at its full size; hashes are zero until finish().
void RankFile::lay_out() {
  struct Index {
    std::string text;
    int64_t at;
  };
  std::vector<Index> indices;
  core::H5File h5 = core::H5File::create(path_);
  h5.create_attribute("/", "format_version", std::vector<int64_t>{1});
  std::set<std::string> groups;
  const auto need_group = [&](const std::string& group) {
    if (group.rfind("/optim/", 0) == 0 && groups.insert("/optim").second) h5.create_group("/optim");
    if (groups.insert(group).second) h5.create_group(group);
  };
  std::map<std::string, int> copies;  // a tensor may have several boxes in one file: name, name#1, name#2
  std::map<core::TensorRole, std::vector<size_t>> small;
  first_chunk_.resize(record_.boxes.size());
  for (size_t i = 0; i < record_.boxes.size(); ++i) {
    BoxRecord& box = record_.boxes[i];
    const core::ShardedTensor& tensor = box.tensor;
    if (bytes_of(tensor) < kPackedBelow) {
      small[tensor.role].push_back(i);
      continue;
    }
    need_group(std::string(dataset_group(tensor.role)));
    const int copy = copies[dataset_name(tensor.key, tensor.role, 0)]++;
    box.dataset = dataset_name(tensor.key, tensor.role, copy);
    if (compress_) {
      const int64_t elements = core::num_elements(tensor.local_shape);
      h5.create_chunked_dataset(box.dataset, tensor.dtype, elements,
                                full_chunk_bytes(bytes_of(tensor)) / core::size_of(tensor.dtype));
      h5.create_attribute(box.dataset, "chunk_xxh3_logical", box.chunk_xxh3);
      box.compressed = true;
      box.stored.resize(box.chunk_xxh3.size());
      first_chunk_[i] = chunks_.size();
      for (size_t chunk = 0; chunk < box.stored.size(); ++chunk) chunks_.push_back({i, static_cast<int64_t>(chunk)});
    } else {
      box.at = h5.create_dataset(box.dataset, tensor.dtype, tensor.local_shape);
    }
    h5.create_attribute(box.dataset, "dtype", std::string(core::dtype_name(tensor.dtype)));
    h5.create_attribute(box.dataset, "role", std::string(core::role_name(tensor.role)));
    h5.create_attribute(box.dataset, "global_shape", tensor.global_shape);
    h5.create_attribute(box.dataset, "global_offset", tensor.global_offset);
    h5.create_attribute(box.dataset, "box_shape", tensor.local_shape);
    h5.create_attribute(box.dataset, "chunk_xxh3_stored", box.chunk_xxh3);
  }
  if (!small.empty()) need_group("/packed");
  for (auto& [role, boxes] : small) {
    const std::string dataset = core::cat("/packed/", core::role_name(role));
    nlohmann::json index = nlohmann::json::array();
    int64_t end = 0;
    for (const size_t i : boxes) {
      const core::ShardedTensor& tensor = record_.boxes[i].tensor;
      const int64_t begin = (end + kPackedAlignment - 1) / kPackedAlignment * kPackedAlignment;
      end = begin + bytes_of(tensor);
      record_.boxes[i].dataset = dataset;
      record_.boxes[i].at = begin;  // offset within the dataset for now
      index.push_back({{"name", tensor.key},
                       {"dtype", core::dtype_name(tensor.dtype)},
                       {"global_shape", tensor.global_shape},
                       {"global_offset", tensor.global_offset},
                       {"box_shape", tensor.local_shape},
                       {"begin", begin}});
    }
    const int64_t at = h5.create_dataset(dataset, core::DType::kUInt8, {end});
    for (const size_t i : boxes) record_.boxes[i].at += at;
    h5.create_attribute(dataset, "role", std::string(core::role_name(role)));
    h5.create_attribute(dataset, "chunk_xxh3_stored", std::vector<uint64_t>(boxes.size()));
    Index entry{index.dump(), 0};
    entry.at = h5.create_dataset(dataset + ".index", core::DType::kUInt8, {static_cast<int64_t>(entry.text.size())});
    indices.push_back(std::move(entry));
    packed_.push_back({dataset, boxes});
  }
  if (!chunks_.empty()) {
    const auto count = static_cast<int64_t>(chunks_.size());
    chunk_index_at_ = h5.create_dataset("/chunk_index", core::DType::kInt64, {count, kChunkEntryBytes / 8});
    for (size_t i = 0; i < record_.boxes.size(); ++i) {
      if (record_.boxes[i].stored.empty()) continue;
      record_.boxes[i].at = chunk_index_at_ + static_cast<int64_t>(first_chunk_[i]) * kChunkEntryBytes;
    }
  }
  h5.close();
  if (!chunks_.empty()) h5_.emplace(core::H5File::open_write(path_));
  const core::File file = core::File::open_write(path_);
  for (const Index& index : indices) file.pwrite(std::as_bytes(std::span(index.text)), index.at);
}

void RankFile::write(int32_t box, int64_t first, int64_t count, const std::byte* data) {
  core::BulkWriter::Batch batch(*writer_);
  write(box, first, count, data, batch);
  writer_->wait(batch);
}

void RankFile::write(int32_t box_index, int64_t first, int64_t count, const std::byte* data,
                     core::BulkWriter::Batch& batch) {
  BoxRecord& box = record_.boxes[static_cast<size_t>(box_index)];
  const int64_t item = core::size_of(box.tensor.dtype);
  const std::span values(data, static_cast<size_t>(count * item));
  hash(box, first, count, data);
  if (box.stored.empty()) return writer_->submit(values, box.at + first * item, batch);
  const size_t chunk = static_cast<size_t>(first * item / kChunkBytes);
  store(first_chunk_[static_cast<size_t>(box_index)] + chunk, encode(box, values), batch);
}

void RankFile::hash(BoxRecord& box, int64_t first, int64_t count, const std::byte* data) {
  const auto index = &box - record_.boxes.data();
  if (hashed_[static_cast<size_t>(index)]) return;
  const int64_t item = core::size_of(box.tensor.dtype);
  const int64_t begin = first * item, size = count * item;
  MS_CHECK(begin % kChunkBytes == 0 && size == std::min(kChunkBytes, bytes_of(box.tensor) - begin), box.tensor.key,
           ": bytes ", begin, " + ", size, " are not a chunk");
  LogicalPartial partial;
  box.chunk_xxh3[static_cast<size_t>(begin / kChunkBytes)] = hash_chunk(box.tensor, first, count, data, partial);
  std::lock_guard lock(mutex_);
  cut_cells_.take(static_cast<int32_t>(index), partial);
  record_.logical[static_cast<size_t>(index)].merge(partial);
}

void RankFile::set_hashes(int32_t box, std::vector<uint64_t> chunk_xxh3, LogicalPartial logical) {
  BoxRecord& known = record_.boxes[static_cast<size_t>(box)];
  MS_CHECK(chunk_xxh3.size() == known.chunk_xxh3.size(), known.tensor.key, ": ", chunk_xxh3.size(), " hashes for ",
           known.chunk_xxh3.size(), " chunks");
  hashed_[static_cast<size_t>(box)] = true;
  known.chunk_xxh3 = std::move(chunk_xxh3);
  cut_cells_.take(box, logical);
  record_.logical[static_cast<size_t>(box)] = std::move(logical);
}

void RankFile::write_piece(int32_t box_index, int64_t begin, std::span<const std::byte> bytes, Batch& batch) {
  BoxRecord& box = record_.boxes[static_cast<size_t>(box_index)];
  const auto size = static_cast<int64_t>(bytes.size());
  const int64_t total = bytes_of(box.tensor);
  MS_CHECK(begin >= 0 && begin + size <= total, box.tensor.key, ": bytes ", begin, " + ", size, " of ", total);
  if (box.stored.empty()) return writer_->submit(bytes, box.at + begin, batch);
  MS_CHECK(begin % kChunkBytes == 0 && size == std::min(kChunkBytes, total - begin), box.tensor.key, ": bytes ", begin,
           " + ", size, " are not a chunk");
  Batch own(*writer_);  // the next chunk reuses this one's memory
  store(first_chunk_[static_cast<size_t>(box_index)] + static_cast<size_t>(begin / kChunkBytes), encode(box, bytes),
        own);
  writer_->wait(own);
}

// The result is owned by this thread and valid until its next call.
core::ChunkEncoder::Stored RankFile::encode(const BoxRecord& box, std::span<const std::byte> values) {
  thread_local core::ChunkEncoder encoder;
  return encoder.encode(values, static_cast<size_t>(full_chunk_bytes(bytes_of(box.tensor))),
                        static_cast<int>(core::size_of(box.tensor.dtype)));
}

// Waits for its turn, then starts writing.
void RankFile::store(size_t place, const core::ChunkEncoder::Stored& stored, core::BulkWriter::Batch& batch) {
  const auto [box_index, index] = chunks_[place];
  BoxRecord& box = record_.boxes[box_index];
  ChunkEntry entry{0, static_cast<int64_t>(stored.bytes.size()),
                   kernels::xxh3(stored.bytes.data(), stored.bytes.size())};
  try {
    std::unique_lock lock(mutex_);
    if (!turn_.wait(lock, stop_.get_token(), [&] { return next_chunk_ == place; })) {
      throw core::Error(core::ErrorCode::kIo, core::cat(path_, ": another write to it has failed"));
    }
    entry.at = h5_->place_chunk(box.dataset, index, stored.bytes, stored.raw).offset;
    box.stored[static_cast<size_t>(index)] = entry;
    ++next_chunk_;
  } catch (...) {
    stop_.request_stop();
    throw;
  }
  turn_.notify_all();
  writer_->submit(stored.bytes, entry.at, batch);
}

void RankFile::write_all(std::span<const std::byte* const> data, int threads) {
  MS_CHECK(data.size() <= record_.boxes.size(), data.size(), " of ", record_.boxes.size(), " boxes");
  for (size_t i = 0; i < data.size(); ++i) {
    const BoxRecord& box = record_.boxes[i];
    if (!box.stored.empty()) continue;
    const int64_t item = core::size_of(box.tensor.dtype), elements = bytes_of(box.tensor) / item;
    for (int64_t first = 0; first < elements; first += kChunkBytes / item) {
      write(static_cast<int32_t>(i), first, std::min(kChunkBytes / item, elements - first), data[i] + first * item,
            *later_);
    }
  }
  write_compressed(data, threads);
}

// Starts more threads than may compress at the same time: the others wait for their turn, or for the disk.
void RankFile::write_compressed(std::span<const std::byte* const> data, int threads) {
  const auto last =
      std::find_if(chunks_.begin(), chunks_.end(), [&](const ChunkPlace& c) { return c.box >= data.size(); });
  const auto end = static_cast<size_t>(last - chunks_.begin());
  if (end == 0) return;
  std::counting_semaphore<> computing(threads);
  std::atomic<size_t> next{0};
  std::exception_ptr error;
  const auto write_some = [&] {
    try {
      for (size_t place = next++; place < end && !stop_.stop_requested(); place = next++) {
        const auto [box_index, index] = chunks_[place];
        BoxRecord& box = record_.boxes[box_index];
        const int64_t item = core::size_of(box.tensor.dtype), begin = index * kChunkBytes;
        const std::span values(data[box_index] + begin,
                               static_cast<size_t>(std::min(kChunkBytes, bytes_of(box.tensor) - begin)));
        core::ChunkEncoder::Stored stored;
        {
          const Permit permit(computing);
          hash(box, begin / item, static_cast<int64_t>(values.size()) / item, values.data());
          stored = encode(box, values);
        }
        core::BulkWriter::Batch batch(*writer_);
        store(place, stored, batch);
        writer_->wait(batch);
      }
    } catch (...) {
      std::lock_guard lock(mutex_);
      if (error == nullptr) error = std::current_exception();
      stop_.request_stop();
    }
  };
  std::vector<std::thread> writers;
  for (int i = 0; i < 2 * threads; ++i) writers.emplace_back(write_some);
  for (std::thread& writer : writers) writer.join();
  if (error != nullptr) std::rethrow_exception(error);
}

RankFileRecord RankFile::finish(core::trace::Recorder* recorder) {
  writer_->wait(*later_);
  later_.reset();
  writer_.reset();
  MS_CHECK(next_chunk_ == chunks_.size(), path_, ": ", chunks_.size() - next_chunk_, " chunks were not written");
  core::H5File h5 = h5_ ? std::move(*h5_) : core::H5File::open_write(path_);
  h5_.reset();
  std::vector<ChunkEntry> index;
  for (const BoxRecord& box : record_.boxes) {
    if (bytes_of(box.tensor) < kPackedBelow) continue;
    std::vector<uint64_t> stored = box.chunk_xxh3;
    if (!box.stored.empty()) {
      h5.overwrite_attribute(box.dataset, "chunk_xxh3_logical", box.chunk_xxh3);
      stored.clear();
      for (const ChunkEntry& chunk : box.stored) stored.push_back(chunk.xxh3);
      index.insert(index.end(), box.stored.begin(), box.stored.end());
    }
    h5.overwrite_attribute(box.dataset, "chunk_xxh3_stored", stored);
  }
  for (const Packed& packed : packed_) {
    std::vector<uint64_t> hashes;
    for (const size_t i : packed.boxes) hashes.push_back(record_.boxes[i].chunk_xxh3.front());
    h5.overwrite_attribute(packed.dataset, "chunk_xxh3_stored", hashes);
  }
  h5.close();
  if (!index.empty()) file_.pwrite(std::as_bytes(std::span(index)), chunk_index_at_);
  if (cut_cells_.finish(record_.logical)) record_.cut_cells = cut_cells_name(rank_);
  record_.bytes = file_.size_bytes();
  record_.xxh3 = hash_structure(file_, record_.boxes);
  {
    core::trace::Span span(recorder, core::trace::Category::kUserAnnotation, "ckpt.fsync", -1, record_.bytes);
    file_.fsync();
  }
  file_.close();
  return std::move(record_);
}

}  // namespace ms::ckpt
