// The commit protocol under every crash that a POSIX file system allows: programs are recorded (record_calls.cpp), the
// machine stops after each of their calls, and a new run examines each state that may be on the disk (crash_states.h).
// Every directory with a committed name must be complete, and everything reported committed must exist.
//
// MS_NIGHTLY=1 checks many more states.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <regex>
#include <set>
#include <unordered_map>
#include <unordered_set>

#include "ckpt/commit.h"
#include "ckpt/verify.h"
#include "core/error.h"
#include "tests/faults/crash_states.h"
#include "tests/support/temporary_folder.h"

namespace ms::test {
namespace {

namespace fs = std::filesystem;
using core::cat;

constexpr const char* kTrain = MS_BIN
    "/mstrain --num-layers 1 --hidden-size 16 --num-attention-heads 2 --ffn-hidden-size 32 --seq-length 16 "
    "--micro-batch-size 1 --global-batch-size 2 --lr 1e-3 --eval-iters 0 --peak-tflops 0.1 --threads-per-rank 1";

bool nightly() { return std::getenv("MS_NIGHTLY") != nullptr; }

bool starts(const std::string& text, const std::string& with) { return text.compare(0, with.size(), with) == 0; }

bool is_temporary(const std::string& path) {
  return path.find(".tmp-") != std::string::npos || path.find(".msckpt-tmp") != std::string::npos ||
         path.find(ckpt::kTrashPrefix) != std::string::npos;
}

// The generation folder that contains the path; empty if there is none.
std::string generation_of(const std::string& path) {
  std::smatch found;
  static const std::regex kName("^(.*iter_[0-9]+(\\.r[0-9]+)?)(/.*)?$");
  return !is_temporary(path) && std::regex_match(path, found, kName) ? found[1].str() : "";
}

struct Recording {
  Tree before;
  std::vector<Call> calls;
  std::string said;
};

class Crash : public ::testing::Test {
 protected:
  fs::path disk() const { return fs::canonical(folder_.path()) / "disk"; }

  // Creates the durable state that the programs start from.
  void prepare(const std::string& command) {
    fs::create_directory(disk());
    run(command);
  }

  void run(const std::string& command) {
    const std::string line = cat("cd ", disk().string(), " && ", command, " > ", folder_ / "said", " 2>&1");
    ASSERT_EQ(std::system(line.c_str()), 0) << command << "\n" << read_file(folder_ / "said");
  }

  Recording record(const std::string& command) {
    Recording recording;
    recording.before = read_tree(disk());
    const std::string log = folder_ / "calls";
    fs::remove(log);
    run(cat("env MS_RECORD_FOLDER=", disk().string(), " MS_RECORD_LOG=", log, " LD_PRELOAD=" MS_RECORD_CALLS " ",
            command));
    recording.calls = read_calls(log);
    recording.said = read_file(folder_ / "said");
    return recording;
  }

  // The first error in a tree that a crash left; empty if there is none. `reported`: generations reported as committed.
  std::string look(const Tree& tree, const std::set<std::string>& reported) {
    ++states_;
    size_t key = 0;
    const auto mix = [&](const std::string& text) {
      key = (key ^ std::hash<std::string>()(text)) * 0x9E3779B97F4A7C15u;
    };
    for (const auto& [path, data] : tree) {
      mix(path);
      mix(data);
    }
    for (const std::string& name : reported) mix(name);
    const auto [verdict, is_new] = verdicts_.try_emplace(key);
    if (is_new) verdict->second = look_anew(tree, reported);
    return verdict->second;
  }

  virtual std::string look_anew(const Tree& tree, const std::set<std::string>& reported) {
    ++different_;
    const fs::path memory = "/dev/shm";
    const fs::path place =
        (fs::is_directory(memory) ? memory : fs::temp_directory_path()) / cat("ms_crash_", ::getpid());
    fs::remove_all(place);
    fs::create_directory(place);
    write_tree(tree, place);
    std::string problem;
    std::set<std::string> roots;
    for (const std::string& name : reported) {
      roots.insert(fs::path(name).parent_path().string());
      if (!fs::is_directory(place / name)) problem = name + " was reported as committed, and is gone";
    }
    for (const auto& [path, data] : tree) {
      if (const std::string name = generation_of(path); !name.empty())
        roots.insert(fs::path(name).parent_path().string());
    }
    for (const std::string& root : roots) {
      if (!problem.empty()) break;
      const auto generations = ckpt::list_generations(place / root);
      for (const ckpt::Generation& generation : generations) {
        std::string torn;
        try {
          const auto report = ckpt::verify_generation(generation.path, {});
          if (!report.findings.empty()) torn = ckpt::finding_text(report.findings.front());
        } catch (const core::Error& e) {
          torn = e.what();
        }
        if (!torn.empty()) problem = cat(generation.path.filename().string(), " is torn: ", torn);
      }
      if (!problem.empty() || generations.empty()) continue;
      const auto latest = ckpt::find_latest(place / root);
      if (!latest || latest->generation.path != generations.front().path)
        problem = "recovery skips " + generations.front().path.string();
    }
    fs::remove_all(place);
    return problem;
  }

  // Stops the machine after each call. Returns the problems found, at most `most`.
  std::vector<std::string> replay(const Recording& recording, size_t most = 3) {
    CrashDisk disk_now(recording.before);
    std::vector<std::string> problems;
    std::set<std::string> reported;
    for (const auto& [path, data] : recording.before) {
      if (const std::string name = generation_of(path); !name.empty()) reported.insert(name);
    }
    const char* seed = std::getenv("MS_TEST_SEED");
    std::mt19937_64 random(seed != nullptr ? std::strtoull(seed, nullptr, 10) : 1);
    for (size_t i = 0; i < recording.calls.size() && problems.size() < most; ++i) {
      const Call& call = recording.calls[i];
      disk_now.apply(call);
      if (call.kind == CallKind::kRename) reported.erase(call.path);  // removed by retention or gc
      for (const std::string& name : told(call)) reported.insert(name);
      if (i + 1 == recording.calls.size()) {  // a program that succeeded has committed its results
        for (const auto& [path, data] : disk_now.now()) {
          if (const std::string name = generation_of(path); !name.empty()) reported.insert(name);
        }
      }
      std::unordered_set<std::string> found;
      disk_now.crash(nightly() ? 300 : 12, random, is_temporary, [&](const Tree& tree) {
        const std::string problem = look(tree, reported);
        if (!problem.empty() && found.insert(problem).second) {
          problems.push_back(cat("after call ", i, " (", call_text(call), "): ", problem));
        }
      });
    }
    return problems;
  }

  std::vector<std::string> told(const Call& call) const {
    std::vector<std::string> names;
    if (call.kind != CallKind::kSaid) return names;
    static const std::regex kSaved("saved iteration [0-9]+ to (\\S+)");
    for (std::sregex_iterator it(call.data.begin(), call.data.end(), kSaved), end; it != end; ++it) {
      names.push_back(fs::relative(disk() / (*it)[1].str(), disk()).string());
    }
    return names;
  }

  void expect_survives(const Recording& recording) {
    CrashDisk end(recording.before);
    for (const Call& call : recording.calls) end.apply(call);
    ASSERT_EQ(end.now(), read_tree(disk())) << "the recorded calls do not give the final tree";
    states_ = different_ = 0;
    EXPECT_EQ(replay(recording), std::vector<std::string>());
    std::printf("%zu calls, %lld states, %lld of them different\n", recording.calls.size(),
                static_cast<long long>(states_), static_cast<long long>(different_));
    EXPECT_GT(different_, least_different_);
  }

  // Expects that omitting these calls is detected.
  void expect_needs(const Recording& recording, const std::string& what, const std::function<bool(size_t)>& left_out) {
    Recording without = recording;
    without.calls.clear();
    for (size_t i = 0; i < recording.calls.size(); ++i) {
      if (!left_out(i)) without.calls.push_back(recording.calls[i]);
    }
    EXPECT_LT(without.calls.size(), recording.calls.size()) << what << ": no such call was recorded";
    const auto problems = replay(without, 1);
    EXPECT_FALSE(problems.empty()) << "omitting " << what << " is not detected";
    if (!problems.empty()) std::printf("without %s: %s\n", what.c_str(), problems.front().c_str());
  }

  TemporaryFolder folder_;
  std::unordered_map<size_t, std::string> verdicts_;
  int64_t states_ = 0, different_ = 0;
  int64_t least_different_ = 3;  // a recording must give more distinct states than this
};

std::string make_checkpoint(const char* root, int iteration) {
  return cat(MS_BIN "/../tests/make_checkpoint ", root, " 2 1 1 1 ", iteration);
}

std::string reshard(const char* from, const char* to, const char* path) {
  return cat(MS_BIN "/msckpt reshard --load-dir ", from, " --save-dir ", to,
             " --target-pipeline-parallel-size 2 --write-path ", path);
}

TEST_F(Crash, ReshardIntoANewRoot) {
  for (const char* path : {"buffered", "direct"}) {
    fs::remove_all(disk());
    fs::remove_all(folder_ / "from");
    prepare(make_checkpoint("../from", 100));
    expect_survives(record(reshard("../from", "new/deep/to", path)));
  }
}

TEST_F(Crash, ReshardBesideOtherGenerations) {
  prepare(cat(make_checkpoint("../from", 100), " && ", make_checkpoint("to", 90), " && ", make_checkpoint("to", 100)));
  expect_survives(record(reshard("../from", "to", "buffered")));
  EXPECT_TRUE(fs::is_directory(disk() / "to/iter_0000100.r1"));
}

// Shows that each fsync is needed.
TEST_F(Crash, EachFsyncIsNeeded) {
  prepare(make_checkpoint("../from", 100));
  const Recording recording = record(reshard("../from", "new/to", "buffered"));
  const auto is = [&](size_t i, CallKind kind, const std::string& part) {
    return recording.calls[i].kind == kind && recording.calls[i].path.find(part) != std::string::npos;
  };
  ASSERT_EQ(replay(recording), std::vector<std::string>());
  for (const char* file : {"rank_00000.h5", "rank_00001.h5", "manifest.json"}) {
    expect_needs(recording, cat("fsync of ", file), [&](size_t i) { return is(i, CallKind::kSyncFile, file); });
  }
  expect_needs(recording, "fsync of the temporary directory",
               [&](size_t i) { return is(i, CallKind::kSyncFolder, "iter_"); });
  for (const char* folder : {".", "new", "new/to"}) {
    expect_needs(recording, cat("fsync of the folder ", folder), [&](size_t i) {
      return recording.calls[i].kind == CallKind::kSyncFolder && recording.calls[i].path == folder;
    });
  }
}

// Results in other formats: a new folder is complete or absent; in an existing folder, the file that makes it a model
// is written last, when everything else is there.
class CrashOfConvert : public Crash {
 protected:
  std::string convert(const std::string& flags) const {
    return cat(MS_BIN "/msckpt convert --load-dir " MS_TEST_DATA "/hf_llama_tiny --save-dir out --threads 1 ", flags);
  }
  // last: the entry of "out" that is written last; empty if the folder appears as a whole.
  void expect_whole_or_absent(const std::string& flags, const std::string& last) {
    last_ = last;
    verdicts_.clear();
    least_different_ = 1;  // a folder that appears as a whole is there or not
    run(cat("mkdir -p ../reference && cd ../reference && ", convert(flags)));
    result_ = read_tree(disk().parent_path() / "reference");
    expect_survives(record(convert(flags)));
    fs::remove_all(disk().parent_path() / "reference");
  }
  std::string look_anew(const Tree& tree, const std::set<std::string>&) override {
    ++different_;
    bool any = false, has_last = false;
    for (const auto& [path, data] : tree) {
      if (is_temporary(path) || !starts(path, "out/") || path == "out/README.md") continue;
      any = true;
      has_last = has_last || path == "out/" + last_;
      const auto wanted = result_.find(path);
      if (wanted == result_.end() || wanted->second != data) return path + " is torn";
    }
    if (!any || (!last_.empty() && !has_last)) return "";
    for (const auto& [path, data] : result_) {
      // The report beside the result is written after it.
      if (starts(path, "out/") && !tree.contains(path)) return path + " is missing in a result that looks complete";
    }
    return "";
  }

  std::string last_;
  Tree result_;
};

TEST_F(CrashOfConvert, IntoANewFolder) {
  for (const char* flags : {"--save-model-type hf --max-shard-size 20KB --write-path buffered",
                            "--save-model-type mg --target-tensor-parallel-size 2 --write-path direct"}) {
    fs::remove_all(disk());
    prepare("true");
    expect_whole_or_absent(flags, "");
  }
}

TEST_F(CrashOfConvert, IntoAnExistingFolder) {
  prepare("mkdir out && echo mine > out/README.md");
  expect_whole_or_absent("--save-model-type hf --max-shard-size 20KB --write-path buffered",
                         "model.safetensors.index.json");
}

// Saves, commits, the pointer and retention at once, by the trainer.
class CrashOfTrainer : public Crash {
 protected:
  // The data is outside the recorded folder.
  std::string train(const std::string& flags) {
    return cat(kTrain, " --data-path ", folder_ / "data_text_document", " ", flags);
  }
  void make_data() {
    write_file(folder_ / "text.txt", std::string(2000, 'a'));
    prepare(cat(MS_BIN "/msdata preprocess ../text.txt --output-prefix ../data"));
  }
};

TEST_F(CrashOfTrainer, SavesAndRetention) {
  make_data();
  for (const char* path : {"buffered", "direct"}) {
    fs::remove_all(disk() / "run");
    const Recording recording = record(
        train(cat("--train-iters 4 --save-interval 1 --save run/ckpt --save-keep-last 2 --ckpt-write-path ", path)));
    EXPECT_NE(recording.said.find("removed "), std::string::npos) << "retention removed nothing";
    expect_survives(recording);
  }
}

TEST_F(CrashOfTrainer, GenerationIsRemovedOnlyAfterItsNewNameIsDurable) {
  make_data();
  const Recording recording =
      record(train("--train-iters 2 --save-interval 1 --save ckpt --save-keep-last 1 --ckpt-write-path buffered"));
  expect_needs(recording, "fsync of the root after the rename to .trash", [&](size_t i) {
    return i > 0 && recording.calls[i].kind == CallKind::kSyncFolder && recording.calls[i].path == "ckpt" &&
           recording.calls[i - 1].kind == CallKind::kRename && starts(recording.calls[i - 1].other, "ckpt/.trash-");
  });
}

// Each generation links what has not changed since the previous one.
TEST_F(CrashOfTrainer, IncrementalSavesAndRetention) {
  make_data();
  const Recording recording =
      record(train("--train-iters 5 --save-interval 1 --save ckpt --save-keep-last 2 "
                   "--ckpt-full-every 3 --lr 1e-30 --weight-decay 0 --ckpt-write-path buffered"));
  const auto links = std::count_if(recording.calls.begin(), recording.calls.end(),
                                   [](const Call& call) { return call.kind == CallKind::kLink; });
  EXPECT_GT(links, 0);
  expect_survives(recording);
}

// Generations that share files by hard links, a dead writer's directory, and a generation that was being removed.
TEST_F(CrashOfTrainer, GarbageCollection) {
  make_data();
  run(train("--train-iters 5 --save-interval 1 --save ckpt --ckpt-full-every 3 --lr 1e-30 --weight-decay 0"));
  run("mkdir ckpt/iter_0000009.tmp-elsewhere-1-a_0 && echo half > ckpt/iter_0000009.tmp-elsewhere-1-a_0/rank_00000.h5 "
      "&& "
      "mv ckpt/iter_0000001 ckpt/.trash-iter_0000001");
  const Recording recording = record(cat(MS_BIN "/msckpt gc ckpt --keep-last 2"));
  expect_survives(recording);
  EXPECT_EQ(ckpt::list_generations(disk() / "ckpt").size(), 2u);
  EXPECT_FALSE(fs::exists(disk() / "ckpt/.trash-iter_0000001"));
  EXPECT_FALSE(fs::exists(disk() / "ckpt/iter_0000009.tmp-elsewhere-1-a_0"));
  expect_needs(recording, "fsync of the root after the rename to .trash", [&](size_t i) {
    return i > 0 && recording.calls[i].kind == CallKind::kSyncFolder && recording.calls[i].path == "ckpt" &&
           recording.calls[i - 1].kind == CallKind::kRename && starts(recording.calls[i - 1].other, "ckpt/.trash-");
  });
}

TEST_F(CrashOfTrainer, RanksWithWriterProcesses) {
  if (std::system("mpirun --version > /dev/null 2>&1") != 0) GTEST_SKIP() << "SKIPPED: needs mpirun";
  make_data();
  expect_survives(record("mpirun --oversubscribe --bind-to none --quiet -n 2 " +
                         train("--train-iters 3 --save-interval 1 --save ckpt --save-keep-last 2 --ckpt-writer process "
                               "--ckpt-compress --use-distributed-optimizer --ckpt-write-path buffered")));
}

}  // namespace
}  // namespace ms::test
