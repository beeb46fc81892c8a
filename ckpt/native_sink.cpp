#include "ckpt/native_sink.h"

#include <algorithm>
#include <atomic>
#include <mutex>

#include "ckpt/commit.h"
#include "ckpt/detail/assemble.h"
#include "ckpt/detail/rank_file.h"
#include "core/error.h"
#include "core/io/atomic_directory.h"
#include "core/io/file.h"
#include "core/io/json.h"
#include "core/io/lock_file.h"
#include "core/log.h"

namespace ms::ckpt {
namespace {

using core::cat;
using core::Error;
using core::ErrorCode;

class NativeSink final : public Sink {
 public:
  explicit NativeSink(NativeSinkOptions options) : options_(std::move(options)) {}

  void begin(const CheckpointInfo& info, const ShardTable& targets) override;
  void write(int32_t target, int64_t first, int64_t count, const std::byte* data) override;
  std::filesystem::path commit() override;
  int32_t file_of(int32_t target) const override { return places_[static_cast<size_t>(target)].rank; }

 private:
  // A rank file is created with its first write and finished with its last, so that few are open at a time.
  struct Rank {
    std::vector<core::ShardedTensor> boxes;
    std::unique_ptr<RankFile> file;
    std::once_flag created;
    std::atomic<int64_t> remaining{0};  // elements
    RankFileRecord record;
  };
  struct Place {
    int32_t rank = 0;
    int32_t box = 0;  // within the rank
  };

  NativeSinkOptions options_;
  CheckpointInfo info_;
  core::WritePath write_path_ = core::WritePath::kBuffered;
  std::unique_ptr<core::LockFile> lock_;
  std::unique_ptr<core::AtomicDirectory> directory_;
  std::vector<std::unique_ptr<Rank>> ranks_;
  std::vector<Place> places_;
};

void NativeSink::begin(const CheckpointInfo& info, const ShardTable& targets) {
  MS_CHECK(options_.rank_of_target.empty() || options_.rank_of_target.size() == targets.size(), "ranks of targets");
  info_ = info;
  for (int rank = 0; rank < options_.num_ranks; ++rank) ranks_.push_back(std::make_unique<Rank>());
  int64_t bytes = 0;
  for (size_t i = 0; i < targets.size(); ++i) {
    const int32_t rank = options_.rank_of_target.empty() ? 0 : options_.rank_of_target[i];
    Rank& holder = *ranks_[static_cast<size_t>(rank)];
    places_.push_back({rank, static_cast<int32_t>(holder.boxes.size())});
    holder.boxes.push_back(targets[i]);
    const int64_t elements = targets.elements(i);
    MS_CHECK(elements > 0 && targets.replica_id(i) == 0, targets[i].key, ": an empty box or a replica to write");
    holder.remaining += elements;
    bytes += targets.size_bytes(i);
  }
  core::make_directories_durably(options_.root);
  lock_ = std::make_unique<core::LockFile>((options_.root / kLockName).string());
  if (const int64_t room = core::available_bytes(options_.root.string()); room < bytes) {
    throw Error(ErrorCode::kIo, cat(options_.root.string(), ": the checkpoint takes ", bytes, " bytes, but only ", room,
                                    " are free. Make room or save elsewhere."));
  }
  const core::WritePathChoice choice = core::choose_write_path(options_.root.string(), options_.write_path);
  core::log_debug("ckpt.write", cat("writing by ", choice.why));
  write_path_ = choice.path;
  directory_ = std::make_unique<core::AtomicDirectory>(options_.root /
                                                       (generation_name(info.iteration, 0) + core::temporary_suffix()));
}

void NativeSink::write(int32_t target, int64_t first, int64_t count, const std::byte* data) {
  const Place& place = places_[static_cast<size_t>(target)];
  Rank& rank = *ranks_[static_cast<size_t>(place.rank)];
  std::call_once(rank.created, [&] {
    rank.file = std::make_unique<RankFile>(directory_->path().string(), place.rank, rank.boxes,
                                           RankFile::Options{write_path_, 0, options_.compress});
  });
  rank.file->write(place.box, first, count, data);
  if (rank.remaining.fetch_sub(count) == count) {
    rank.record = rank.file->finish(nullptr);
    rank.file.reset();
  }
}

std::filesystem::path NativeSink::commit() {
  Manifest manifest;
  manifest.producer = options_.producer;
  manifest.info = info_;
  std::vector<RankFileRecord> records;
  for (const auto& rank : ranks_) {
    MS_CHECK(rank->remaining == 0, rank->remaining.load(), " elements were not written");
    records.push_back(std::move(rank->record));
  }
  assemble_tensors(manifest, records);
  for (size_t t = 0; options_.expected_logical_xxh3 && t < manifest.boxes.num_tensors(); ++t) {
    const auto tensor = static_cast<int32_t>(t);
    const std::string key(manifest.boxes.key(tensor));
    const auto expected =
        options_.expected_logical_xxh3(key, manifest.boxes.role(tensor), manifest.boxes.dtype(tensor));
    MS_CHECK(!expected || *expected == manifest.logical_xxh3[t], key, " (",
             core::role_name(manifest.boxes.role(tensor)), ") has the logical hash ",
             core::hex16(manifest.logical_xxh3[t]), " after the copy, but had ", core::hex16(*expected));
  }
  return commit_generation(options_.root, *directory_, std::move(manifest));
}

}  // namespace

std::unique_ptr<Sink> make_native_sink(NativeSinkOptions options) {
  return std::make_unique<NativeSink>(std::move(options));
}

}  // namespace ms::ckpt
