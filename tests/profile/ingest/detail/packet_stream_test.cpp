// Packets from bytes that arrive in pieces, and the issues reported where they end.
#include "profile/ingest/detail/packet_stream.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "profile/perfetto.h"
#include "profile/report/protobuf_writer.h"
#include "tests/support/text_stream.h"

namespace ms::profile::detail {
namespace {

using namespace protobuf;

struct Outcome {
  std::vector<size_t> sizes;  // of the packets
  std::string issue;          // "kind byte N", of the only issue
};

Outcome read(const std::string& bytes, size_t piece) {
  test::TextStream pieces(bytes, piece);
  ImportStats stats;
  const std::string path = "f";
  FileIssues issues(stats, path);
  PacketStream stream(pieces, issues);
  Outcome out;
  while (const auto packet = stream.next()) {
    EXPECT_EQ(*packet, std::string(packet->size(), static_cast<char>('a' + out.sizes.size() % 26)));
    out.sizes.push_back(packet->size());
  }
  EXPECT_FALSE(stream.next().has_value()) << "the end stays the end";
  for (const auto& [kind, issue] : stats.issues()) {
    out.issue += kind + " " + issue.example.substr(0, issue.example.find(": ", 3));
    EXPECT_EQ(issue.count, 1);
  }
  return out;
}

std::string packets(const std::vector<size_t>& sizes) {
  std::string out;
  for (size_t i = 0; i < sizes.size(); ++i) {
    put_bytes(out, perfetto::kTracePacket, std::string(sizes[i], static_cast<char>('a' + i % 26)));
  }
  return out;
}

TEST(PacketStream, GivesPacketsHoweverTheBytesCome) {
  const std::vector<size_t> sizes = {0, 1, 127, 128, 300'000, 3, 1 << 20, 16384};
  for (const size_t piece : {size_t{1000}, size_t{1 << 18}, SIZE_MAX}) {
    const Outcome outcome = read(packets(sizes), piece);
    EXPECT_EQ(outcome.sizes, sizes) << piece;
    EXPECT_EQ(outcome.issue, "") << piece;
  }
  EXPECT_EQ(read(packets({0, 1, 127, 128, 3}), 1).sizes.size(), 5u);
  EXPECT_TRUE(read("", 10).sizes.empty());
}

TEST(PacketStream, EveryCutIsSeen) {
  const std::string bytes = packets({5, 200});
  const size_t second = packets({5}).size();
  for (size_t size = 1; size < bytes.size(); ++size) {
    const Outcome outcome = read(bytes.substr(0, size), 7);
    EXPECT_EQ(outcome.sizes.size(), size < second ? 0u : 1u) << size;
    EXPECT_EQ(outcome.issue, size == second  ? ""
                             : size < second ? "truncated f: byte 0"
                                             : "truncated f: byte 7")
        << size;
  }
}

TEST(PacketStream, FieldsOfOtherNumbersAreSteppedOver) {
  std::string bytes = packets({5});
  put_integer(bytes, 2, UINT64_MAX);
  put_fixed64(bytes, 3, 1);
  put_tag(bytes, 4, kFixed32);
  bytes += "1234";
  put_bytes(bytes, 5, "other");
  put_bytes(bytes, perfetto::kTracePacket, "bbb");
  EXPECT_EQ(read(bytes, 3).sizes, (std::vector<size_t>{5, 3}));
}

TEST(PacketStream, NothingIsReadBehindDamage) {
  for (const std::string& damage : {std::string("\x0b"), std::string("\x0a\xff\xff\xff\xff\xff\x01"),
                                    std::string(11, '\xff'), "\x0a" + std::string(11, '\xff')}) {
    const Outcome outcome = read(packets({5}) + damage + packets({5, 5, 5}), 100);
    EXPECT_EQ(outcome.sizes.size(), 1u);
    EXPECT_EQ(outcome.issue, "damaged_chunk f: byte 7");
  }
}

}  // namespace
}  // namespace ms::profile::detail
