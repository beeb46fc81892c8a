// Perfetto traces: written by Perfetto's own library (tests/data/make_perfetto.py), by msprof, and damaged ones.
#include "profile/ingest/perfetto.h"

#include <gmock/gmock.h>

#include <algorithm>

#include "core/error.h"
#include "profile/convert.h"
#include "profile/ingest/load.h"
#include "profile/ingest/sniff.h"
#include "profile/perfetto.h"
#include "profile/report/json_report.h"
#include "profile/report/protobuf_writer.h"
#include "profile/sections.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/thrown.h"
#include "tests/support/trace_maker.h"

namespace ms::profile {
namespace {

using core::cat;
using testing::ElementsAre;
using testing::UnorderedElementsAre;

std::string lane_text(const RankTrace& trace, uint16_t index) {
  const Lane& lane = trace.lanes[index];
  const auto id = [&](int64_t value) {
    return value >= kTextLaneId ? trace.names[static_cast<NameId>(value - kTextLaneId)] : cat(value);
  };
  return cat(lane.device ? "device " : "", id(lane.process), "/", id(lane.id), " ", trace.names[lane.name]);
}

// "name category start+dur lane"
std::vector<std::string> slices(const RankTrace& trace) {
  std::vector<std::string> out;
  const Events& e = trace.events;
  for (size_t i = 0; i < e.size(); ++i) {
    out.push_back(cat(trace.names[e.name[i]], " ", trace.names[trace.categories[e.category[i]].name], " ", e.ts[i], "+",
                      e.dur[i], " ", lane_text(trace, e.lane[i])));
  }
  return out;
}

std::map<std::string, int64_t> issues(const Store& store) {
  std::map<std::string, int64_t> counts;
  for (const auto& [kind, issue] : store.stats.issues()) counts[kind] = issue.count;
  return counts;
}

Store golden(const char* name) { return load({cat(MS_TEST_DATA, "/perfetto/", name)}, {}); }

TEST(Perfetto, ReadsWhatTheTracingLibraryWrites) {
  const Store store = golden("sdk.perfetto-trace");
  const RankTrace& trace = *store.ranks[0];
  EXPECT_EQ(store.files[0].format, "perfetto");
  // Incremental times start at 5,000,001 us, in each sequence separately.
  EXPECT_THAT(
      slices(trace),
      ElementsAre("outer toplevel 5000002000+19000 4000/4001 worker", "inner cpu_op 5000004000+3000 4000/4001 worker",
                  "task  5000006000+5000 4000/4002 pool", "second  5000101000+10000 4000/4001 worker",
                  "across  5000106000+10000 4000/4001 worker", "  5000201000+1000 4000/4002 pool"));
  EXPECT_EQ(trace.names[trace.lanes[0].process_name], "server");
  EXPECT_EQ(trace.base_unix_ns, 1'700'000'000'000'000'000);
  EXPECT_EQ(trace.by_phase['i'], 1);
  ASSERT_EQ(trace.counters.size(), 3u);
  std::vector<std::string> samples;
  for (const CounterSample& sample : trace.counters)
    samples.push_back(cat(trace.names[sample.name], " ", sample.value, " ", lane_text(trace, sample.lane)));
  EXPECT_THAT(samples, ElementsAre("load 0.25 4000/4000 ", "bytes 30 4000/4001 worker", "bytes 20 4000/4001 worker"));
  EXPECT_EQ(trace.flow_ids, 1);
  EXPECT_EQ(trace.flow_pairs_complete, 1);
  EXPECT_THAT(issues(store), UnorderedElementsAre(std::pair("skipped_packets", 2), std::pair("dropped_events", 1),
                                                  std::pair("lost_events", 2), std::pair("missing_names", 1),
                                                  std::pair("overlapping_slices", 1)));
}

TEST(Perfetto, ReadsKinetosWords) {
  const Store store = golden("kineto.perfetto-trace");
  const RankTrace& trace = *store.ranks[0];
  EXPECT_THAT(slices(trace),
              ElementsAre("ProfilerStep#3 user_annotation 1000+8000 42/50 main", "aten::mm cpu_op 1500+1000 42/51 ",
                          "cudaLaunchKernel cuda_runtime 2000+100 42/50 main", "launch new_runtime 2200+100 42/50 main",
                          "gemm kernel 3000+2000 device 2/9 stream 9",
                          "ncclDevKernel_AllReduce kernel 4000+3001 device 2/9 stream 9",
                          "k new_kind 7500+500 device 2/9 stream 9", "marker new_kind 8000+1 device 2/9 stream 9",
                          "late  8400+100 42/51 ", "open  8600+400 42/51 "));
  EXPECT_EQ(trace.details[trace.events.details[4]].flops, 48);
  EXPECT_EQ(trace.names[trace.details[trace.events.details[1]].dims], "[[2, 3], [3, 4]]");
  const CommArgs& comm = trace.comms[trace.events.comm[5]];
  EXPECT_EQ(trace.names[comm.op], "allreduce");
  EXPECT_EQ(comm.in_elements, 64);
  EXPECT_EQ(trace.side(6), Side::kDevice) << "a category that nobody knows, with a launch";
  EXPECT_EQ(trace.side(7), Side::kHost) << "and without";
  EXPECT_THAT(issues(store), UnorderedElementsAre(std::pair("unmatched_end", 1), std::pair("unmatched_begin", 1),
                                                  std::pair("no_partner", 1), std::pair("unknown_category", 2),
                                                  std::pair("overlapping_slices", 1)));
}

// All results of the analyses of a file.
std::string told(const std::string& path) {
  const Store store = load({path}, {});
  Sections all_but_facts = sections::every();
  std::erase(all_but_facts, &sections::kFacts);
  const std::string report = json_report(store, analyze(store, all_but_facts), {"analyze", {}, 0, true});
  return report.substr(report.find("\"result\""));
}

class PerfettoRoundTrip : public testing::Test {
 protected:
  std::string convert(const std::string& path, const char* name) {
    const std::string out = folder_ / name;
    convert_file(path, out, export_format_of_path(out));
    return out;
  }
  test::TemporaryFolder folder_;
};

std::string native_trace(const std::filesystem::path& folder, int64_t zero) {
  test::TraceMaker maker(folder, 1, 2);
  maker.clock(zero - 5, 70, 10);
  maker.host("ProfilerStep#4", zero, zero + 9000);
  maker.action("backward-microbatch", zero + 50, zero + 8000, 1, 0);
  maker.op("rms_norm \"quoted\"", zero + 100, zero + 250, "[[2, 3]]", "[\"fp32\"]");
  maker.stack({"outer;", "inner"});
  maker.launch(9, zero + 120, zero + 140);
  maker.kernel("gemm", zero + 300, zero + 997, 9, 640, 96);
  maker.kernel("across", zero + 900, zero + 1200, 10);
  maker.comm("send", "pp", {0, 1}, zero + 500, zero + 1500, 16, 0, /*async=*/true);
  maker.copy("Memcpy DtoH (Device -> Pinned)", zero + 1400, zero + 1600, 4096);
  maker.host("on another thread", zero + 7, zero + 7, 101);
  maker.memory(zero + 700, 4096, -64, 128);
  maker.counter("cycles", zero + 800, 1e-300);
  maker.counter("not a number", zero + 801, std::numeric_limits<double>::infinity());
  return maker.finish();
}

TEST_F(PerfettoRoundTrip, NativeToPerfettoToNative) {
  const std::vector<std::pair<int64_t, const char*>> cases = {{0, "a.perfetto-trace"},
                                                              {987'654'321'012, "a.pftrace.gz"},
                                                              {-5000, "a.perfetto-trace.zst"},
                                                              {int64_t{1} << 59, "a.pftrace"}};
  for (const auto& [zero, name] : cases) {
    const std::string native = native_trace(folder_.path() / cat("t", zero), zero), there = convert(native, name);
    EXPECT_EQ(told(there), told(native)) << zero;
    EXPECT_FALSE(load({there}, {}).stats.data_loss());
    const std::string back = convert(there, "back.mstrace");
    EXPECT_EQ(test::read_file(back), test::read_file(convert(native, "same.mstrace"))) << zero;
    EXPECT_EQ(test::read_file(convert(back, cat("again-", name).c_str())), test::read_file(there)) << zero;
  }
}

TEST_F(PerfettoRoundTrip, KinetoToPerfettoToKineto) {
  const std::string kineto = cat(MS_TEST_DATA, "/../fuzz/corpus/chrome_json/kineto.json");
  const std::string there = convert(kineto, "a.perfetto-trace");
  EXPECT_EQ(told(there), told(kineto));
  const auto lines = [](const std::string& path) {
    std::vector<std::string> out;
    const std::string text = test::read_file(path);
    for (size_t at = text.find("\n"); at != std::string::npos; at = text.find("\n", at + 1)) {
      std::string line = text.substr(at + 1, text.find("\n", at + 1) - at - 1);
      if (line.ends_with(',')) line.pop_back();
      if (line.find("\"ph\": \"M\"") == std::string::npos) out.push_back(line);
    }
    std::sort(out.begin(), out.end());
    return out;
  };
  EXPECT_EQ(lines(convert(there, "there.json")), lines(convert(kineto, "here.json")));
}

TEST_F(PerfettoRoundTrip, RealTracesGiveTheSameAnalyses) {
  const std::filesystem::path data = MS_TRACE_DATA;
  if (!std::filesystem::exists(data / "kineto")) GTEST_SKIP() << "needs the traces of MS_TRACE_DATA";
  for (const char* name : {"kineto/h100_bert/trace.json.gz", "hta/alexnet/trace.json.gz", "hta/triton/trace.json.gz",
                           "hta/cuda_event_sync/trace.json.gz"}) {
    EXPECT_EQ(told(convert(data / name, "a.perfetto-trace")), told(data / name)) << name;
  }
}

// Random kernels on three streams and two threads, most of which overlap.
TEST_F(PerfettoRoundTrip, WhatOverlapsIsKept) {
  test::TraceMaker maker(folder_.path() / "t", 0, 1);
  uint64_t random = 7;
  const auto next = [&random](uint64_t end) {
    random = random * 6364136223846793005 + 1442695040888963407;
    return static_cast<int64_t>((random >> 33) % end);
  };
  for (uint32_t i = 0; i < 2000; ++i) {
    const int64_t start = next(5000), end = start + next(100) * next(3);
    if (i % 3 == 0) maker.kernel(cat("k", i % 7), start, end, i + 1);
    if (i % 3 == 1) maker.copy("c", start, end, next(1000));
    if (i % 3 == 2) maker.op("op", start, end, {}, {}, 100 + next(2));
  }
  const std::string native = maker.finish(), there = convert(native, "a.perfetto-trace");
  const auto sorted = [](const std::string& path) {
    std::vector<std::string> rows = slices(*load({path}, {}).ranks[0]);
    std::sort(rows.begin(), rows.end());
    return rows;
  };
  EXPECT_EQ(sorted(there), sorted(native));
  EXPECT_EQ(told(there), told(native));
}

TEST_F(PerfettoRoundTrip, AFolderHoldsATraceInOneForm) {
  const std::string native = native_trace(folder_.path() / "all", 0);
  convert_file(native, folder_ / "all/rank_00001.perfetto-trace", ExportFormat::kPerfetto);
  EXPECT_EQ(load({folder_ / "all"}, {}).files.size(), 1u) << "beside the native file of the rank";
  std::filesystem::remove(native);
  const Store store = load({folder_ / "all"}, {});
  EXPECT_EQ(store.files.at(0).format, "perfetto");
  EXPECT_EQ(store.ranks.at(0)->rank, 1);
}

TEST_F(PerfettoRoundTrip, ACutFileGivesWhatCameBefore) {
  const std::string whole = test::read_file(convert(native_trace(folder_.path() / "t", 0), "a.perfetto-trace"));
  const size_t all = load({folder_ / "a.perfetto-trace"}, {}).ranks[0]->events.size();
  size_t before = 0;
  for (size_t size = 30; size < whole.size(); size += 13) {
    test::write_file(folder_ / "cut.perfetto-trace", whole.substr(0, size));
    const Store store = load({folder_ / "cut.perfetto-trace"}, {});
    const size_t events = store.ranks[0]->events.size();
    EXPECT_GE(events, before);
    EXPECT_LE(events, all);
    before = events;
    // A cut between two packets cannot be detected, unless slices are open.
    EXPECT_TRUE(store.stats.data_loss() || store.stats.issues().count("unmatched_begin") != 0 || events <= 1 ||
                events == all)
        << size;
  }
}

using namespace protobuf;

std::string packet(const std::string& fields) {
  std::string out;
  put_bytes(out, perfetto::kTracePacket, fields);
  return out;
}

std::string event_packet(uint64_t ts, uint64_t type, uint64_t track, std::string_view name) {
  std::string event, fields;
  put_integer(event, perfetto::track_event::kType, type);
  put_integer(event, perfetto::track_event::kTrack, track);
  put_bytes(event, perfetto::track_event::kName, name);
  put_integer(fields, perfetto::packet::kTimestamp, ts);
  put_bytes(fields, perfetto::packet::kTrackEvent, event);
  return packet(fields);
}

class DamagedPerfetto : public testing::Test {
 protected:
  Store read(const std::string& bytes) {
    test::write_file(folder_ / "a.pftrace", bytes);
    return load({folder_ / "a.pftrace"}, {});
  }
  const std::string good_ = event_packet(10, 1, 1, "a") + event_packet(20, 2, 1, "");
  test::TemporaryFolder folder_;
};

TEST_F(DamagedPerfetto, LosesAsLittleAsPossible) {
  EXPECT_EQ(issues(read(good_)).size(), 0u);
  struct Case {
    std::string bytes;
    std::string kind;
    size_t events;
  };
  const std::string wild_time = event_packet(uint64_t{1} << 63, 1, 1, "b");
  std::string no_time, event, unknown_field, fixed;
  put_integer(event, perfetto::track_event::kType, 1);
  put_bytes(no_time, perfetto::packet::kTrackEvent, event);
  put_integer(unknown_field, 7, 7);
  put_fixed64(fixed, 9, 1);
  for (const Case& one : {
           Case{good_ + packet("\x0b"), "bad_event", 1},                      // a group
           Case{good_ + packet("\x5a\x7f"), "bad_event", 1},                  // an event longer than its packet
           Case{good_ + packet("\x5a\x02\x0b\x0b") + good_, "bad_event", 2},  // damaged inside
           Case{good_ + wild_time, "bad_number", 1},
           Case{good_ + packet(no_time), "missing_ts", 1},
           Case{good_ + event_packet(30, 9, 1, "b"), "unknown_ph", 1},
           Case{good_ + event_packet(30, 4, 1, "b"), "bad_event", 1},  // a counter without a value
           Case{good_ + "\x0a", "truncated", 1},
           Case{good_ + "\x0a\x05\x08", "truncated", 1},
           Case{good_ + "\x0a\xff\xff\xff\xff\x7f" + good_, "damaged_chunk", 1},
           Case{good_ + "\x0b" + good_, "damaged_chunk", 1},
           Case{good_ + unknown_field + fixed + good_, "", 2},  // unknown fields of a trace
           Case{good_ + packet("\x0a\x02\x08\x01"), "skipped_packets", 1},
           Case{good_ + packet("\x92\x03\x02xx"), "packed_packets", 1},
           Case{good_ + packet("\xaa\x08\x02xx"), "packed_packets", 1},
       }) {
    const Store store = read(one.bytes);
    EXPECT_EQ(store.ranks[0]->events.size(), one.events) << one.kind;
    if (one.kind.empty()) {
      EXPECT_EQ(issues(store).size(), 0u);
    } else {
      EXPECT_EQ(issues(store).count(one.kind), 1u) << one.kind;
    }
  }
}

TEST_F(DamagedPerfetto, TracksAboveThemselvesAndWithoutDescription) {
  std::string circle;
  for (const auto& [uuid, parent] : {std::pair(1, 2), std::pair(2, 1)}) {
    std::string track, fields;
    put_integer(track, perfetto::track_descriptor::kUuid, static_cast<uint64_t>(uuid));
    put_integer(track, perfetto::track_descriptor::kParent, static_cast<uint64_t>(parent));
    put_bytes(fields, perfetto::packet::kTrackDescriptor, track);
    circle += packet(fields);
  }
  const Store store = read(circle + good_ + event_packet(30, 1, 77, "b") + event_packet(31, 2, 77, ""));
  EXPECT_THAT(slices(*store.ranks[0]), ElementsAre("a  10+10 0/track 1 track 1", "b  30+1 0/track 77 track 77"));
}

TEST_F(DamagedPerfetto, WhatIsNoTraceIsRefused) {
  for (const std::string& bytes : {std::string("\nname,start,duration\n1,2,3\n"), std::string("\n\n\n\n"),
                                   std::string("\x0a"), packet("\x0b\x0b") + packet("\x0f")}) {
    EXPECT_EQ(test::code_of([&] { read(bytes); }), core::ErrorCode::kCorruptData) << bytes;
  }
  EXPECT_NE(sniff("\nname,start,duration\n1,2,3\n"), Format::kPerfetto);
  EXPECT_EQ(sniff(good_), Format::kPerfetto);
  EXPECT_EQ(sniff(std::string_view(good_).substr(0, 8)), Format::kPerfetto);
}

}  // namespace
}  // namespace ms::profile
