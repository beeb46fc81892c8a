// Formats by their first bytes, including formats that begin alike.
#include "profile/ingest/sniff.h"

#include <gtest/gtest.h>

#include <string>

namespace ms::profile {
namespace {

using namespace std::string_literals;

std::string field(char key, const std::string& bytes) {
  return std::string(1, key) + static_cast<char>(bytes.size()) + bytes;
}

// XSpace { planes { id: 1 name: "/host:CPU" lines {} } }
TEST(Sniff, XPlaneIsNoPerfettoTrace) {
  for (const char* name : {"/host:CPU", "/device:TPU:0", "Task Environment", "/host:metadata"}) {
    const std::string named = field('\x12', name) + "\x1a\x00"s;
    EXPECT_EQ(sniff(field('\n', named)), Format::kXPlane) << name;
    EXPECT_EQ(sniff(field('\n', "\x08\x01" + named)), Format::kXPlane) << name << ", with an id";
  }
}

// TracePacket { timestamp: 1 trusted_packet_sequence_id: 1 }, and one with a process tree, which is also field 2
TEST(Sniff, PerfettoIsNoXPlane) {
  EXPECT_EQ(sniff(field('\n', "\x40\x01\x50\x01")), Format::kPerfetto);
  EXPECT_EQ(sniff(field('\n', field('\x12', field('\n', "\x08\x05")))), Format::kPerfetto);
}

TEST(Sniff, KernelTableIsKnownByItsHeader) {
  EXPECT_EQ(sniff("Step Id,Name,Type,Accelerator Core,Start Time(us),Duration(us),Wait Time(us)\n50,MatMul,,AI_CORE"),
            Format::kKernelTable);
  EXPECT_EQ(sniff("\xef\xbb\xbfOp Name,Task Start Time(us),Task Duration(us)\r\n"), Format::kKernelTable);
  EXPECT_EQ(sniff("Name,Start Time(us)\nDuration(us),"), Format::kUnknown) << "the header is one line";
}

TEST(Sniff, OthersAreToldByTheirMagic) {
  EXPECT_EQ(sniff("MSTRACE1...."), Format::kNative);
  EXPECT_EQ(sniff("\x1f\x8b\x08"), Format::kGzip);
  EXPECT_EQ(sniff("\x28\xb5\x2f\xfd"), Format::kZstd);
  EXPECT_EQ(sniff("SQLite format 3\0"s), Format::kSqlite);
  EXPECT_EQ(sniff("\xef\xbb\xbf \n["), Format::kChromeJson);
  EXPECT_EQ(sniff(""), Format::kUnknown);
  EXPECT_EQ(sniff("what is this"), Format::kUnknown);
}

}  // namespace
}  // namespace ms::profile
