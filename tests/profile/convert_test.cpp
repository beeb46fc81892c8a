// What `msprof convert` writes: valid JSON, Kineto's words, times to the nanosecond; plain, gzip and zstd the same.
#include "profile/convert.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <isa-l/igzip_lib.h>
#include <zstd.h>

#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/io/file.h"
#include "profile/ingest/load.h"
#include "tests/support/temporary_folder.h"
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

TEST_F(ConvertTest, RanksIntoAFolder) {
  make(0);
  make(1);
  const auto paths = convert_ranks(load({folder_ / "traces"}, {}), folder_ / "json", ExportFormat::kJsonZst);
  ASSERT_EQ(paths.size(), 2u);
  EXPECT_TRUE(std::filesystem::exists(folder_ / "json/rank_00001.json.zst"));
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
  EXPECT_THROW(export_format_of_path("a.txt"), core::Error);
  EXPECT_THROW(parse_export_format("native"), core::Error);
}

}  // namespace
}  // namespace ms::profile
