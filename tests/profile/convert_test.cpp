// Output of `msprof convert`: valid JSON, Kineto's names, times to the nanosecond; identical plain, in gzip and in
// zstd.
#include "profile/convert.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <isa-l/igzip_lib.h>
#include <zstd.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/io/file.h"
#include "profile/ingest/load.h"
#include "profile/slice.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/thrown.h"
#include "tests/support/trace_maker.h"

namespace ms::profile {
namespace {

using nlohmann::json;
using test::TraceMaker;

class ConvertTest : public testing::Test {
 protected:
  std::string make(int rank, int64_t clock_offset = 0) {
    TraceMaker maker(folder_.path() / "traces", rank, 2);
    maker.clock(clock_offset, clock_offset, 10);
    maker.host("ProfilerStep#4", clock_offset + 1000, clock_offset + 90'001);
    maker.action("forward-microbatch", clock_offset + 1050, clock_offset + 2500, 3, 0);
    maker.op("rms_norm \"quoted\"", clock_offset + 1100, clock_offset + 2000, "[[2, 3]]", "[\"fp32\"]");
    maker.launch(9, clock_offset + 1200, clock_offset + 1201);
    maker.kernel("gemm", clock_offset + 1302, clock_offset + 1999, 9, 640, 128);
    maker.comm("send", "pp", {0, 1}, clock_offset + 3000, clock_offset + 4500, 16, 1 - rank);
    maker.copy("Memcpy DtoH (Device -> Pinned)", clock_offset + 5000, clock_offset + 6000, 777);
    maker.memory(clock_offset + 7000, 4096, -64, 128);
    maker.counter("cycles", clock_offset + 8000, 2.5);
    return maker.finish();
  }
  static std::vector<json> find(const json& trace, const std::string& phase, const std::string& name) {
    std::vector<json> out;
    for (const json& event : trace.at("traceEvents")) {
      if (event.at("ph") == phase && event.at("name") == name) out.push_back(event);
    }
    return out;
  }

  test::TemporaryFolder folder_;
};

TEST_F(ConvertTest, WritesKinetosWords) {
  const std::string out = folder_ / "out.json";
  convert_file(make(1), out, ExportFormat::kJson);
  const std::string text = test::read_file(out);
  EXPECT_THAT(text, testing::HasSubstr("\"rank\": 1,"));
  EXPECT_LT(text.find("distributedInfo"), text.find("traceEvents"));
  const json trace = json::parse(text);
  EXPECT_EQ(trace["distributedInfo"]["world_size"], 2);
  EXPECT_EQ(trace["distributedInfo"]["pg_config"][0]["pg_name"], "pp");
  EXPECT_EQ(trace["distributedInfo"]["pg_config"][0]["ranks"], json({0, 1}));
  EXPECT_EQ(trace["baseTimeNanoseconds"].get<int64_t>(), TraceMaker::kUnixBase + 1000);

  const json kernel = find(trace, "X", "gemm").at(0);
  EXPECT_EQ(kernel["cat"], "kernel");
  EXPECT_EQ(kernel["ts"], 0.302);
  EXPECT_EQ(kernel["dur"], 0.697);
  EXPECT_EQ(kernel["tid"], 7);
  EXPECT_EQ(kernel["args"]["stream"], 7);
  EXPECT_EQ(kernel["args"]["correlation"], 9);
  EXPECT_EQ(kernel["args"]["flops"], 640);
  EXPECT_EQ(find(trace, "X", "cudaLaunchKernel").at(0)["args"]["correlation"], 9);
  EXPECT_EQ(find(trace, "s", "ac2g").at(0)["id"], 9);
  EXPECT_EQ(find(trace, "f", "ac2g").at(0)["id"], 9);

  const json action = find(trace, "X", "forward-microbatch").at(0);
  EXPECT_EQ(action["args"]["microbatch"], 3);
  EXPECT_EQ(action["args"]["chunk"], 0);
  EXPECT_FALSE(find(trace, "X", "ProfilerStep#4").at(0)["args"].contains("microbatch"));

  const json op = find(trace, "X", "rms_norm \"quoted\"").at(0);
  EXPECT_EQ(op["args"]["Input Dims"], json::parse("[[2, 3]]"));
  EXPECT_EQ(op["pid"], 4242);

  const json comm = find(trace, "X", "ncclDevKernel_Send(pp)").at(0);
  const json wanted = {{"Collective name", "send"},
                       {"In msg nelems", 16},
                       {"Out msg nelems", 16},
                       {"Group size", 2},
                       {"dtype", "Float"},
                       {"Process Group Name", "pp"},
                       {"Seq", 0},
                       {"Process Group Ranks", "[0, 1]"},
                       {"Src Rank", 1},
                       {"Dst Rank", 0}};
  for (const auto& [key, value] : wanted.items()) EXPECT_EQ(comm["args"][key], value) << key;

  const json memory = find(trace, "i", "[memory]").at(0);
  EXPECT_EQ(memory["args"]["Bytes"], -64);
  EXPECT_EQ(memory["args"]["Total Allocated"], 128);
  EXPECT_EQ(find(trace, "C", "cycles").at(0)["args"]["value"], 2.5);
}

TEST_F(ConvertTest, TimesHaveThreeDecimals) {
  const std::string out = folder_ / "out.json";
  convert_file(make(0), out, ExportFormat::kJson);
  EXPECT_THAT(test::read_file(out), testing::HasSubstr("\"ts\": 0.000, \"dur\": 89.001,"));
}

TEST_F(ConvertTest, CompressedFormsHoldTheSameText) {
  const std::string native = make(0);
  for (const ExportFormat format : {ExportFormat::kJson, ExportFormat::kJsonGz, ExportFormat::kJsonZst}) {
    convert_file(native, folder_ / core::cat("out.", export_format_name(format)), format);
  }
  const std::string plain = test::read_file(folder_ / "out.json");
  const std::string zst = test::read_file(folder_ / "out.json.zst"), gz = test::read_file(folder_ / "out.json.gz");
  std::string unpacked(plain.size() + 1, '\0');
  unpacked.resize(ZSTD_decompress(unpacked.data(), unpacked.size(), zst.data(), zst.size()));
  EXPECT_EQ(unpacked, plain);

  std::string inflated(plain.size() + 1, '\0');
  inflate_state state;
  isal_inflate_init(&state);
  state.crc_flag = IGZIP_GZIP;
  state.next_in = reinterpret_cast<uint8_t*>(const_cast<char*>(gz.data()));
  state.avail_in = static_cast<uint32_t>(gz.size());
  state.next_out = reinterpret_cast<uint8_t*>(inflated.data());
  state.avail_out = static_cast<uint32_t>(inflated.size());
  EXPECT_EQ(isal_inflate(&state), ISAL_DECOMP_OK);
  EXPECT_EQ(state.block_state, ISAL_BLOCK_FINISH);
  inflated.resize(state.total_out);
  EXPECT_EQ(inflated, plain);
}

TEST_F(ConvertTest, LargeTracesCompressInPieces) {
  TraceMaker maker(folder_.path() / "traces", 0, 1);
  for (int64_t i = 0; i < 60'000; ++i) maker.kernel(core::cat("kernel ", i * i % 1013), 10 * i, 10 * i + i % 9);
  const std::string native = maker.finish();
  convert_file(native, folder_ / "a.json", ExportFormat::kJson);
  convert_file(native, folder_ / "a.json.gz", ExportFormat::kJsonGz);
  const std::string plain = test::read_file(folder_ / "a.json"), gz = test::read_file(folder_ / "a.json.gz");
  EXPECT_GT(plain.size(), 6u << 20);
  EXPECT_LT(gz.size() * 8, plain.size());
  EXPECT_EQ(json::parse(plain)["traceEvents"].size(), 60'000u + 5);
  std::string inflated(plain.size() + 1, '\0');
  inflate_state state;
  isal_inflate_init(&state);
  state.crc_flag = IGZIP_GZIP;
  state.next_in = reinterpret_cast<uint8_t*>(const_cast<char*>(gz.data()));
  state.avail_in = static_cast<uint32_t>(gz.size());
  state.next_out = reinterpret_cast<uint8_t*>(inflated.data());
  state.avail_out = static_cast<uint32_t>(inflated.size());
  EXPECT_EQ(isal_inflate(&state), ISAL_DECOMP_OK);
  inflated.resize(state.total_out);
  EXPECT_TRUE(inflated == plain);
}

TEST_F(ConvertTest, MergedRanksShareOneClock) {
  make(0);
  make(1, /*clock_offset=*/250'000);
  const Store store = load({folder_ / "traces"}, {});
  convert_merged(store, folder_ / "all.json", ExportFormat::kJson);
  const json trace = json::parse(test::read_file(folder_ / "all.json"));
  const std::vector<json> kernels = find(trace, "X", "gemm");
  ASSERT_EQ(kernels.size(), 2u);
  EXPECT_EQ(kernels[0]["pid"], 0);
  EXPECT_EQ(kernels[1]["pid"], 1);
  EXPECT_EQ(kernels[0]["ts"], kernels[1]["ts"]) << "250 us apart on their own clocks, together on rank 0's";
  EXPECT_NE(kernels[0]["args"]["correlation"], kernels[1]["args"]["correlation"]);
  EXPECT_FALSE(trace["distributedInfo"].contains("rank"));
}

// Kineto arguments that other tools read; most of them are not kept in the store.
constexpr std::string_view kForeign = R"json({
"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "NVIDIA H100", "numSms": 132}],
"distributedInfo": {"backend": "nccl", "rank": 0, "world_size": 1},
"traceEvents": [
 {"ph": "X", "cat": "cpu_op", "name": "aten::add", "pid": 9, "tid": 9, "ts": 100, "dur": 20, "args": {
   "External id": 5, "Record function id": 0, "Sequence number": 12, "Fwd thread id": 0, "Ev Idx": 4,
   "Concrete Inputs": ["", "", "1"], "Input type": ["float", "float", "Scalar"],
   "Input Strides": [[8, 1], [8, 1], []], "Input Dims": [[4, 8], [4, 8], []]}},
 {"ph": "X", "cat": "python_function", "name": "train.py(12): step", "pid": 9, "tid": 9, "ts": 90, "dur": 90, "args": {
   "Python id": 7, "Python parent id": 3, "Python module id": 1}},
 {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 9, "tid": 9, "ts": 105, "dur": 5, "args": {
   "External id": 5, "cbid": 211, "correlation": 77}},
 {"ph": "X", "cat": "kernel", "name": "vectorized_add", "pid": 0, "tid": 7, "ts": 130, "dur": 5, "args": {
   "External id": 5, "queued": 0, "device": 0, "context": 1, "stream": 7, "correlation": 77, "registers per thread": 32,
   "blocks per SM": 0.5, "warps per SM": 2, "grid": [66, 1, 1], "block": [128, 1, 1], "est. achieved occupancy %": 25}},
 {"ph": "X", "cat": "kernel", "name": "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
   "pid": 0, "tid": 20, "ts": 150, "dur": 9, "args": {"External id": 6, "device": 0, "stream": 20, "correlation": 78,
   "Collective name": "allreduce", "In msg nelems": 32, "Out msg nelems": 32, "Group size": 2, "dtype": "Float",
   "In split size": "[]", "Out split size": "[]", "Process Group Name": "0",
   "Process Group Description": "default_pg", "Process Group Ranks": "[0, 1]", "path": "C:\\tmp\u00e9"}}
]})json";

class ForeignTest : public ConvertTest {
 protected:
  static LoadOptions keep() {
    LoadOptions options;
    options.keep_file_order = true;
    return options;
  }
  std::string foreign(const std::string& name, std::string text) const {
    test::write_file(folder_ / name, text);
    return folder_ / name;
  }
  json converted(const Store& store) const {
    convert_merged(store, folder_ / "out.json", ExportFormat::kJson);
    return json::parse(test::read_file(folder_ / "out.json"));
  }
  // Arguments by slice name.
  static std::map<std::string, json> arguments(const json& trace) {
    std::map<std::string, json> out;
    for (const json& event : trace.at("traceEvents")) {
      if (event.at("ph") == "X") out[event.at("name")] = event.at("args");
    }
    return out;
  }
};

TEST_F(ForeignTest, ConvertKeepsAllArgumentsNamesAndDeviceProperties) {
  const json before = json::parse(kForeign);
  const json after = converted(load({foreign("a.json", std::string(kForeign))}, keep()));
  EXPECT_EQ(arguments(after), arguments(before));
  EXPECT_EQ(after["deviceProperties"], before["deviceProperties"]);
}

TEST_F(ForeignTest, SliceKeepsAllArgumentsOfWhatItKeeps) {
  Store store = load({foreign("a.json", std::string(kForeign))}, keep());
  slice(store, {{}, 12'000, 20'000});  // reaches into operator, launch and Python; keeps the kernel
  std::map<std::string, json> wanted = arguments(json::parse(kForeign));
  std::erase_if(wanted, [](const auto& entry) { return entry.first.starts_with("nccl"); });
  ASSERT_EQ(wanted.size(), 4u);
  EXPECT_EQ(arguments(converted(store)), wanted);
}

TEST_F(ForeignTest, PackedSourcesKeepTheirArguments) {
  convert_merged(load({foreign("a.json", std::string(kForeign))}, keep()), folder_ / "b.json.gz",
                 ExportFormat::kJsonGz);
  EXPECT_EQ(arguments(converted(load({folder_ / "b.json.gz"}, keep()))), arguments(json::parse(kForeign)));
}

// Correlations and external ids of different ranks must differ in one file.
TEST_F(ForeignTest, MergedRanksKeepArgumentsWithIdsOfTheirOwn) {
  std::string second(kForeign);
  second.replace(second.find("\"rank\": 0"), 9, "\"rank\": 1");
  const Store store = load({foreign("a.json", std::string(kForeign)), foreign("b.json", second)}, keep());
  const json merged = converted(store);
  std::vector<int64_t> correlations, externals;
  for (const json& event : merged.at("traceEvents")) {
    if (event.at("ph") != "X" || event.at("name") != "vectorized_add") continue;
    EXPECT_EQ(event["args"]["grid"], json({66, 1, 1}));
    correlations.push_back(event["args"]["correlation"]);
    externals.push_back(event["args"]["External id"]);
  }
  EXPECT_EQ(correlations, (std::vector<int64_t>{77, 77 + 78}));
  EXPECT_EQ(externals, (std::vector<int64_t>{5, 5 + 78}));
}

// Python rejects raw control characters, so such an event is written with the arguments in the store.
TEST_F(ForeignTest, ArgumentsThatAreNoJsonAreWrittenFromTheStore) {
  std::string text(kForeign);
  text.replace(text.find("default_pg"), 10, "line\tbreak");
  const json args = arguments(converted(load({foreign("a.json", text)}, keep())))
                        .at("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)");
  EXPECT_EQ(args["Collective name"], "allreduce");
  EXPECT_FALSE(args.contains("path"));
}

TEST_F(ForeignTest, FileThatWasWrittenMeanwhileIsRefused) {
  const std::string path = foreign("a.json", std::string(kForeign));
  const Store store = load({path}, keep());
  test::write_file(path, R"({"traceEvents": []})");
  const test::Thrown refused = test::thrown_by([&] { converted(store); });
  EXPECT_EQ(refused.code, core::ErrorCode::kCorruptData);
  EXPECT_THAT(refused.text, testing::HasSubstr("had 5 events when it was loaded, now 0"));
}

TEST_F(ConvertTest, RanksIntoAFolder) {
  make(0);
  make(1);
  const auto paths = convert_ranks(load({folder_ / "traces"}, {}), folder_ / "json", ExportFormat::kJsonZst);
  ASSERT_EQ(paths.size(), 2u);
  EXPECT_TRUE(std::filesystem::exists(folder_ / "json/rank_00001.json.zst"));
}

// Every field, with names instead of ids and without the order of events that begin together, which the writer chooses.
std::vector<std::string> rows(const RankTrace& trace) {
  std::vector<std::string> out;
  const auto name = [&](NameId id) { return core::cat(" '", trace.names[id], "'"); };
  const auto lane = [&](uint16_t i) {
    const Lane& l = trace.lanes[i];
    return core::cat(" on ", l.device, " ", l.process, " ", l.id, name(l.name));
  };
  json meta = json::parse(trace.meta);
  meta.emplace("dropped", 0);  // stored in the footer, which a killed run has not written
  out.push_back(core::cat(trace.rank, " of ", trace.world_size, " pid ", trace.pid, " base ", trace.base_unix_ns,
                          " level ", trace.level, " backend ", trace.backend, " meta ", meta.dump()));
  const Events& e = trace.events;
  for (size_t i = 0; i < e.size(); ++i) {
    const CommArgs& c = trace.comms[e.comm[i]];
    const Details& d = trace.details[e.details[i]];
    std::string stack;
    for (uint32_t frame = d.stack; frame != 0; frame = trace.stacks[frame].parent)
      stack += name(trace.stacks[frame].name);
    out.push_back(core::cat(e.ts[i], "+", e.dur[i], name(e.name[i]), name(trace.categories[e.category[i]].name),
                            lane(e.lane[i]), " ", e.correlation[i], " ", e.external[i], name(c.op), name(c.group),
                            name(c.ranks), name(c.dtype), c.sequence, " ", c.in_elements, " ", c.out_elements, " ",
                            c.source, " ", c.destination, " ", c.async, " ", d.flops, " ", d.bytes, " ", d.microbatch,
                            " ", d.chunk, name(d.dims), name(d.types), stack));
  }
  for (const MemoryChange& m : trace.memory) {
    out.push_back(core::cat("memory ", m.ts, " ", m.address, " ", m.bytes, " ", m.total, " ", m.reserved, name(m.tag),
                            lane(m.lane), " ", m.device_type, " ", m.device));
  }
  for (const CounterSample& c : trace.counters)
    out.push_back(core::cat("counter ", c.ts, " ", c.value, name(c.name), lane(c.lane)));
  for (const ClockPoint& c : trace.clocks) out.push_back(core::cat("clock ", c.at, " ", c.offset, " ", c.error));
  std::sort(out.begin(), out.end());
  return out;
}

TEST_F(ConvertTest, ThereAndBackIsTheIdentity) {
  const std::string native = make(1, /*clock_offset=*/987'654'321);
  const Store first = load({native}, {});
  std::string bytes;
  for (const ExportFormat format : {ExportFormat::kJson, ExportFormat::kJsonGz, ExportFormat::kJsonZst}) {
    const std::string there = folder_ / core::cat("there.", export_format_name(format));
    convert_file(native, there, format);
    EXPECT_EQ(rows(*load({there}, {}).ranks[0]), rows(*first.ranks[0])) << "JSON holds all of it";
    const std::string back = folder_ / core::cat(export_format_name(format), ".mstrace");
    convert_file(there, back, ExportFormat::kNative);
    EXPECT_EQ(rows(*load({back}, {}).ranks[0]), rows(*first.ranks[0])) << "and so does what is made of that";
    // Further round trips are identical to the byte.
    convert_file(back, folder_ / "again.json", ExportFormat::kJson);
    convert_file(folder_ / "again.json", folder_ / "again.mstrace", ExportFormat::kNative);
    EXPECT_EQ(test::read_file(folder_ / "again.mstrace"), test::read_file(back));
    if (!bytes.empty()) {
      EXPECT_EQ(test::read_file(back), bytes) << "whatever it was packed by";
    }
    bytes = test::read_file(back);
  }
}

TEST_F(ConvertTest, OddTracesThereAndBack) {
  const auto folder = folder_.path();
  constexpr int64_t kLate = int64_t{1} << 59;  // 18 years after boot
  std::vector<std::string> natives = {TraceMaker(folder / "empty", 0, 1).finish()};
  TraceMaker counters(folder / "counters", 3, 4, /*pid=*/0);
  counters.counter("", -5, -0.0);
  counters.counter("cycles/\n\"é\"", 7, 1e-300);
  natives.push_back(counters.finish());
  TraceMaker odd(folder / "odd", 0, 1);
  odd.host("", kLate, kLate + 10'000'000'000);  // longer than 32 bits
  odd.stack({"outer", "inner \"quoted\""});
  odd.op("op", kLate + 1, kLate + 1, "[[]]", "[\"\"]");
  odd.stack({"outer"});
  odd.launch(3'000'000'000u, kLate + 2, kLate + 3);
  odd.kernel("", kLate + 4, kLate + 5, 3'000'000'000u, int64_t{1} << 50, 0);
  odd.comm("iallreduce", "", {}, kLate - 1, kLate + 1, int64_t{1} << 40, -1, /*async=*/true);
  odd.stack({"outer", "inner \"quoted\"", "again"});
  odd.comm("recv", "p;p", {0, 1}, kLate, kLate, 0, 1);
  odd.memory(kLate, -4096, INT64_MIN, 0);
  natives.push_back(odd.finish(/*dropped=*/5));
  TraceMaker killed(folder / "killed", 0, 1);
  killed.kernel("gemm", 1, 2);
  killed.flush();
  natives.push_back(killed.path());
  for (const std::string& native : natives) {
    const std::string there = folder / "there.json", back = folder / "back.mstrace";
    convert_file(native, there, ExportFormat::kJson);
    const Store first = load({native}, {}), between = load({there}, {});
    EXPECT_EQ(rows(*between.ranks[0]), rows(*first.ranks[0])) << native;
    EXPECT_FALSE(between.stats.data_loss()) << native;
    convert_file(there, back, ExportFormat::kNative);
    EXPECT_EQ(rows(*load({back}, {}).ranks[0]), rows(*first.ranks[0])) << native;
  }
}

TEST_F(ConvertTest, AKeyThatLiesIsCountedAndLeftOut) {
  convert_file(make(0), folder_ / "good.json", ExportFormat::kJson);
  const std::string good = test::read_file(folder_ / "good.json");
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    const size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    core::write_text_atomically(folder_ / "bad.json", text.replace(at, from.size(), to));
    return load({folder_ / "bad.json"}, {});
  };
  const std::string origin = "\"origin_ns\": 1000";
  for (const auto& [from, to] :
       {std::pair(origin, std::string("\"origin_ns\": 4611686018427387904")),
        std::pair(origin, std::string("\"origin_ns\": 0.5")),
        std::pair(std::string("\"clocks\": ["), std::string("\"clocks\": [{}, ")),
        std::pair(std::string("\"pid\":4242"), "\"pid\":4242,\"x\":\"" + std::string(1 << 17, 'x') + "\"")}) {
    const Store store = with(from, to);
    EXPECT_FALSE(store.stats.issues().empty()) << from;
    EXPECT_EQ(store.ranks[0]->meta, "") << from;
    EXPECT_EQ(store.ranks[0]->events.size(), load({folder_ / "good.json"}, {}).ranks[0]->events.size()) << from;
    EXPECT_EQ(test::code_of([&] { convert_merged(store, folder_ / "a.mstrace", ExportFormat::kNative); }),
              core::ErrorCode::kUnsupported);
  }
}

TEST_F(ConvertTest, ManyChunksThereAndBack) {
  TraceMaker maker(folder_.path() / "traces", 0, 1);
  for (int64_t i = 0; i < 35'000; ++i) {
    maker.kernel(core::cat("kernel ", i % 1013), 10 * i, 10 * i + i % 30, 0, i % 3 == 0 ? i : -1);
    if (i % 7 == 0) maker.op("op", 10 * i, 10 * i + 5, "[[1]]", "[\"fp32\"]", 100 + i % 3);
  }
  const std::string native = maker.finish();
  convert_file(native, folder_ / "there.json", ExportFormat::kJson);
  convert_file(folder_ / "there.json", folder_ / "back.mstrace", ExportFormat::kNative);
  EXPECT_EQ(rows(*load({folder_ / "back.mstrace"}, {}).ranks[0]), rows(*load({native}, {}).ranks[0]));
}

TEST_F(ConvertTest, TheNativeFormatHoldsOursOnly) {
  core::write_text_atomically(folder_ / "kineto.json",
                              R"([{"ph": "X", "name": "a", "cat": "python_function", "ts": 1, "dur": 1}])");
  EXPECT_EQ(test::code_of([&] { convert_file(folder_ / "kineto.json", folder_ / "a.mstrace", ExportFormat::kNative); }),
            core::ErrorCode::kUnsupported);
  make(0);
  make(1);
  EXPECT_EQ(test::code_of(
                [&] { convert_merged(load({folder_ / "traces"}, {}), folder_ / "a.mstrace", ExportFormat::kNative); }),
            core::ErrorCode::kInvalidArgument);
  EXPECT_FALSE(std::filesystem::exists(folder_ / "a.mstrace"));
}

TEST_F(ConvertTest, AFailureLeavesTheOutputAlone) {
  core::write_text_atomically(folder_ / "bad.mstrace", "not a trace");
  core::write_text_atomically(folder_ / "out.json", "old");
  EXPECT_THROW(convert_file(folder_ / "bad.mstrace", folder_ / "out.json", ExportFormat::kJson), core::Error);
  EXPECT_EQ(test::read_file(folder_ / "out.json"), "old");
  EXPECT_THROW(convert_file(make(0), folder_ / "no/such/out.json", ExportFormat::kJson), core::Error);
}

TEST(ExportFormatOfAPath, IsItsEnd) {
  EXPECT_EQ(export_format_of_path("a.b.json"), ExportFormat::kJson);
  EXPECT_EQ(export_format_of_path("a.json.gz"), ExportFormat::kJsonGz);
  EXPECT_EQ(export_format_of_path("a.json.zst"), ExportFormat::kJsonZst);
  EXPECT_EQ(export_format_of_path("a.mstrace"), ExportFormat::kNative);
  EXPECT_EQ(export_format_of_path("a.perfetto-trace"), ExportFormat::kPerfetto);
  EXPECT_EQ(export_format_of_path("a.pftrace"), ExportFormat::kPerfetto);
  EXPECT_EQ(export_format_of_path("a.pftrace.gz"), ExportFormat::kPerfettoGz);
  EXPECT_EQ(export_format_of_path("a.perfetto-trace.zst"), ExportFormat::kPerfettoZst);
  EXPECT_EQ(parse_export_format("perfetto-trace.gz"), ExportFormat::kPerfettoGz);
  EXPECT_THROW(export_format_of_path("a.txt"), core::Error);
  EXPECT_THROW(parse_export_format("native"), core::Error);
}

}  // namespace
}  // namespace ms::profile
