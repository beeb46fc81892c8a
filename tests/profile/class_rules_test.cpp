// User rules precede the built-in ones in every analysis of device time; invalid rules are reported.
#include "profile/class_rules.h"

#include <gtest/gtest.h>

#include "core/error.h"
#include "core/io/file.h"
#include "profile/analysis/device.h"
#include "profile/ingest/load.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/thrown.h"
#include "tests/support/trace_maker.h"

namespace ms::profile {
namespace {

class ClassRulesTest : public testing::Test {
 protected:
  std::string write(const std::string& text) {
    const std::string path = folder_ / "rules.json";
    core::write_text_atomically(path, text);
    return path;
  }
  test::TemporaryFolder folder_;
};

TEST_F(ClassRulesTest, TheFirstRuleCountsBeforeNameAndArguments) {
  const std::string path =
      write(R"([{"name": "^MyComm_", "class": "COMMUNICATION"}, {"name": "comm", "class": "MEMORY"},
                                     {"name": "allreduce", "class": "COMPUTATION"}])");
  test::TraceMaker maker(folder_.path(), 0, 1);
  maker.kernel("mycomm_send", 0, 10);
  maker.kernel("a_comm", 10, 20);
  maker.kernel("ncclKernel_Send", 20, 30);
  maker.comm("allreduce", "dp", {0, 1}, 30, 40);
  maker.comm("allgather", "dp", {0, 1}, 40, 50);
  maker.copy("Memcpy DtoH", 50, 60);
  LoadOptions options;
  options.class_rules = std::make_shared<ClassRules>(path);
  const std::vector<std::string> traces = {maker.finish()};
  const auto classes = [&] {
    const Store store = load(traces, options);
    std::vector<DeviceClass> out;
    for (const DeviceEvent& device : view_devices(*store.ranks[0]).devices) {
      out.push_back(device.device_class);
    }
    return out;
  };
  constexpr auto kComputing = DeviceClass::kComputation, kComm = DeviceClass::kCommunication,
                 kMemory = DeviceClass::kMemory;
  EXPECT_EQ(classes(), (std::vector{kComm, kMemory, kComm, kComputing, kComm, kMemory}));
  options.class_rules = nullptr;
  EXPECT_EQ(classes(), (std::vector{kComputing, kComputing, kComm, kComm, kComm, kMemory}));
}

TEST_F(ClassRulesTest, WhatIsNoRuleIsTold) {
  using Pair = std::pair<std::string, std::string>;
  for (const auto& [text, said] :
       {Pair{"{}", "expected a list of rules"}, Pair{R"([{"name": "x"}])", "rule 1: "},
        Pair{R"([{"name": "x", "class": "comm"}])", "class \"comm\": expected COMPUTATION"},
        Pair{R"([{"name": "(", "class": "MEMORY"}])", "rule 1: \"(\": "},
        Pair{R"([{"name": "(a)\\1", "class": "MEMORY"}])", "rule 1: \"(a)\\1\": "},
        Pair{R"([{"name": ")" + std::string(100'000, '(') + R"(", "class": "MEMORY"}])", "at most 1024"}}) {
    const std::string path = write(text);
    const test::Thrown thrown = test::thrown_by([&] { ClassRules rules(path); });
    EXPECT_EQ(thrown.code, core::ErrorCode::kCorruptData) << text;
    EXPECT_NE(thrown.text.find(said), std::string::npos) << thrown.text;
  }
}

TEST_F(ClassRulesTest, AnExpressionThatCouldTryEverythingDoesNot) {
  const ClassRules rules(write(R"([{"name": "(a*)*b", "class": "MEMORY"}])"));
  EXPECT_FALSE(rules.find(std::string(200, 'a')).has_value());
}

TEST_F(ClassRulesTest, ALongNameDoesNotCrash) {
  const ClassRules rules(write(R"([{"name": "(a|b)*c$", "class": "MEMORY"}])"));
  EXPECT_FALSE(rules.find(std::string(10'000'000, 'a')).has_value());
}

}  // namespace
}  // namespace ms::profile
