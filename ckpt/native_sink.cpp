#include "ckpt/native_sink.h"

#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <mutex>
#include <numeric>
#include <set>
#include <stop_token>

#include "ckpt/commit.h"
#include "ckpt/detail/assemble.h"
#include "ckpt/detail/deal.h"
#include "ckpt/detail/rank_file.h"
#include "core/comm/agree.h"
#include "core/error.h"
#include "core/io/atomic_directory.h"
#include "core/io/file.h"
#include "core/io/json.h"
#include "core/io/lock_file.h"
#include "core/log.h"
#include "kernels/checksum.h"

namespace ms::ckpt {
namespace {

using core::cat;
using core::Error;
using core::ErrorCode;

constexpr int64_t kMaxNoteBytes = int64_t{1} << 30;

std::filesystem::path notes_of(const std::filesystem::path& directory) { return directory.string() + "-notes"; }

std::string note_name(int rank) {
  char name[32];
  std::snprintf(name, sizeof name, "rank_%05d.done", rank);
  return name;
}

// Stores the record of a finished file, and its hash.
void leave_note(const std::filesystem::path& directory, int rank, const RankFileRecord& record) {
  std::string note = encode_records({record});
  note += core::hex16(kernels::xxh3(note.data(), note.size()));
  core::write_text_atomically((notes_of(directory) / note_name(rank)).string(), note);
}

// nullopt unless the file exists as the note describes it.
std::optional<RankFileRecord> read_note(const std::filesystem::path& directory, int rank) {
  const std::filesystem::path path = notes_of(directory) / note_name(rank);
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return std::nullopt;
  std::string note = core::read_text(path.string(), kMaxNoteBytes);
  if (note.size() < 16) return std::nullopt;
  const std::string hash = note.substr(note.size() - 16);
  note.resize(note.size() - 16);
  if (core::hex16(kernels::xxh3(note.data(), note.size())) != hash) return std::nullopt;
  std::vector<RankFileRecord> records = decode_records(note);
  struct stat status {};
  const std::string file = (directory / rank_file_name(rank)).string();
  if (records.size() != 1 || ::stat(file.c_str(), &status) != 0 || status.st_size != records[0].bytes) {
    return std::nullopt;
  }
  if (records[0].cut_cells.empty()) return std::move(records[0]);
  try {
    CutCellsReader((directory / records[0].cut_cells).string()).check();
  } catch (const Error&) {
    return std::nullopt;
  }
  return std::move(records[0]);
}

class NativeSink final : public Sink {
 public:
  explicit NativeSink(NativeSinkOptions options) : options_(std::move(options)) {
    MS_CHECK(!options_.plan_hash.empty() || (options_.team == nullptr && !options_.resume), "a plan without a hash");
  }
  ~NativeSink() override {
    for (const auto& directory : {own_directory_.get(), notes_.get()}) {
      if (options_.resume && !committed_ && directory != nullptr) directory->leave();
    }
  }

  void begin(const CheckpointInfo& info, const ShardTable& targets) override;
  bool wants(int32_t target) const override { return ranks_[rank_of(target)]->mine; }
  void write(int32_t target, int64_t first, int64_t count, const std::byte* data) override;
  void agree(const std::function<void()>& writing) override;
  std::filesystem::path commit() override;
  void stop() override { stop_.request_stop(); }
  int64_t scratch_bytes() const override { return options_.compress ? 2 * kChunkBytes : 0; }  // frame and planes
  int32_t file_of(int32_t target) const override { return places_[static_cast<size_t>(target)].rank; }
  size_t files_at_once() const override { return options_.resume ? 2 : Sink::files_at_once(); }

 private:
  // A rank file is created with its first write and finished with its last, so that few are open at the same time.
  struct Rank {
    std::vector<core::ShardedTensor> boxes;
    int64_t bytes = 0;
    bool mine = true;
    std::unique_ptr<RankFile> file;
    std::once_flag created;
    std::atomic<int64_t> remaining{0};  // elements
    RankFileRecord record;              // only without plan_hash; otherwise in the note
  };
  struct Place {
    int32_t rank = 0;
    int32_t box = 0;  // within the rank
  };

  size_t rank_of(int32_t target) const { return static_cast<size_t>(places_[static_cast<size_t>(target)].rank); }
  bool coordinator() const { return options_.team == nullptr || options_.team->rank() == 0; }
  void open_directory(int64_t bytes);
  std::vector<int> take_finished() const;
  void deal_files(const std::vector<int>& finished);

  NativeSinkOptions options_;
  CheckpointInfo info_;
  core::WritePath write_path_ = core::WritePath::kBuffered;
  std::unique_ptr<core::LockFile> lock_;                  // coordinator only
  std::unique_ptr<core::AtomicDirectory> own_directory_;  // coordinator only
  std::unique_ptr<core::AtomicDirectory> notes_;          // coordinator only, with plan_hash; never committed
  std::filesystem::path directory_;
  bool committed_ = false;
  std::stop_source stop_;  // for the writes of all files
  std::vector<std::unique_ptr<Rank>> ranks_;
  std::vector<Place> places_;
};

// Coordinator: locks the root and creates the temporary directory.
void NativeSink::open_directory(int64_t bytes) {
  core::make_directories_durably(options_.root);
  lock_ = std::make_unique<core::LockFile>((options_.root / kLockName).string());
  const core::WritePathChoice choice = core::choose_write_path(options_.root.string(), options_.write_path);
  core::log_debug("ckpt.write", cat("writing by ", choice.why));
  write_path_ = choice.path;
  directory_ = options_.root / (generation_name(info_.iteration, 0) +
                                (options_.plan_hash.empty() ? core::temporary_suffix() : ".tmp-" + options_.plan_hash));
  // Make the removal durable: notes of dead attempts must not reappear and match new files.
  if (!options_.resume && remove_abandoned(options_.root) > 0) core::fsync_directory(options_.root.string());
  own_directory_ = std::make_unique<core::AtomicDirectory>(directory_);
  if (!options_.plan_hash.empty()) notes_ = std::make_unique<core::AtomicDirectory>(notes_of(directory_));
  struct stat status {};
  for (size_t rank = 0; rank < ranks_.size(); ++rank) {  // files of an earlier process need no more space
    if (::stat((directory_ / rank_file_name(static_cast<int>(rank))).c_str(), &status) == 0) {
      bytes -= int64_t{status.st_blocks} * 512;
    }
  }
  if (const int64_t room = core::available_bytes(options_.root.string()); room < bytes) {
    throw Error(ErrorCode::kIo, cat(options_.root.string(), ": the checkpoint takes ", bytes, " bytes, but only ", room,
                                    " are free. Make room or save elsewhere."));
  }
}

// The ranks whose files are complete. Removes all other files durably: a note must not reappear for a file that is
// being written again.
std::vector<int> NativeSink::take_finished() const {
  std::vector<int> finished;
  std::set<std::string> known;
  for (int rank = 0; rank < options_.num_ranks; ++rank) {
    if (!read_note(directory_, rank)) continue;
    finished.push_back(rank);
    known.insert(note_name(rank));
    known.insert(rank_file_name(rank));
    known.insert(cut_cells_name(rank));
  }
  for (const auto& directory : {notes_->path(), directory_}) {
    for (const auto& entry : std::filesystem::directory_iterator(directory)) {
      if (!known.contains(entry.path().filename().string())) std::filesystem::remove_all(entry.path());
    }
  }
  core::fsync_directory(notes_->path().string());
  return finished;
}

// Distributes the unfinished files among the processes.
void NativeSink::deal_files(const std::vector<int>& finished) {
  std::vector<int64_t> bytes;
  for (const auto& rank : ranks_) bytes.push_back(rank->bytes);
  for (const int rank : finished) bytes[static_cast<size_t>(rank)] = 0;
  const int me = options_.team == nullptr ? 0 : options_.team->rank();
  const std::vector<int> owners = deal(bytes, options_.team == nullptr ? 1 : options_.team->size());
  for (size_t rank = 0; rank < ranks_.size(); ++rank) {
    ranks_[rank]->mine = bytes[rank] > 0 && owners[rank] == me;
    if (!ranks_[rank]->mine) ranks_[rank]->remaining = 0;
  }
}

void NativeSink::begin(const CheckpointInfo& info, const ShardTable& targets) {
  require_model(info, "a native checkpoint (ms)");
  MS_CHECK(options_.rank_of_target.empty() || options_.rank_of_target.size() == targets.size(), "ranks of targets");
  info_ = info;
  for (int rank = 0; rank < options_.num_ranks; ++rank) ranks_.push_back(std::make_unique<Rank>());
  int64_t bytes = 0;
  std::vector<int32_t> order(targets.size());
  std::iota(order.begin(), order.end(), 0);
  const auto before = [&](int32_t a, int32_t b) { return write_order(targets, a) < write_order(targets, b); };
  std::sort(order.begin(), order.end(), before);
  places_.resize(targets.size());
  for (const int32_t target : order) {
    const auto i = static_cast<size_t>(target);
    const int32_t rank = options_.rank_of_target.empty() ? 0 : options_.rank_of_target[i];
    Rank& holder = *ranks_[static_cast<size_t>(rank)];
    places_[i] = {rank, static_cast<int32_t>(holder.boxes.size())};
    holder.boxes.push_back(targets[i]);
    const int64_t elements = targets.elements(i);
    MS_CHECK(elements > 0 && targets.replica_id(i) == 0, targets[i].key, ": an empty box or a replica to write");
    holder.remaining += elements;
    holder.bytes += targets.size_bytes(i);
    bytes += targets.size_bytes(i);
  }
  std::vector<int> finished;
  agree([&] {
    if (!coordinator()) return;
    open_directory(bytes);
    if (options_.resume) finished = take_finished();
  });
  if (options_.team != nullptr) {
    const nlohmann::json mine = {directory_.string(), static_cast<int>(write_path_), finished};
    const auto answer = nlohmann::json::parse(options_.team->bcast_string(mine.dump(), 0));
    directory_ = answer[0].get<std::string>();
    write_path_ = static_cast<core::WritePath>(answer[1].get<int>());
    finished = answer[2].get<std::vector<int>>();
    agree([&] {
      if (std::filesystem::is_directory(directory_)) return;
      throw Error(ErrorCode::kIo,
                  cat(directory_.string(), " is not visible to all processes: they need a common file system"));
    });
  }
  if (!finished.empty()) {
    core::log_info("ckpt.write", cat(finished.size(), " of ", ranks_.size(), " files were finished before"));
  }
  deal_files(finished);
}

void NativeSink::write(int32_t target, int64_t first, int64_t count, const std::byte* data) {
  const Place& place = places_[static_cast<size_t>(target)];
  Rank& rank = *ranks_[static_cast<size_t>(place.rank)];
  std::call_once(rank.created, [&] {
    rank.file = std::make_unique<RankFile>(directory_.string(), place.rank, rank.boxes,
                                           RankFile::Options{write_path_, 0, options_.compress, kCutCellsBytes, stop_});
  });
  rank.file->write(place.box, first, count, data);
  if (rank.remaining.fetch_sub(count) == count) {
    rank.record = rank.file->finish(nullptr);
    rank.file.reset();
    if (options_.plan_hash.empty()) return;
    leave_note(directory_, place.rank, rank.record);
    rank.record = {};
  }
}

void NativeSink::agree(const std::function<void()>& writing) {
  if (options_.team == nullptr) return writing();
  core::collectively(*options_.team, "write", writing);
}

std::filesystem::path NativeSink::commit() {
  std::string path;
  agree([&] {
    if (!coordinator()) return;
    Manifest manifest;
    manifest.producer = options_.producer;
    manifest.info = info_;
    std::vector<RankFileRecord> records;
    for (int r = 0; r < options_.num_ranks; ++r) {
      Rank& rank = *ranks_[static_cast<size_t>(r)];
      MS_CHECK(rank.remaining == 0, rank.remaining.load(), " elements were not written");
      if (!options_.plan_hash.empty() && !rank.boxes.empty()) {
        auto record = read_note(directory_, r);
        if (!record) {
          throw Error(ErrorCode::kIo, cat((directory_ / rank_file_name(r)).string(), ": does not match its note"));
        }
        rank.record = std::move(*record);
      }
      records.push_back(std::move(rank.record));
    }
    assemble_tensors(manifest, records, directory_);
    for (size_t t = 0; options_.expected_logical_xxh3 && t < manifest.boxes.num_tensors(); ++t) {
      const auto tensor = static_cast<int32_t>(t);
      const std::string key(manifest.boxes.key(tensor));
      const auto expected =
          options_.expected_logical_xxh3(key, manifest.boxes.role(tensor), manifest.boxes.dtype(tensor));
      MS_CHECK(!expected || *expected == manifest.logical_xxh3[t], key, " (",
               core::role_name(manifest.boxes.role(tensor)), ") has the logical hash ",
               core::hex16(manifest.logical_xxh3[t]), " after the copy, but had ", core::hex16(*expected));
    }
    path = commit_generation(options_.root, *own_directory_, std::move(manifest)).string();
    committed_ = true;
  });
  return options_.team == nullptr ? path : options_.team->bcast_string(path, 0);
}

}  // namespace

std::unique_ptr<Sink> make_native_sink(NativeSinkOptions options) {
  return std::make_unique<NativeSink>(std::move(options));
}

}  // namespace ms::ckpt
