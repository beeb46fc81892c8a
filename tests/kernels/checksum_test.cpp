#include "kernels/checksum.h"

#include <gtest/gtest.h>
#include <xxhash.h>

#include <algorithm>
#include <random>
#include <string_view>
#include <vector>

#include "kernels/detail/xxh3.h"
#include "kernels/isa.h"
#include "tests/kernels/forced_isa.h"

namespace ms::kernels {
namespace {

TEST(ChecksumTest, Xxh3EqualsTheLibraryOnEveryInstructionSet) {
  std::mt19937_64 random(5);
  std::vector<unsigned char> bytes(70000);
  for (auto& byte : bytes) byte = static_cast<unsigned char>(random());
  std::vector<size_t> sizes = {1023, 1024, 1025, 4096, 65536, 65537, 69999};
  for (size_t size = 0; size <= 600; ++size) sizes.push_back(size);  // its code path changes at 16, 128, 240 and 256
  for (const size_t size : sizes) {
    const unsigned char* const at = bytes.data() + random() % (bytes.size() - size + 1);
    const uint64_t expected = XXH3_64bits(at, size);
    ASSERT_EQ(xxh3(at, size), expected) << size;
#if defined(__x86_64__)
    if (cpu_supports(Isa::kAvx2)) {
      ASSERT_EQ(detail::xxh3_avx2(at, size), expected) << size;
    }
#endif
  }
  EXPECT_EQ(xxh3(nullptr, 0), 0x2d06800538d394c2u);  // of the empty string, from the specification's test vectors
}

TEST(ChecksumTest, Xxh3OfPiecesEqualsTheWhole) {
  std::mt19937_64 random(6);
  std::vector<unsigned char> bytes(70000);
  for (auto& byte : bytes) byte = static_cast<unsigned char>(random());
  for (int round = 0; round < 200; ++round) {
    const size_t size = random() % bytes.size(), most = 1 + random() % (round % 2 == 0 ? 300 : 20000);
    Xxh3 hash;
    for (size_t at = 0; at < size;) {
      const size_t count = std::min(size - at, random() % (most + 1));
      hash.update(bytes.data() + at, count);
      at += count;
    }
    ASSERT_EQ(hash.digest(), XXH3_64bits(bytes.data(), size)) << size;
  }
}

TEST(ChecksumTest, Xxh3EachHashesEveryPiece) {
  std::mt19937_64 random(7);
  std::vector<unsigned char> bytes(40000);
  for (auto& byte : bytes) byte = static_cast<unsigned char>(random());
  for (const size_t size : {1, 16, 100, 128, 200, 256, 512}) {
    std::vector<uint64_t> hashes(1 + random() % 70);
    xxh3_each(bytes.data() + 3, size, hashes.size(), hashes.data());
    for (size_t i = 0; i < hashes.size(); ++i) {
      ASSERT_EQ(hashes[i], XXH3_64bits(bytes.data() + 3 + i * size, size)) << size;
    }
  }
}

TEST(ChecksumTest, Crc32cMatchesCheckValue) {
  const std::string_view digits = "123456789";
  EXPECT_EQ(crc32c(digits.data(), digits.size()), 0xe3069283u);  // RFC 3720's polynomial, the usual check value
  EXPECT_EQ(crc32c(nullptr, 0), 0u);
}

}  // namespace
}  // namespace ms::kernels
