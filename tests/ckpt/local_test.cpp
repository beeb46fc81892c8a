// Local checkpoints on thread ranks with a folder per node: what is restored after nodes are lost, ranks are killed and
// files are damaged.
#include "ckpt/local.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <mutex>
#include <nlohmann/json.hpp>
#include <random>

#include "ckpt/commit.h"
#include "ckpt/detail/local_choice.h"
#include "ckpt/shard_list.h"
#include "ckpt/verify.h"
#include "core/io/file.h"
#include "core/layout/model_layout.h"
#include "tests/ckpt/state.h"
#include "tests/support/fault_injection.h"
#include "tests/support/thread_comm.h"

namespace ms::ckpt {
namespace {

namespace fs = std::filesystem;
using namespace test;  // NOLINT
using ms::test::run_thread_ranks;

const layout::ModelLayout kLayout{2, 1, 2, 1};  // tp 2, dp 2 with the distributed optimizer
constexpr int kRanksOfANode = 2;

fs::path node_of(const fs::path& folder, int rank) { return folder / core::cat("node", rank / kRanksOfANode); }

// A rank's state at this iteration.
RankState state_at(const layout::ModelLayout& layout, const core::TransformerConfig& config, int rank,
                   int64_t iteration) {
  RankState state(layout, config, rank, mixed_roles());
  for (auto& bytes : state.bytes) {
    for (std::byte& byte : bytes) byte ^= static_cast<std::byte>(iteration);
  }
  return state;
}

using Tweak = std::function<void(LocalTier::Options&)>;

LocalTier::Options options_of(const fs::path& folder, int rank, int factor) {
  LocalTier::Options options;
  options.root = node_of(folder, rank);
  options.replication_jump = kRanksOfANode;
  options.replication_factor = factor;
  options.slice_bytes = 10'000;
  return options;
}

struct Job {
  layout::ModelLayout layout = kLayout;
  core::TransformerConfig config = small_model(127);
  int factor = 1;
  Tweak tweak = [](LocalTier::Options&) {};

  void on_ranks(const fs::path& folder, const std::function<void(core::Communicator&, LocalTier&)>& body) const {
    run_thread_ranks(layout.world_size(), [&](core::Endpoint& endpoint) {
      core::Communicator comm = world_of(endpoint);
      LocalTier::Options options = options_of(folder, endpoint.rank(), factor);
      tweak(options);
      LocalTier tier(comm, std::move(options));
      body(comm, tier);
    });
  }

  // Saves these iterations, each after the previous one is complete.
  void save(const fs::path& folder, const std::vector<int64_t>& iterations) const {
    on_ranks(folder, [&](core::Communicator& comm, LocalTier& tier) {
      for (const int64_t iteration : iterations) {
        RankState state = state_at(layout, config, comm.rank(), iteration);
        tier.save({make_info(layout, config, iteration), state.data()});
        tier.before_update();
        for (auto& bytes : state.bytes) std::fill(bytes.begin(), bytes.end(), std::byte{0xee});
        tier.finish();
      }
    });
  }

  struct Restored {
    int64_t iteration = -1;  // nothing was found
    int fetched = 0;
  };
  // Restores all ranks and compares with what they had saved.
  Restored restore(const fs::path& folder, int64_t newer_than = 0) const {
    Restored restored;
    std::mutex mutex;
    on_ranks(folder, [&](core::Communicator& comm, LocalTier& tier) {
      const auto metas = shards_of_rank(layout, config, comm.rank(), mixed_roles());
      const auto found = tier.find(layout::layout_to_json(layout), metas, newer_than);
      std::lock_guard lock(mutex);
      if (!found) return;
      restored = {found->iteration, found->fetched};
      EXPECT_EQ(found->source->info().common["consumed_train_samples"], 6400);
      const RankState expected = state_at(layout, config, comm.rank(), found->iteration);
      const auto own = own_tensors(metas);
      std::vector<std::vector<std::byte>> memory;
      std::vector<ShardTarget> targets;
      for (size_t i = 0; i < own.size(); ++i) {
        memory.emplace_back(expected.bytes[i].size(), std::byte{0xa5});
        targets.push_back({own[i], memory.back().data()});
      }
      load_shards(*found->source, targets);
      for (size_t i = 0; i < own.size(); ++i) EXPECT_EQ(memory[i], expected.bytes[i]) << own[i].key;
    });
    return restored;
  }
};

std::vector<int64_t> iterations_in(const fs::path& folder, int node, int rank) {
  std::vector<int64_t> iterations;
  for (const Generation& generation :
       list_generations(folder / core::cat("node", node) / core::cat("rank_0000", rank))) {
    iterations.push_back(generation.iteration);
  }
  return iterations;
}

fs::path part_of(const fs::path& folder, int node, int rank, const std::string& name = "iter_0000010") {
  return folder / core::cat("node", node) / core::cat("rank_0000", rank) / name;
}

void flip_byte(const fs::path& path, int64_t offset) {
  const auto file = core::File::open_write(path);
  std::byte byte{};
  file.pread({&byte, 1}, offset);
  byte ^= std::byte{1};
  file.pwrite({&byte, 1}, offset);
}

using Iterations = std::vector<int64_t>;

TEST(OwnTensors, AreUnshardedWithUniqueNames) {
  const core::ShardedTensor box{"w", core::TensorRole::kParam, core::DType::kBf16, {8, 4}, {2, 0}, {3, 4}, 1};
  core::ShardedTensor second = box, other = box;
  second.global_offset = {5, 0};
  other.role = core::TensorRole::kMaster;
  const auto own = own_tensors(std::vector{box, second, other});
  ASSERT_EQ(own.size(), 3u);
  EXPECT_EQ(own[0],
            (core::ShardedTensor{"w", core::TensorRole::kParam, core::DType::kBf16, {3, 4}, {0, 0}, {3, 4}, 0}));
  EXPECT_EQ(own[1].key, "w@1");
  EXPECT_EQ(own[2].key, "w");
}

LocalPart part(int rank, int64_t iteration, const std::string& save = "a", int ranks = 2) {
  return {rank, ranks, iteration, save, core::cat("of ", rank), {}};
}
LocalOffer offer(int rank, std::vector<LocalPart> parts) { return {core::cat("of ", rank), std::move(parts), {}}; }

TEST(LocalChoice, SelectsNewestIterationWithAllParts) {
  const auto choose = [](std::vector<LocalPart> at_0, std::vector<LocalPart> at_1, int64_t newer_than = 0) {
    const std::vector<LocalOffer> offers = {decode_offer(encode_offer(offer(0, std::move(at_0)))),
                                            decode_offer(encode_offer(offer(1, std::move(at_1))))};
    return choose_local(offers, newer_than);
  };
  EXPECT_EQ(choose({}, {}).iteration, -1);
  LocalChoice choice = choose({part(0, 10), part(0, 20)}, {part(1, 10)});
  EXPECT_EQ(choice.iteration, 10);
  EXPECT_EQ(choice.holder, (std::vector<int>{0, 1}));
  ASSERT_EQ(choice.notes.size(), 1u);
  EXPECT_EQ(choice.notes[0], "local iteration 20 is passed over: no rank has the part of rank 1");
  EXPECT_EQ(choose({part(0, 10), part(0, 20)}, {part(1, 10)}, 10).iteration, -1)
      << "the persistent checkpoint is as new";
  choice = choose({part(0, 20), part(1, 20)}, {part(1, 10)});
  EXPECT_EQ(choice.iteration, 20);
  EXPECT_EQ(choice.holder, (std::vector<int>{0, 0}));
  choice = choose({part(0, 20), part(1, 20)}, {part(1, 20), part(0, 20)});
  EXPECT_EQ(choice.holder, (std::vector<int>{0, 1})) << "a rank that has its part fetches nothing";
  EXPECT_EQ(choose({part(0, 20, "a")}, {part(1, 20, "b")}).iteration, -1) << "parts of two runs";
  EXPECT_EQ(choose({part(0, 20, "a"), part(0, 20, "b")}, {part(1, 20, "a"), part(1, 20, "b")}).save, "b");
  choice = choose({part(0, 20, "a", 4), part(0, 10)}, {part(1, 20, "a", 4), part(1, 10)});
  EXPECT_EQ(choice.iteration, 10);
  EXPECT_EQ(choice.notes.at(0), "local iteration 20 is passed over: it was saved with another layout of the ranks");
  LocalPart moved = part(1, 20);
  moved.shards = "of another";
  EXPECT_EQ(choose({part(0, 20)}, {moved}).iteration, -1);
}

TEST(LocalTier, EveryRankRestoresFromItsOwnPart) {
  for (const Tweak& tweak : std::vector<Tweak>{[](LocalTier::Options&) {},
                                               [](LocalTier::Options& options) {
                                                 options.writing.async = false;
                                                 options.writing.compress = true;
                                               }}) {
    TemporaryFolder folder;
    Job job;
    job.tweak = tweak;
    job.save(folder.path(), {10});
    for (int rank = 0; rank < 4; ++rank) {
      const auto report = verify_generation(part_of(folder.path(), rank / 2, rank), {});
      EXPECT_TRUE(report.findings.empty()) << finding_text(report.findings.front());
    }
    const auto restored = job.restore(folder.path());
    EXPECT_EQ(restored.iteration, 10);
    EXPECT_EQ(restored.fetched, 0);
    EXPECT_EQ(job.restore(folder.path(), 10).iteration, -1) << "a persistent checkpoint is as new";
  }
}

TEST(LocalTier, OnlyTheNewestIsKept) {
  TemporaryFolder folder;
  Job job;
  job.factor = 2;
  job.save(folder.path(), {10, 20, 30});
  for (int node = 0; node < 2; ++node) {
    for (int rank = 0; rank < 4; ++rank) {
      EXPECT_EQ(iterations_in(folder.path(), node, rank), Iterations{30}) << node << ' ' << rank;
    }
  }
  // The previous one is kept until the new one is known to be complete on all ranks.
  job.on_ranks(folder.path(), [&](core::Communicator& comm, LocalTier& tier) {
    const RankState state = state_at(kLayout, job.config, comm.rank(), 40);
    tier.save({make_info(kLayout, job.config, 40), state.data()});
    while (comm.allreduce(int64_t{tier.status().unfinished ? 1 : 0}) > 0) ::usleep(1000);
    EXPECT_EQ(iterations_in(folder.path(), comm.rank() / 2, comm.rank()), (Iterations{40, 30}));
    comm.barrier();
    tier.confirm();
    tier.finish();
    EXPECT_EQ(iterations_in(folder.path(), comm.rank() / 2, comm.rank()), Iterations{40});
  });
  // A run that continues from an earlier iteration removes later ones.
  job.save(folder.path(), {35});
  EXPECT_EQ(iterations_in(folder.path(), 0, 0), Iterations{35});
}

TEST(LocalTier, LostNodeIsRestoredFromReplicasOnly) {
  for (const GatherProgress progress : {GatherProgress::kWriter, GatherProgress::kTrainer}) {
    TemporaryFolder folder;
    Job job;
    job.factor = 2;
    job.tweak = [&](LocalTier::Options& options) { options.progress = progress; };
    job.save(folder.path(), {10});
    for (int rank = 0; rank < 4; ++rank) {  // same on both nodes
      EXPECT_EQ(contents(part_of(folder.path(), 0, rank)), contents(part_of(folder.path(), 1, rank)));
    }
    fs::remove_all(folder / "node1");
    auto restored = job.restore(folder.path());
    EXPECT_EQ(restored.iteration, 10);
    EXPECT_EQ(restored.fetched, 2);
    EXPECT_EQ(job.restore(folder.path()).fetched, 0) << "fetched parts were stored";
    fs::remove_all(folder / "node0");
    job.factor = 1;  // existing parts are found with any replication
    restored = job.restore(folder.path());
    EXPECT_EQ(restored.iteration, -1) << "node 1 fetched its own parts, not those of node 0";
  }
  TemporaryFolder folder;
  const Job job;
  job.save(folder.path(), {10});
  fs::remove_all(folder / "node1");
  EXPECT_EQ(job.restore(folder.path()).iteration, -1);
}

TEST(LocalTier, CliquesOfMoreThanTwoHaveAllParts) {
  TemporaryFolder folder;
  Job job;
  job.layout = {1, 1, 8, 1};
  job.factor = 4;
  job.save(folder.path(), {10});
  for (int node = 0; node < 3; ++node) fs::remove_all(folder / core::cat("node", node));
  const auto restored = job.restore(folder.path());
  EXPECT_EQ(restored.iteration, 10);
  EXPECT_EQ(restored.fetched, 6);
}

// Ranks of one node share its folder: a replica there would be the part itself.
TEST(LocalTier, ReplicaInSameFolderIsThePartItself) {
  TemporaryFolder folder;
  Job job;
  job.factor = 2;
  job.tweak = [](LocalTier::Options& options) { options.replication_jump = 1; };
  job.save(folder.path(), {10, 20});
  EXPECT_EQ(iterations_in(folder.path(), 0, 0), Iterations{20});
  EXPECT_EQ(job.restore(folder.path()).iteration, 20);
}

TEST(LocalTier, DamagedPartCountsAsAbsent) {
  for (const int factor : {1, 2}) {
    for (const std::string name : {"rank_00000.h5", "manifest.json"}) {
      TemporaryFolder folder;
      Job job;
      job.factor = factor;
      job.save(folder.path(), {10});
      const fs::path file = part_of(folder.path(), 1, 2) / name;
      flip_byte(file, static_cast<int64_t>(fs::file_size(file)) / 2);
      const auto restored = job.restore(folder.path());
      EXPECT_EQ(restored.iteration, factor == 2 ? 10 : -1) << name;
      EXPECT_EQ(restored.fetched, factor - 1) << name;
    }
  }
  TemporaryFolder folder;
  Job job;
  job.factor = 2;
  job.save(folder.path(), {10});
  for (const int node : {0, 1}) flip_byte(part_of(folder.path(), node, 2) / "rank_00000.h5", 5000);
  EXPECT_EQ(job.restore(folder.path()).iteration, -1) << "the replica too";
}

TEST(LocalTier, OtherLayoutIsSkipped) {
  TemporaryFolder folder;
  Job job;
  job.save(folder.path(), {10});
  job.layout = {1, 1, 4, 1};
  EXPECT_EQ(job.restore(folder.path()).iteration, -1);
  job.layout = {2, 1, 1, 1};
  EXPECT_EQ(job.restore(folder.path()).iteration, -1);
  EXPECT_EQ(Job{}.restore(folder.path()).iteration, 10);
}

TEST(LocalTier, FailedSaveThrowsOnAllRanksAndKeepsPrevious) {
  using ms::test::FaultInjection;
  TemporaryFolder folder;
  Job job;
  job.factor = 2;
  job.tweak = [](LocalTier::Options& options) { options.writing.write_path = core::WritePath::kBuffered; };
  job.on_ranks(folder.path(), [&](core::Communicator& comm, LocalTier& tier) {
    const auto save = [&](int64_t iteration) {
      const RankState state = state_at(kLayout, job.config, comm.rank(), iteration);
      tier.save({make_info(kLayout, job.config, iteration), state.data()});
      tier.finish();
    };
    save(10);
    for (const auto kind : {FaultInjection::Kind::kWrite, FaultInjection::Kind::kFsync}) {
      std::optional<FaultInjection> disk;
      if (comm.rank() == 0) disk.emplace(kind, 1, EIO);
      comm.barrier();
      EXPECT_EQ(thrown_by([&] { save(20); }).code, core::ErrorCode::kIo);
      EXPECT_FALSE(tier.status().failed);
      tier.confirm();  // the save failed: removes nothing
      comm.barrier();
    }
  });
  EXPECT_EQ(job.restore(folder.path()).iteration, 10);
  // A replica that cannot be written; the parts themselves can.
  job.on_ranks(folder.path(), [&](core::Communicator& comm, LocalTier& tier) {
    if (comm.rank() == 0) fs::remove_all(folder / "node1/rank_00000");
    comm.barrier();
    const RankState state = state_at(kLayout, job.config, comm.rank(), 30);
    tier.save({make_info(kLayout, job.config, 30), state.data()});
    const Thrown thrown = thrown_by([&] { tier.finish(); });
    EXPECT_EQ(thrown.code, core::ErrorCode::kIo);
    EXPECT_NE(thrown.text.find("rank 2: replicate local iteration 30"), std::string::npos) << thrown.text;
  });
  EXPECT_EQ(job.restore(folder.path()).iteration, 30);
}

// A job that saves as fast as it can is killed at many moments, and loses a node: complete iterations survive.
TEST(LocalTier, KilledAtAnyMomentKeepsLastCommonIteration) {
  const bool nightly = std::getenv("MS_NIGHTLY") != nullptr;
  const char* given = std::getenv("MS_TEST_SEED");
  const auto seed = given != nullptr ? std::strtoul(given, nullptr, 10) : std::random_device{}();
  SCOPED_TRACE(core::cat("MS_TEST_SEED=", seed));
  std::mt19937_64 random(seed);
  TemporaryFolder folder;
  Job job;
  job.factor = 2;
  int64_t whole = 0;
  for (int round = 0; round < (nightly ? 60 : 3); ++round) {
    int ends[2];
    ASSERT_EQ(::pipe(ends), 0);
    const pid_t child = ::fork();
    if (child == 0) {  // do not use gtest in the child: only _exit
      try {
        job.on_ranks(folder.path(), [&](core::Communicator& comm, LocalTier& tier) {
          for (int64_t i = whole + 1;; ++i) {
            const RankState state = state_at(kLayout, job.config, comm.rank(), i);
            tier.save({make_info(kLayout, job.config, i), state.data()});
            while (comm.allreduce(int64_t{tier.status().unfinished ? 1 : 0}) > 0) ::usleep(200);
            if (comm.rank() == 0 && ::write(ends[1], &i, sizeof i) != sizeof i) ::_exit(2);
            tier.confirm();
          }
        });
      } catch (...) {
      }
      ::_exit(1);
    }
    ::close(ends[1]);
    int64_t told = 0;
    ASSERT_EQ(::read(ends[0], &told, sizeof told), static_cast<ssize_t>(sizeof told));
    whole = told;
    ::usleep(static_cast<useconds_t>(random() % 150'000));
    ::kill(child, SIGKILL);
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status));
    while (::read(ends[0], &told, sizeof told) == static_cast<ssize_t>(sizeof told)) whole = told;
    ::close(ends[0]);
    if (round % 2 == 1) fs::remove_all(folder / core::cat("node", random() % 2));
    const int64_t found = job.restore(folder.path()).iteration;
    ASSERT_GE(found, whole);
    ASSERT_LE(found, whole + 1);
    whole = found;
  }
}

}  // namespace
}  // namespace ms::ckpt
