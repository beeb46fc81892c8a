// Chrome trace events: times to the nanosecond, every phase, damage, and blocks that begin anywhere in a token.
#include "profile/ingest/chrome_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <isa-l/igzip_lib.h>
#include <zstd.h>

#include <cstdlib>
#include <random>
#include <span>

#include "core/error.h"
#include "profile/ingest/byte_stream.h"
#include "profile/ingest/detail/json_window.h"
#include "profile/ingest/detail/numbers.h"
#include "tests/kernels/forced_isa.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/text_stream.h"
#include "tests/support/thrown.h"

namespace ms::profile {
namespace {

using detail::microseconds_to_ns;
using detail::stream_number;

struct Read {
  RankTrace trace;
  FileInfo file;
  ImportStats stats;
  bool is_trace = false;

  int64_t count(const std::string& kind) const {
    const auto found = stats.issues().find(kind);
    return found == stats.issues().end() ? 0 : found->second.count;
  }
  std::string name(size_t i) const { return trace.names[trace.events.name[i]]; }
};

std::unique_ptr<Read> read(std::string_view text, size_t piece = SIZE_MAX, bool lends = false) {
  auto out = std::make_unique<Read>();
  test::TextStream stream(text, piece, lends);
  out->is_trace = read_chrome_json(stream, "a.json", out->trace, out->file, out->stats);
  return out;
}

std::string kernel(int i, const std::string& more = "") {
  return core::cat(R"({"ph": "X", "cat": "kernel", "name": "k)", i, R"(", "pid": 0, "tid": 7, "ts": )", 100 + 10 * i,
                   R"(.001, "dur": 2.5, "args": {"device": 0, "stream": 7, "correlation": )", i, more, "}}");
}

TEST(Numbers, MicrosecondsAreExact) {
  EXPECT_EQ(microseconds_to_ns("1736408883696741.123"), 1736408883696741123);
  EXPECT_EQ(microseconds_to_ns("0"), 0);
  EXPECT_EQ(microseconds_to_ns("-1.5"), -1500);
  EXPECT_EQ(microseconds_to_ns("1.2"), 1200);
  EXPECT_EQ(microseconds_to_ns("1.0005"), 1001) << "half away from zero";
  EXPECT_EQ(microseconds_to_ns("-1.0005"), -1001);
  EXPECT_EQ(microseconds_to_ns("1.00049999999999999999999999"), 1000);
  EXPECT_EQ(microseconds_to_ns("0.125e1"), 1250);
  EXPECT_EQ(microseconds_to_ns("1250E-3"), 1250);
  EXPECT_EQ(microseconds_to_ns("1e-400"), 0);
  EXPECT_EQ(microseconds_to_ns("0e99999999999999999999"), 0);
  EXPECT_EQ(microseconds_to_ns("1e400"), std::nullopt);
  EXPECT_EQ(microseconds_to_ns("4611686018427387.903"), (int64_t{1} << 62) - 1);
  EXPECT_EQ(microseconds_to_ns("4611686018427387.904"), std::nullopt);
  EXPECT_EQ(microseconds_to_ns("4611686018427387.9039999999999999"), std::nullopt) << "rounds to 2^62";
  EXPECT_EQ(microseconds_to_ns("000000000000000000000000001"), 1000);
  for (const char* bad : {"", "-", "abc", "1.2.3", "1x", "NaN", "1e", "--1", "0x10"}) {
    EXPECT_EQ(microseconds_to_ns(bad), std::nullopt) << bad;
  }
}

TEST(Numbers, OfAnyLengthAreExact) {
  const char* given = std::getenv("MS_TEST_SEED");
  const uint64_t seed = given == nullptr ? 7 : std::strtoull(given, nullptr, 10);
  SCOPED_TRACE(core::cat("MS_TEST_SEED=", seed));
  std::mt19937_64 random(seed);
  for (int i = 0; i < 100'000; ++i) {
    const size_t digits = 1 + random() % 17, decimals = random() % 5;
    std::string text;
    __int128 ten_thousandths = 0;  // of a microsecond
    for (size_t k = 0; k < digits + 4; ++k) {
      const int digit = k < digits + decimals ? static_cast<int>(random() % 10) : 0;
      ten_thousandths = ten_thousandths * 10 + digit;
      if (k == digits && decimals > 0) text += '.';
      if (k < digits + decimals) text += static_cast<char>('0' + digit);
    }
    const __int128 ns = (ten_thousandths + 5) / 10;
    const bool fits = ns < __int128{1} << 62;
    ASSERT_EQ(microseconds_to_ns(text), fits ? std::optional(static_cast<int64_t>(ns)) : std::nullopt) << text;
    const size_t at = random() % text.size();
    if (text[at] == '.') continue;
    for (const char wrong : {'/', ':', ' ', 'x', '\0', '\xb0', '-'}) {
      std::string damaged = text;
      damaged[at] = wrong;
      if (wrong == '-' && at == 0) continue;
      ASSERT_EQ(microseconds_to_ns(damaged), std::nullopt) << damaged;
    }
  }
}

TEST(Numbers, Streams) {
  EXPECT_EQ(stream_number("7"), 7);
  EXPECT_EQ(stream_number("0x7"), 7);
  EXPECT_EQ(stream_number("stream 7 (compute)"), 7);
  EXPECT_EQ(stream_number("-1"), -1);
  EXPECT_EQ(stream_number("4294967295"), -1);
  EXPECT_EQ(stream_number("18446744073709551615"), -1);
  EXPECT_EQ(stream_number("none"), std::nullopt);
}

TEST(ChromeJson, ReadsWhatKinetoWrites) {
  const auto r = read(
      R"({"schemaVersion": 1, "distributedInfo": {"backend": "nccl", "rank": 3, "world_size": 8},
    "baseTimeNanoseconds": 1700000000000000000, "displayTimeUnit": "ms", "traceEvents": [
    {"ph": "M", "name": "thread_name", "pid": 10, "tid": 11, "args": {"name": "main"}},
    {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 10, "tid": "11", "ts": 90, "dur": 4,
     "args": {"correlation": 1}},
    {"ph": "s", "cat": "ac2g", "name": "ac2g", "id": 1, "pid": 10, "tid": 11, "ts": 90},
    {"ph": "f", "cat": "ac2g", "name": "ac2g", "id": 1, "pid": 0, "tid": 7, "ts": 110.001, "bp": "e"},
    )" +
      kernel(1, R"(, "Collective name": "allreduce", "Seq": 4, "dtype": "Float", "Comms Id": 18446744073709551614)") +
      R"(,
    {"ph": "i", "s": "t", "name": "[memory]", "pid": 10, "tid": 11, "ts": 95,
     "args": {"Addr": 64, "Bytes": -5, "Device Type": 1, "Device Id": 0, "Total Allocated": 7, "Total Reserved": 9}},
    {"ph": "C", "name": "power", "pid": 10, "ts": 96, "args": {"watt": 1.5, "text": "x"}}], "traceName": "x"})");
  ASSERT_TRUE(r->is_trace);
  const RankTrace& t = r->trace;
  EXPECT_EQ(t.rank, 3);
  EXPECT_EQ(t.world_size, 8);
  EXPECT_EQ(t.backend, "nccl");
  EXPECT_EQ(t.base_unix_ns, 1'700'000'000'000'000'000);
  ASSERT_EQ(t.events.size(), 2u);
  EXPECT_EQ(t.events.ts[0], 90'000);
  EXPECT_EQ(t.events.ts[1], 110'001);
  EXPECT_EQ(t.events.dur[1], 2'500);
  EXPECT_EQ(t.side(1), Side::kDevice);
  EXPECT_EQ(t.events.correlation[0], t.events.correlation[1]);
  EXPECT_EQ(t.lanes[t.events.lane[1]].id, 7);
  EXPECT_EQ(t.names[t.lanes[t.events.lane[0]].name], "main");
  EXPECT_EQ(t.comms[t.events.comm[1]].comms_id, UINT64_MAX - 1);
  EXPECT_EQ(t.comms[t.events.comm[1]].sequence, 4);
  ASSERT_EQ(t.memory.size(), 1u);
  EXPECT_EQ(t.memory[0].bytes, -5);
  EXPECT_EQ(t.memory[0].reserved, 9);
  ASSERT_EQ(t.counters.size(), 1u);
  EXPECT_EQ(t.counters[0].value, 1.5);
  EXPECT_EQ(t.flow_ids, 1);
  EXPECT_EQ(t.flow_pairs_complete, 1);
  EXPECT_EQ(t.by_phase['X'], 2);
  EXPECT_FALSE(r->stats.data_loss());
}

TEST(ChromeJson, JoinsBeginsAndEndsByTime) {
  const auto r =
      read(R"([{"ph": "E", "pid": 1, "tid": 1, "ts": 50}, {"ph": "B", "name": "outer", "pid": 1, "tid": 1, "ts": 10},
    {"ph": "E", "pid": 1, "tid": 1, "ts": 30}, {"ph": "B", "name": "inner", "pid": 1, "tid": 1, "ts": 20},
    {"ph": "B", "name": "open", "pid": 1, "tid": 2, "ts": 40}, {"ph": "E", "pid": 1, "tid": 3, "ts": 1},
    {"ph": "b", "cat": "a", "id": "0x10", "name": "async", "pid": 1, "ts": 5}, {"ph": "e", "cat": "a", "id": 16, "pid": 1, "ts": 9}])");
  ASSERT_EQ(r->trace.events.size(), 4u);
  EXPECT_EQ(r->name(0), "async");
  EXPECT_EQ(r->trace.events.dur[0], 4'000);
  EXPECT_EQ(r->trace.events.dur[1], 40'000) << "outer";
  EXPECT_EQ(r->trace.events.dur[2], 10'000) << "inner";
  EXPECT_EQ(r->trace.events.dur[3], 10'000) << "to the end of the trace";
  EXPECT_EQ(r->count("unmatched_begin"), 1);
  EXPECT_EQ(r->count("unmatched_end"), 1);
}

TEST(ChromeJson, UnescapesNames) {
  const auto r = read(R"([{"ph": "X", "name": "a\"b\\\/\n\u00fc\ud83d\ude00\q", "ts": 1, "dur": 1}])");
  EXPECT_EQ(r->name(0), "a\"b\\/\n\xc3\xbc\xf0\x9f\x98\x80q");
}

// All whole events before the cut are read, wherever the cut and the pieces are, and the loss is counted.
TEST(ChromeJson, ACutLosesWhatIsBehindIt) {
  std::string text = "{\"schemaVersion\": 1, \"traceEvents\": [";
  std::vector<size_t> ends;
  for (int i = 0; i < 5; ++i) {
    text += (i == 0 ? "\n  " : ",\n  ") + kernel(i, R"(, "x": {"deep": [[1, {"a": "}]\\\""}]]})");
    ends.push_back(text.size());
  }
  text += "]}";
  for (size_t cut = text.find('[') + 1; cut <= text.size(); ++cut) {
    const auto whole =
        static_cast<size_t>(std::count_if(ends.begin(), ends.end(), [&](size_t end) { return end <= cut; }));
    for (const size_t piece : {SIZE_MAX, size_t{1}, size_t{37}}) {
      for (const bool lends : {false, true}) {
        const auto r = read(std::string_view(text).substr(0, cut), piece, lends);
        ASSERT_EQ(r->trace.events.size(), whole) << "cut at " << cut;
        ASSERT_EQ(r->stats.data_loss(), cut < text.size()) << "cut at " << cut;
      }
    }
  }
}

// What does not fit in front of a loan is copied, and later text is lent again.
TEST(ChromeJson, EventsMayBeLongerThanLoans) {
  std::string text = "[" + kernel(0);
  for (int i = 1; i < 6; ++i) {
    const std::string inside(i % 2 == 0 ? 3 * ByteStream::kBefore : 10, 'x');
    text += core::cat(",\n", kernel(i, core::cat(R"(, "long": ")", inside, '"')));
  }
  text += "]";
  for (const size_t piece : {size_t{100}, ByteStream::kBefore / 2, ByteStream::kBefore + 1, 2 * ByteStream::kBefore}) {
    const auto r = read(text, piece, true);
    ASSERT_EQ(r->trace.events.size(), 6u) << piece;
    EXPECT_EQ(r->name(5), "k5") << piece;
    EXPECT_EQ(r->trace.events.correlation[4], 4u) << piece;
    EXPECT_TRUE(r->stats.issues().empty()) << piece;
    EXPECT_EQ(r->file.json_bytes, static_cast<int64_t>(text.size())) << piece;
  }
}

// The text doubles with each refill, so that scanning again from the first byte takes linear time.
TEST(JsonWindow, RefillsOfALongEventDoubleItsText) {
  const std::string text(size_t{16} << 20, 'x');
  test::TextStream stream(text, size_t{64} << 10);
  detail::JsonWindow window(stream);
  int refills = 0;
  while (window.refill()) ++refills;
  EXPECT_EQ(window.end() - window.begin(), static_cast<std::ptrdiff_t>(text.size()));
  EXPECT_LE(refills, 12) << "4 of 64 KiB each, then doubled 6 times";
}

TEST(ChromeJson, AnEventLongerThanTheWindowIsLeftOutAloneAndCounted) {
  const std::string inside(detail::JsonWindow::kMaxBytes + 1000, 'x');
  const auto r = read(
      core::cat("[", kernel(1), ",\n", kernel(2, core::cat(R"(, "long": "\"}{)", inside, '"')), ",\n", kernel(3), "]"),
      size_t{64} << 10);
  ASSERT_EQ(r->trace.events.size(), 2u);
  EXPECT_EQ(r->name(1), "k3");
  EXPECT_EQ(r->count("oversized_event"), 1);
  EXPECT_EQ(r->count("truncated"), 0) << "no program was killed";
  EXPECT_TRUE(r->stats.data_loss());
}

TEST(ChromeJson, AFileCutInsideAnEventLongerThanTheWindowIsTruncatedToo) {
  const std::string inside(detail::JsonWindow::kMaxBytes + 1000, 'x');
  const auto r = read(core::cat("[", kernel(1), ",\n", R"({"ph": "X", "name": ")", inside), size_t{64} << 10);
  ASSERT_EQ(r->trace.events.size(), 1u);
  EXPECT_EQ(r->count("oversized_event"), 1);
  EXPECT_EQ(r->count("truncated"), 1);
}

// An event without its end contains all that follow: this is damage, and costs one event.
TEST(ChromeJson, AnEventThatIsNotClosedCostsNoneOfThoseBehindIt) {
  const std::string inside(size_t{1} << 20, 'x');
  std::string text = core::cat("[", kernel(0), R"(,{"ph": "X", "name": "open", "args": {"list": [)");
  for (int i = 1; i <= 70; ++i)
    text += core::cat(i == 1 ? "" : ",", kernel(i, core::cat(R"(, "long": ")", inside, '"')));
  const auto r = read(text + "]", size_t{64} << 10);
  EXPECT_EQ(r->trace.events.size(), 71u);
  EXPECT_EQ(r->count("syntax"), 1);
  EXPECT_EQ(r->count("oversized_event"), 0);
}

TEST(ChromeJson, BlocksMayBeginAnywhere) {
  for (size_t shift = 0; shift < 70; ++shift) {
    const std::string space(shift, ' ');
    const auto r = read(core::cat("[", space, kernel(1, core::cat(", \"", std::string(shift, 'x'), "\\\"\": \"\\\\\"")),
                                  space, ",", kernel(2), "]"));
    ASSERT_EQ(r->trace.events.size(), 2u) << shift;
    EXPECT_FALSE(r->stats.data_loss()) << shift;
    EXPECT_EQ(r->trace.events.correlation[1], 2u);
  }
}

TEST(ChromeJson, SkipsADamagedEventAlone) {
  for (const char* damaged : {R"({"ph": "X", "name": "a"b", "ts": 1, "dur": 1})", R"({"ph": "X", "name": , "ts": 1})",
                              R"({"ph": "X" "name": "a"})", R"({"ph": "X", "ts": @})"}) {
    const auto r = read(core::cat("[", kernel(1), ",\n", damaged, ",\n", kernel(2), ",\n", kernel(3), "]"));
    EXPECT_EQ(r->trace.events.size(), 3u) << damaged;
    EXPECT_EQ(r->count("syntax"), 1) << damaged;
    EXPECT_TRUE(r->stats.data_loss());
  }
}

TEST(ChromeJson, CountsWhatItLeavesOut) {
  const auto r = read(R"([1, "x", [{}], null, {"ph": "X", "dur": 1}, {"name": "n", "ts": 1}, {"ph": "?", "ts": 1},
    {"ph": "X", "ts": "5.5", "dur": "1"}, {"ph": "X", "ts": 1e30}, {"ph": "X", "ts": 1, "dur": -1}, {"ph": "X", "ts": 1}, ])");
  EXPECT_EQ(r->count("not_an_object"), 4);
  EXPECT_EQ(r->count("missing_ts"), 1);
  EXPECT_EQ(r->count("missing_ph"), 1);
  EXPECT_EQ(r->count("unknown_ph"), 1);
  EXPECT_EQ(r->count("bad_number"), 1);
  EXPECT_EQ(r->count("negative_dur"), 1);
  EXPECT_EQ(r->count("missing_dur"), 1);
  EXPECT_EQ(r->trace.events.size(), 3u);
  EXPECT_EQ(r->trace.events.ts[2], 5'500);
}

TEST(ChromeJson, UnknownCategoriesWithALaunchAreDeviceWork) {
  const auto r = read(
      R"([{"ph": "X", "cat": "new_runtime", "name": "go", "pid": 1, "tid": 1, "ts": 1, "dur": 1, "args": {"correlation": 5}},
    {"ph": "X", "cat": "new_kernel", "name": "a", "pid": 0, "tid": 1, "ts": 3, "dur": 1, "args": {"device": 0, "stream": 1, "correlation": 5}},
    {"ph": "X", "cat": "new_kernel", "name": "b", "pid": 0, "tid": 1, "ts": 5, "dur": 1, "args": {"device": 0, "stream": 1, "correlation": 6}}])");
  ASSERT_EQ(r->trace.events.size(), 3u);
  EXPECT_EQ(r->trace.side(0), Side::kLaunch);
  EXPECT_EQ(r->trace.side(1), Side::kDevice);
  EXPECT_EQ(r->trace.side(2), Side::kHost);
}

TEST(ChromeJson, RefusesWhatIsNoTrace) {
  EXPECT_FALSE(read(R"({"a": [1, {"b": "]"}], "c": 1})")->is_trace);
  for (const char* text : {"", "  \n", "hello", R"({"traceEvents": 5})", "{", R"({"a": 1)", "{x}"}) {
    EXPECT_EQ(test::code_of([&] { read(text); }), core::ErrorCode::kCorruptData) << text;
  }
  EXPECT_TRUE(read(R"({"traceEvents": []})")->is_trace);
}

// Reads a file through a peek, by loans with occasional reads.
std::string lent(const std::string& path) {
  ImportStats stats;
  PeekedStream stream(open_bytes(path, stats, 2), 100);
  std::string out(stream.lends() ? 3 : 100'000'000, '\0');
  out.resize(stream.read(out.data(), out.size()));
  for (int i = 1; stream.lends(); ++i) {
    const std::span<char> loan = stream.lend();
    if (loan.empty()) break;
    out.append(loan.begin(), loan.end());
    std::string some(i % 3 == 0 ? 1000 : 0, '\0');
    if (!some.empty()) out.append(some, 0, stream.read(some.data(), some.size()));
  }
  return out;
}

TEST(ByteStream, UnpacksAllMembersAndSaysWhatIsWrong) {
  const test::TemporaryFolder folder;
  std::string text;
  for (int i = 0; i < 200'000; ++i) text += core::cat(i, ",");
  std::string zst(ZSTD_compressBound(text.size()), '\0');
  zst.resize(ZSTD_compress(zst.data(), zst.size(), text.data(), text.size(), 1));
  isal_zstream stream;
  std::string gz(text.size() + 1000, '\0');
  isal_deflate_stateless_init(&stream);
  stream.gzip_flag = IGZIP_GZIP;
  stream.end_of_stream = 1;
  stream.next_in = reinterpret_cast<uint8_t*>(text.data());
  stream.avail_in = static_cast<uint32_t>(text.size());
  stream.next_out = reinterpret_cast<uint8_t*>(gz.data());
  stream.avail_out = static_cast<uint32_t>(gz.size());
  ASSERT_EQ(isal_deflate_stateless(&stream), COMP_OK);
  gz.resize(stream.total_out);
  const auto unpack = [&](const std::string& bytes, const std::string& kind) {
    test::write_file(folder / "file", bytes);
    ImportStats stats;
    std::string out;
    for (const bool ahead : {false, true}) {
      const auto opened = open_bytes(folder / "file", stats, ahead ? 2 : 1);
      std::string piece(70'000, '\0'), all;
      for (size_t got = 1; got > 0; all.append(piece, 0, got)) got = opened->read(piece.data(), piece.size());
      if (ahead) {
        EXPECT_EQ(out, all);
      }
      out = all;
    }
    EXPECT_EQ(lent(folder / "file"), out);
    EXPECT_EQ(stats.issues().count(kind), kind.empty() ? 0u : 1u) << kind;
    EXPECT_EQ(stats.issues().size(), kind.empty() ? 0u : 1u) << kind;
    return out;
  };
  for (const std::string& packed : {gz, zst}) {
    EXPECT_EQ(unpack(packed, ""), text);
    EXPECT_EQ(unpack(packed + packed, ""), text + text);
    EXPECT_EQ(unpack(packed + "garbage", "trailing_bytes"), text);
    const std::string cut = unpack(packed.substr(0, packed.size() / 2), "truncated");
    EXPECT_EQ(cut, text.substr(0, cut.size()));
    EXPECT_GT(cut.size(), text.size() / 4);
  }
  std::string wrong = gz;
  wrong[wrong.size() - 6] ^= 1;
  EXPECT_EQ(unpack(wrong, "crc"), text);
  EXPECT_EQ(unpack("plain", ""), "plain");
}

}  // namespace
}  // namespace ms::profile
