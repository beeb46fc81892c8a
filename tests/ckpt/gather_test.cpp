// Gathered saves on thread ranks: written files, memory and connections, and failures.
#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <mutex>
#include <set>
#include <thread>

#include "ckpt/commit.h"
#include "ckpt/copy_box.h"
#include "ckpt/detail/slices.h"
#include "ckpt/diff.h"
#include "ckpt/verify.h"
#include "core/io/file.h"
#include "core/layout/model_layout.h"
#include "core/layout/rank_grid.h"
#include "tests/ckpt/state.h"
#include "tests/support/fault_injection.h"
#include "tests/support/thread_comm.h"

namespace ms::ckpt {
namespace {

namespace fs = std::filesystem;
using namespace test;  // NOLINT
using ms::test::run_thread_ranks;

const layout::ModelLayout kLayout{2, 1, 4, 1};  // tp 2, dp 4 with the distributed optimizer: ranks 0 and 1 write

GatherOptions gather_of(const layout::ModelLayout& layout, int64_t slice_bytes,
                        GatherProgress progress = GatherProgress::kAuto) {
  const layout::RankGrid grid{layout.tensor_model_parallel_size, 1, layout.data_parallel_size,
                              layout.pipeline_model_parallel_size};
  GatherOptions gather;
  for (int rank = 0; rank < grid.world_size(); ++rank) {
    gather.writer_of.push_back(grid.group(rank, layout::RankGrid::kDp).front());
  }
  gather.slice_bytes = slice_bytes;
  gather.progress = progress;
  return gather;
}

using Tweak = std::function<void(Saver::Options&)>;

// Every rank saves once, iteration 100, and waits. Stores the peak of rank 0's ckpt memory in *peak.
fs::path save_once(const fs::path& root, const layout::ModelLayout& layout, const core::TransformerConfig& config,
                   const Tweak& tweak, int64_t* peak = nullptr) {
  fs::path path;
  run_thread_ranks(layout.world_size(), [&](core::Endpoint& endpoint) {
    core::Communicator comm = world_of(endpoint);
    RankState state(layout, config, endpoint.rank(), mixed_roles());
    core::Arena arena;
    std::atomic<int64_t> version{0};
    Saver::Options options;
    options.root = root;
    options.arena = &arena;
    options.state_version = &version;
    tweak(options);
    const bool async = options.async;
    Saver saver(comm, std::move(options));
    saver.save({make_info(layout, config), state.data()});
    saver.before_update();
    if (async) {  // the snapshot must be sent, not the current state
      for (auto& bytes : state.bytes) std::fill(bytes.begin(), bytes.end(), std::byte{0xee});
    }
    saver.finish();
    EXPECT_EQ(saver.last_committed(), 100);
    if (endpoint.rank() != 0) return;
    path = saver.last_path();
    if (peak != nullptr) *peak = arena.peak_bytes(core::MemoryTag::kCkpt);
  });
  return path;
}

TEST(Slices, ContainEveryByteOnceInOrder) {
  const std::vector<int64_t> boxes = {100, 70'000, 3, 65'536, 65'535, 200'000};
  for (const int64_t slice_bytes : {1, 7, 4096, 5000, 65'536, 70'000, 1'000'000}) {
    Slices slices(boxes, slice_bytes);
    size_t box = 0;
    int64_t at = 0, count = 0;
    for (Slice slice = slices.next(); !slice.empty(); slice = slices.next(), ++count) {
      int64_t end = 0;
      for (const SlicePiece& piece : slice) {
        if (at == boxes[box]) ++box, at = 0;
        ASSERT_EQ(piece.box, box);
        ASSERT_EQ(piece.begin, at);
        ASSERT_GT(piece.size, 0);
        ASSERT_GE(piece.at, end);
        if (boxes[box] >= 65'536) {
          ASSERT_EQ(piece.at % 4096, 0);
        }
        at += piece.size;
        end = piece.at + piece.size;
      }
      ASSERT_LE(bytes_of(slice), slices.largest());
    }
    EXPECT_EQ(box, boxes.size() - 1);
    EXPECT_EQ(at, boxes.back());
    EXPECT_LE(slices.largest(), slice_bytes);
    if (slice_bytes == 1'000'000) {
      EXPECT_EQ(count, 1);
    }
  }
  EXPECT_TRUE(Slices({}, 8).next().empty());
}

TEST(Gather, FilesDoNotDependOnSliceSizeAndHoldTheStateOfAParallelSave) {
  const auto config = small_model(127, false, 104);
  TemporaryFolder parallel;
  save_once(parallel.path(), kLayout, config, [](Saver::Options&) {});
  std::map<std::string, std::string> first;
  struct Case {
    int64_t slice_bytes;
    GatherProgress progress;
    Tweak tweak;
  };
  const Tweak nothing = [](Saver::Options&) {};
  for (const Case& c :
       {Case{int64_t{40} << 20, GatherProgress::kAuto, nothing}, Case{1 << 10, GatherProgress::kWriter, nothing},
        Case{4093, GatherProgress::kTrainer, nothing}, Case{1 << 16, GatherProgress::kTrainer, nothing},
        Case{100'000, GatherProgress::kWriter, [](auto& options) { options.async = false; }},
        Case{100'000, GatherProgress::kTrainer, [](auto& options) { options.async = false; }},
        Case{100'000, GatherProgress::kTrainer, [](auto& options) { options.lazy_snapshot = true; }},
        Case{100'000, GatherProgress::kWriter, [](auto& options) { options.staging_buffers = 2; }}}) {
    TemporaryFolder folder;
    const fs::path path = save_once(folder.path(), kLayout, config, [&](Saver::Options& options) {
      options.gather = gather_of(kLayout, c.slice_bytes, c.progress);
      c.tweak(options);
    });
    const auto files = contents(path);
    EXPECT_EQ(files.size(), 3u) << "two rank files and the manifest";
    if (first.empty()) first = files;
    EXPECT_EQ(files, first) << c.slice_bytes;
  }
  TemporaryFolder again;
  const fs::path path = save_once(again.path(), kLayout, config,
                                  [&](Saver::Options& options) { options.gather = gather_of(kLayout, 12'345); });
  EXPECT_TRUE(verify_generation(path, {}).findings.empty());
  const auto gathered = open_native(again.path()), reference = open_native(parallel.path());
  EXPECT_TRUE(diff_checkpoints(*gathered, *reference).differences.empty());
  expect_loads(*gathered, {1, 2, 1, 0}, config);
}

TEST(Gather, CompressesReceivedShards) {
  const auto config = small_model(127, false, 400);
  const layout::ModelLayout layout{1, 1, 2, 1};
  std::map<std::string, std::string> first;
  for (const int64_t slice_bytes : {9'999, 1 << 24}) {
    TemporaryFolder folder;
    const fs::path path = save_once(folder.path(), layout, config, [&](Saver::Options& options) {
      options.gather = gather_of(layout, slice_bytes);
      options.compress = true;
    });
    const auto files = contents(path);
    if (first.empty()) first = files;
    EXPECT_EQ(files, first);
    EXPECT_NE(files.at(kManifestName).find("shuffle-zstd"), std::string::npos);
    EXPECT_TRUE(verify_generation(path, {}).findings.empty());
    expect_loads(*open_native(folder.path()), {1, 1, 1, 0}, config);
  }
}

// Boxes of more than one chunk, which slices cut at any place; half of each is incompressible.
TEST(Gather, ChunksAreCompleteForAnySliceSize) {
  constexpr int64_t kWidth = 2'500'000;
  const auto config = small_model(17);
  const layout::ModelLayout layout{1, 1, 2, 1};
  TemporaryFolder reference;
  const auto save = [&](const fs::path& root, const Tweak& tweak) {
    run_thread_ranks(2, [&](core::Endpoint& endpoint) {
      core::Communicator comm = world_of(endpoint);
      const core::ShardedTensor meta{
          "large", core::TensorRole::kExpAvg, core::DType::kFp32, {2, kWidth}, {endpoint.rank(), 0}, {1, kWidth}, 0};
      std::vector<std::byte> bytes = shard_bytes(meta);
      std::fill(bytes.begin() + kWidth * 2, bytes.end(), std::byte{0});
      Saver::Options options;
      options.root = root;
      tweak(options);
      Saver saver(comm, options);
      saver.save({make_info(layout, config), {{meta, bytes.data()}}});
      saver.finish();
    });
    return contents(root / "iter_0000100");
  };
  save(reference.path(), [](Saver::Options&) {});
  const auto plain = open_native(reference.path());
  for (const bool compress : {false, true}) {
    std::map<std::string, std::string> first;
    for (const int64_t slice_bytes : {3'000'001, 40 << 20}) {
      TemporaryFolder folder;
      const auto files = save(folder.path(), [&](Saver::Options& options) {
        options.compress = compress;
        options.gather = gather_of(layout, slice_bytes);
      });
      if (first.empty()) first = files;
      EXPECT_TRUE(files == first);
      const auto findings = verify_generation(folder.path() / "iter_0000100", {}).findings;
      EXPECT_TRUE(findings.empty()) << findings.front().tensor << ": " << findings.front().text;
      EXPECT_TRUE(diff_checkpoints(*plain, *open_native(folder.path())).differences.empty());
    }
  }
}

// Only the changed boxes of a sender are sent; the others are links in the writer's directory.
TEST(Gather, IncrementalSavesFetchOnlyChangedBoxes) {
  const auto config = small_model(127, false, 104);
  TemporaryFolder folder;
  run_thread_ranks(kLayout.world_size(), [&](core::Endpoint& endpoint) {
    core::Communicator comm = world_of(endpoint);
    RankState state(kLayout, config, endpoint.rank(), mixed_roles());
    Saver::Options options;
    options.root = folder.path();
    options.full_every = 3;
    options.gather = gather_of(kLayout, 5000);
    Saver saver(comm, options);
    for (int64_t iteration = 1; iteration <= 4; ++iteration) {
      if (endpoint.rank() == 5 && iteration == 2) state.bytes.back()[0] ^= std::byte{1};
      saver.save({make_info(kLayout, config, iteration), state.data()});
    }
    saver.finish();
  });
  const auto files_of = [&](int64_t iteration) {
    std::vector<std::string> names;
    for (const auto& [name, text] : contents(folder.path() / generation_name(iteration, 0))) names.push_back(name);
    return names;
  };
  for (const Generation& generation : list_generations(folder.path())) {
    EXPECT_TRUE(verify_generation(generation.path, {}).findings.empty()) << generation.path;
  }
  EXPECT_EQ(files_of(2), (std::vector<std::string>{"iter_0000001.rank_00000.h5", "iter_0000001.rank_00001.h5",
                                                   "manifest.json", "rank_00001.h5"}));
  EXPECT_EQ(files_of(4), (std::vector<std::string>{"manifest.json", "rank_00000.h5", "rank_00001.h5"}));
  EXPECT_LT(fs::file_size(folder.path() / "iter_0000002/rank_00001.h5"),
            fs::file_size(folder.path() / "iter_0000001/rank_00001.h5") / 4);
  const auto first = open_native(folder.path() / generation_name(1, 0));
  const auto second = open_native(folder.path() / generation_name(2, 0));
  EXPECT_EQ(diff_checkpoints(*first, *second).differences.size(), 1u);
}

// Memory bound of a gather: slice x (dp + 1) x 4 bytes, in addition to the snapshot.
TEST(Gather, WriterHoldsOneSlicePerRankAndOneMore) {
  const auto config = small_model(127, false, 104);
  for (const int64_t slice_elements : {500, 2000}) {
    const int64_t bound = slice_elements * (kLayout.data_parallel_size + 1) * 4;
    TemporaryFolder plain, gathered, in_step;
    int64_t snapshot = 0, asynchronous = 0, synchronous = 0;
    save_once(
        plain.path(), kLayout, config, [](Saver::Options&) {}, &snapshot);
    save_once(
        gathered.path(), kLayout, config,
        [&](Saver::Options& options) { options.gather = gather_of(kLayout, slice_elements * 4); }, &asynchronous);
    save_once(
        in_step.path(), kLayout, config,
        [&](Saver::Options& options) {
          options.gather = gather_of(kLayout, slice_elements * 4);
          options.async = false;
        },
        &synchronous);
    EXPECT_GT(snapshot, 4 * bound) << "the snapshot must exceed the bound, or it would prove nothing";
    EXPECT_LE(asynchronous - snapshot, bound);
    EXPECT_LE(synchronous, bound);
    EXPECT_GT(synchronous, bound / 2) << "slices are counted";
  }
}

// Traffic of the saver's own transport: pairs of ranks, and whether another thread used it.
struct Links {
  std::mutex mutex;
  std::set<std::pair<int, int>> used;
  std::atomic<int> by_other_threads{0};
};

class WatchedTransport final : public core::Transport {
 public:
  WatchedTransport(std::unique_ptr<core::Transport> inner, Links& links, bool side)
      : inner_(std::move(inner)), links_(links), side_(side) {}
  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  std::unique_ptr<core::TransferRequest> isend(const void* data, int64_t size_bytes, int peer, int32_t tag) override {
    note(rank(), peer);
    return inner_->isend(data, size_bytes, peer, tag);
  }
  std::unique_ptr<core::TransferRequest> irecv(void* data, int64_t size_bytes, int peer, int32_t tag) override {
    note(peer, rank());
    return inner_->irecv(data, size_bytes, peer, tag);
  }
  std::unique_ptr<core::Transport> duplicate() override {
    return std::make_unique<WatchedTransport>(inner_->duplicate(), links_, true);
  }
  bool any_thread() const override { return inner_->any_thread(); }

 private:
  void note(int a, int b) {
    if (!side_) return;
    if (std::this_thread::get_id() != made_by_) ++links_.by_other_threads;
    std::lock_guard lock(links_.mutex);
    links_.used.emplace(std::min(a, b), std::max(a, b));
  }
  std::unique_ptr<core::Transport> inner_;
  Links& links_;
  bool side_;
  std::thread::id made_by_ = std::this_thread::get_id();
};

TEST(Gather, SixtyFourRanksOpenOneConnectionEach) {
  const auto config = small_model(127);
  const layout::ModelLayout layout{2, 2, 16, 1};
  const GatherOptions gather = gather_of(layout, 1 << 16);
  TemporaryFolder folder;
  Links links;
  run_thread_ranks(
      64,
      [&](core::Endpoint& endpoint) {
        core::Communicator comm = world_of(endpoint);
        const RankState state(layout, config, endpoint.rank(), mixed_roles());
        Saver::Options options;
        options.root = folder.path();
        options.gather = gather;
        Saver saver(comm, options);
        saver.save({make_info(layout, config), state.data()});
        saver.finish();
      },
      60, {},
      [&](std::unique_ptr<core::Transport> inner) {
        return std::make_unique<WatchedTransport>(std::move(inner), links, false);
      });
  std::set<std::pair<int, int>> expected;
  for (int rank = 0; rank < 64; ++rank) {
    const int writer = gather.writer_of[static_cast<size_t>(rank)];
    if (writer != rank) expected.emplace(std::min(rank, writer), std::max(rank, writer));
  }
  EXPECT_EQ(expected.size(), 60u);
  EXPECT_EQ(links.used, expected);
  EXPECT_EQ(contents(folder.path() / "iter_0000100").size(), 5u) << "4 files and the manifest";
  expect_loads(*open_native(folder.path()), {1, 1, 1, 0}, config);
}

// With MPI_THREAD_MULTIPLE the trainer does not use the transport at all; without it, only the trainer does.
TEST(Gather, CommitsWhileTheTrainerComputes) {
  const auto config = small_model(127, false, 104);
  for (const GatherProgress progress : {GatherProgress::kWriter, GatherProgress::kTrainer}) {
    TemporaryFolder folder;
    Links links;
    std::atomic<bool> committed{false};
    run_thread_ranks(
        kLayout.world_size(),
        [&](core::Endpoint& endpoint) {
          core::Communicator comm = world_of(endpoint);
          const RankState state(kLayout, config, endpoint.rank(), mixed_roles());
          Saver::Options options;
          options.root = folder.path();
          options.gather = gather_of(kLayout, 1 << 14, progress);
          Saver saver(comm, options);
          saver.save({make_info(kLayout, config), state.data()});
          for (int layer = 0; layer < 100'000 && !committed; ++layer) {
            if (endpoint.rank() == 0 && saver.last_committed() == 100) committed = true;
            std::this_thread::sleep_for(std::chrono::microseconds(100));  // a layer's work
            if (progress == GatherProgress::kTrainer) endpoint.progress();
          }
          EXPECT_TRUE(committed) << "committed before finish()";
          saver.finish();
        },
        60, {},
        [&](std::unique_ptr<core::Transport> inner) {
          return std::make_unique<WatchedTransport>(std::move(inner), links, false);
        });
    if (progress == GatherProgress::kTrainer) {
      EXPECT_EQ(links.by_other_threads, 0);
    } else {
      EXPECT_GT(links.by_other_threads, 0);
    }
  }
}

TEST(GatherErrors, WriterThreadWithoutThreadMultipleIsRefusedOnAllRanks) {
  TemporaryFolder folder;
  const auto one_thread = [](std::unique_ptr<core::Transport> inner) {
    class OneThread final : public core::Transport {
     public:
      explicit OneThread(std::unique_ptr<core::Transport> inner) : inner_(std::move(inner)) {}
      int rank() const override { return inner_->rank(); }
      int size() const override { return inner_->size(); }
      std::unique_ptr<core::TransferRequest> isend(const void* data, int64_t size, int peer, int32_t tag) override {
        return inner_->isend(data, size, peer, tag);
      }
      std::unique_ptr<core::TransferRequest> irecv(void* data, int64_t size, int peer, int32_t tag) override {
        return inner_->irecv(data, size, peer, tag);
      }

     private:
      std::unique_ptr<core::Transport> inner_;
    };
    return std::make_unique<OneThread>(std::move(inner));
  };
  run_thread_ranks(
      2,
      [&](core::Endpoint& endpoint) {
        core::Communicator comm = world_of(endpoint);
        Saver::Options options;
        options.root = folder.path();
        options.gather = gather_of({1, 1, 2, 1}, 100, GatherProgress::kWriter);
        const auto thrown = thrown_by([&] { Saver(comm, options); });
        EXPECT_EQ(thrown.code, core::ErrorCode::kUnsupported);
        EXPECT_NE(thrown.text.find("MPI_THREAD_MULTIPLE"), std::string::npos) << thrown.text;
      },
      60, {}, one_thread);
}

TEST(GatherErrors, SenderWithoutSnapshotIsNamedAndNextSaveWorks) {
  const auto config = small_model(17);
  TemporaryFolder folder;
  run_thread_ranks(kLayout.world_size(), [&](core::Endpoint& endpoint) {
    core::Communicator comm = world_of(endpoint);
    const RankState state(kLayout, config, endpoint.rank(), mixed_roles());
    Saver::Options options;
    options.root = folder.path();
    options.gather = gather_of(kLayout, 1000);
    Saver saver(comm, options);
    auto broken = state.data();
    if (endpoint.rank() == 5) broken.back().meta.local_shape = {int64_t{1} << 60};  // more than any machine has
    saver.save({make_info(kLayout, config, 100), broken});
    const auto thrown = thrown_by([&] { saver.finish(); });
    EXPECT_EQ(thrown.code, core::ErrorCode::kOutOfMemory);
    EXPECT_NE(thrown.text.find("save iteration 100: rank 1: gather from rank 5: "), std::string::npos) << thrown.text;
    saver.save({make_info(kLayout, config, 200), state.data()});
    saver.finish();
    EXPECT_EQ(saver.last_committed(), 200);
  });
  EXPECT_EQ(list_generations(folder.path()).size(), 1u);
}

// Sends nothing on its side channel. alive: whether the others still see it as alive.
class MuteTransport final : public core::Transport {
 public:
  MuteTransport(std::unique_ptr<core::Transport> inner, int mute, bool alive, bool side)
      : inner_(std::move(inner)), mute_(mute), alive_(alive), side_(side) {}
  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  std::unique_ptr<core::TransferRequest> isend(const void* data, int64_t size_bytes, int peer, int32_t tag) override {
    class Never final : public core::TransferRequest {
      bool test() override { return false; }
    };
    if (side_ && rank() == mute_) return std::make_unique<Never>();
    return inner_->isend(data, size_bytes, peer, tag);
  }
  std::unique_ptr<core::TransferRequest> irecv(void* data, int64_t size_bytes, int peer, int32_t tag) override {
    return inner_->irecv(data, size_bytes, peer, tag);
  }
  std::unique_ptr<core::Transport> duplicate() override {
    return std::make_unique<MuteTransport>(inner_->duplicate(), mute_, alive_, true);
  }
  bool any_thread() const override { return inner_->any_thread(); }
  bool peer_lives(int peer) const override { return alive_ || peer != mute_; }

 private:
  std::unique_ptr<core::Transport> inner_;
  int mute_;
  bool alive_, side_;
};

TEST(GatherErrors, DeadAndSilentPeersAreNamed) {
  const auto config = small_model(17);
  for (const GatherProgress progress : {GatherProgress::kWriter, GatherProgress::kTrainer}) {
    for (const bool alive : {false, true}) {
      if (alive && progress == GatherProgress::kTrainer) continue;  // the transport does not limit this wait
      TemporaryFolder folder;
      run_thread_ranks(
          kLayout.world_size(),
          [&](core::Endpoint& endpoint) {
            core::Communicator comm = world_of(endpoint);
            const RankState state(kLayout, config, endpoint.rank(), mixed_roles());
            Saver::Options options;
            options.root = folder.path();
            options.timeout_s = alive ? 0.3 : 30;
            options.gather = gather_of(kLayout, 1000, progress);
            Saver saver(comm, options);
            saver.save({make_info(kLayout, config, 100), state.data()});
            const auto thrown = thrown_by([&] { saver.finish(); });
            EXPECT_EQ(thrown.code, core::ErrorCode::kPeerFailed);
            EXPECT_NE(thrown.text.find(alive ? "silent for 0.3 s" : "gather from rank 5: rank 5 has died"),
                      std::string::npos)
                << thrown.text;
          },
          60, {},
          [&](std::unique_ptr<core::Transport> inner) {
            return std::make_unique<MuteTransport>(std::move(inner), 5, alive, false);
          });
      EXPECT_TRUE(list_generations(folder.path()).empty());
    }
  }
}

// The writer receives the rest of the data: the senders finish, and the next save works.
TEST(GatherErrors, FullDiskDoesNotBlockSenders) {
  const auto config = small_model(127, false, 104);
  for (const int nth : {1, 20, 60}) {
    TemporaryFolder folder;
    std::optional<ms::test::FaultInjection> disk;
    run_thread_ranks(kLayout.world_size(), [&](core::Endpoint& endpoint) {
      core::Communicator comm = world_of(endpoint);
      const RankState state(kLayout, config, endpoint.rank(), mixed_roles());
      Saver::Options options;
      options.root = folder.path();
      options.write_path = core::WritePath::kBuffered;
      options.gather = gather_of(kLayout, 3000);
      Saver saver(comm, options);
      saver.save({make_info(kLayout, config, 100), state.data()});
      saver.finish();
      if (endpoint.rank() == 0) disk.emplace(ms::test::FaultInjection::Kind::kWrite, nth, ENOSPC);
      comm.barrier();
      saver.save({make_info(kLayout, config, 200), state.data()});
      const auto thrown = thrown_by([&] { saver.finish(); });
      EXPECT_EQ(thrown.code, core::ErrorCode::kIo) << thrown.text;
      comm.barrier();
      if (endpoint.rank() == 0) disk.reset();
      comm.barrier();
      saver.save({make_info(kLayout, config, 300), state.data()});
      saver.finish();
      EXPECT_EQ(saver.last_committed(), 300);
    });
    expect_loads(*open_native(folder.path()), {1, 1, 1, 0}, config);
  }
}

}  // namespace
}  // namespace ms::ckpt
