// Everything that writes a file, on a failing disk: a failing call gives one kIo error that names the file, leaves
// existing files unchanged and nothing half done, and the same work succeeds afterwards on a healthy disk.
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <nlohmann/json.hpp>

#include "ckpt/native_sink.h"
#include "ckpt/reader.h"
#include "ckpt/reshard.h"
#include "ckpt/verify.h"
#include "convert/convert.h"
#include "tests/ckpt/state.h"
#include "tests/support/fault_injection.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/thrown.h"
#include "tests/support/trace_maker.h"
#include "train/data/preprocess.h"
#include "train/loop/metrics.h"
#include "train/loop/tensorboard.h"

namespace ms {
namespace {

namespace fs = std::filesystem;
using test::FaultInjection;
using Kind = FaultInjection::Kind;

struct Work {
  std::string name;
  std::function<void(const test::TemporaryFolder& in)> prepare;  // creates inputs in in/"from"; may be empty
  std::function<void(const test::TemporaryFolder& in)> run;      // reads in/"from", writes only in/"to"
  bool appends = false;                                          // appends to a file: what was written remains
};

std::map<std::string, std::string> contents(const fs::path& folder) {
  std::map<std::string, std::string> all;
  if (!fs::exists(folder)) return all;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.is_regular_file()) all[fs::relative(entry.path(), folder)] = test::read_file(entry.path());
  }
  return all;
}

void write_native(const test::TemporaryFolder& folder) {
  ckpt::test::write_checkpoint(folder / "from", {2, 1, 1, false}, ckpt::test::small_model(17));
}

void reshard(const test::TemporaryFolder& folder) {
  const auto source = ckpt::open_native(folder / "from");
  const ckpt::ReshardPlan plan = ckpt::plan_reshard(*source, {.pipeline_model_parallel_size = 2}, {});
  ckpt::NativeSinkOptions options;
  options.root = folder / "to";
  options.rank_of_target = plan.targets.ranks;
  options.num_ranks = plan.layout.world_size();
  const auto sink = ckpt::make_native_sink(std::move(options));
  ckpt::execute(*source, *sink, plan.info, plan.targets.shards, {});
}

convert::ConvertOptions conversion(const std::string& from, const test::TemporaryFolder& folder) {
  convert::ConvertOptions options;
  options.load_dir = from;
  options.save_dir = folder / "to";
  return options;
}

const std::string kHuggingFace = std::string(MS_TEST_DATA) + "/hf_llama_tiny";

// From Hugging Face to a format in a folder that appears as a whole.
Work conversion_to(const std::string& name, convert::Format format) {
  return {core::cat("convert_to_", name), {}, [format](const test::TemporaryFolder& folder) {
            convert::ConvertOptions options = conversion(kHuggingFace, folder);
            options.save_model_type = format;
            convert::convert_checkpoint(options);
          }};
}

std::vector<Work> all_work() {
  return {
      conversion_to("gguf", convert::Format::kGguf),
      conversion_to("megatron", convert::Format::kMegatron),
      conversion_to("torch_dist", convert::Format::kMegatronDist),
      conversion_to("dcp", convert::Format::kDcp),
      conversion_to("universal", convert::Format::kUniversal),
      {"reshard", write_native, reshard},
      {"convert_to_native",
       {},
       [](const auto& folder) { convert::convert_checkpoint(conversion(kHuggingFace, folder)); }},
      {"convert_to_hugging_face",
       [](const auto& folder) {
         convert::ConvertOptions options = conversion(kHuggingFace, folder);
         options.save_dir = folder / "from";
         convert::convert_checkpoint(options);
       },
       [](const auto& folder) {
         convert::ConvertOptions options = conversion(folder / "from", folder);
         options.max_shard_size_bytes = 20'000;  // several files
         convert::convert_checkpoint(options);
       }},
      {"preprocess",
       [](const auto& folder) {
         fs::create_directory(folder / "from");
         for (int i = 0; i < 5; ++i) test::write_file(folder / core::cat("from/", i, ".txt"), std::string(3000, 'a'));
       },
       [](const auto& folder) {
         fs::create_directories(folder / "to");
         train::PreprocessOptions options;
         options.inputs = {folder / "from"};
         options.output_prefix = folder / "to/out";
         options.workers = 1;
         train::preprocess(options, [] { return false; });
       }},
      {"metrics",
       {},
       [](const auto& folder) {
         fs::create_directories(folder / "to");
         train::MetricsFile file(folder / "to/metrics.jsonl");
         for (int i = 0; i < 3; ++i)
           file.write(core::cat("{\"iteration\": ", i, ", \"text\": \"", std::string(2000, 'x'), "\"}"));
       },
       true},
      {"trace",
       {},
       [](const auto& folder) {
         fs::create_directories(folder / "to");
         test::TraceMaker maker(folder / "to", 0, 1);
         for (int i = 0; i < 2000; ++i) maker.kernel(core::cat("kernel ", i), 10 * i, 10 * i + 5);
         maker.finish();
       },
       true},
  };
}

class FaultInjectionTest : public testing::TestWithParam<Work> {};

TEST_P(FaultInjectionTest, ShortAndInterruptedWritesChangeNothing) {
  const Work& work = GetParam();
  test::TemporaryFolder healthy, sick;
  for (const auto* folder : {&healthy, &sick}) {
    if (work.prepare) work.prepare(*folder);
  }
  work.run(healthy);
  {
    const FaultInjection disk(Kind::kShortWrites, 0, 0);
    work.run(sick);
    EXPECT_GT(disk.calls(), 3);
  }
  EXPECT_EQ(contents(sick / "to"), contents(healthy / "to"));
}

TEST_P(FaultInjectionTest, FailingCallIsAnErrorAndLeavesNoPartialFiles) {
  const Work& work = GetParam();
  const std::vector<std::pair<Kind, int>> kinds = {{Kind::kWrite, ENOSPC},
                                                   {Kind::kWrite, EIO},
                                                   {Kind::kFsync, EIO},
                                                   {Kind::kAllocate, ENOSPC},
                                                   {Kind::kRename, EIO}};
  int failures = 0;
  for (const auto& [kind, error] : kinds) {
    for (int nth = 0, calls = 1; nth<calls; nth += nth> 12 ? 37 : 1) {  // there are many similar writes
      SCOPED_TRACE(core::cat("call ", nth, " of kind ", static_cast<int>(kind), ", errno ", error));
      test::TemporaryFolder folder;
      if (work.prepare) work.prepare(folder);
      const auto before = contents(folder / "from");
      std::string text;
      {
        const FaultInjection disk(kind, nth, error);
        try {
          work.run(folder);
        } catch (const core::Error& e) {
          EXPECT_EQ(core::exit_code(e.code()), 4) << e.what();
          text = e.what();
        }
        calls = disk.calls();
      }
      EXPECT_EQ(contents(folder / "from"), before);
      for (const auto& [name, content] : contents(folder.path())) {
        EXPECT_EQ(name.find("tmp"), std::string::npos) << name << " was left behind";
      }
      if (text.empty()) continue;  // the call was not essential
      ++failures;
      EXPECT_NE(text.find(folder.path().string()), std::string::npos) << text;
      EXPECT_EQ(text.find('\n'), std::string::npos) << text;
      if (!work.appends) {
        EXPECT_NO_THROW(work.run(folder)) << "the work succeeds after the failure";
      }
    }
  }
  EXPECT_GT(failures, 0);
}

// Not in all_work(): names and contents contain the time, so no two runs are equal.
TEST(Events, FailingWriteIsOneErrorThatNamesTheFlag) {
  test::TemporaryFolder folder;
  test::FaultInjection disk(test::FaultInjection::Kind::kWrite, 2, ENOSPC);  // after the version and one event
  train::EventWriter writer(folder / "events", 1);
  writer.add_scalar("x", 1, 1);
  const test::Thrown thrown = test::thrown_by([&] { writer.add_scalar("x", 2, 2); });
  EXPECT_EQ(thrown.code, core::ErrorCode::kIo);
  EXPECT_NE(thrown.text.find("--tensorboard-dir"), std::string::npos) << thrown.text;
  EXPECT_NE(thrown.text.find("events.out.tfevents"), std::string::npos) << thrown.text;
}

INSTANTIATE_TEST_SUITE_P(Writers, FaultInjectionTest, testing::ValuesIn(all_work()),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace ms
