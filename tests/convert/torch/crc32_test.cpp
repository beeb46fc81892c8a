// The CRC of a whole from its parts, in any order.
#include "convert/torch/crc32.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

namespace ms::convert {
namespace {

std::span<const std::byte> bytes_of(const std::string& text) { return std::as_bytes(std::span(text)); }

TEST(Crc32Test, MatchesTheZipCheckValue) {  // the check value of CRC-32/ISO-HDLC in the catalogue of CRCs
  EXPECT_EQ(crc32(0, bytes_of("123456789")), 0xcbf43926u);
  EXPECT_EQ(crc32(crc32(0, bytes_of("1234")), bytes_of("56789")), 0xcbf43926u);
  EXPECT_EQ(crc32(0, {}), 0u);
  EXPECT_EQ(Crc32OfParts(0).value(), 0u);
}

TEST(Crc32Test, PartsCombineInAnyOrder) {
  std::mt19937 random(7);
  for (const size_t size : {1u, 9u, 64u, 1000u, 70001u}) {
    std::string text(size, '\0');
    for (char& c : text) c = static_cast<char>(random());
    std::vector<size_t> cuts = {0, size};
    for (int i = 0; i < 5; ++i) cuts.push_back(random() % (size + 1));
    std::sort(cuts.begin(), cuts.end());
    std::vector<size_t> order = {0, 1, 2, 3, 4, 5};
    std::shuffle(order.begin(), order.end(), random);
    Crc32OfParts parts(static_cast<int64_t>(size));
    for (const size_t part : order) {
      parts.add(static_cast<int64_t>(cuts[part]), bytes_of(text).subspan(cuts[part], cuts[part + 1] - cuts[part]));
    }
    EXPECT_EQ(parts.value(), crc32(0, bytes_of(text))) << size;
  }
}

TEST(Crc32Test, MissingPartsCountAsZeros) {
  std::string text(5000, '\0');
  text.replace(4000, 4, "tail");
  Crc32OfParts parts(5000);
  parts.add(4000, bytes_of("tail"));
  EXPECT_EQ(parts.value(), crc32(0, bytes_of(text)));
}

}  // namespace
}  // namespace ms::convert
