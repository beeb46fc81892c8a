#include "core/io/sha256.h"

#include <gtest/gtest.h>

#include "core/error.h"
#include "core/io/file.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/thrown.h"

namespace ms::core {
namespace {

std::string sha256(std::string_view text) {
  Sha256 hash;
  for (const char c : text) hash.update(std::as_bytes(std::span(&c, 1)));
  return hash.hex();
}

// The examples of FIPS 180-4 (NIST, SHA256.pdf), and the empty message.
TEST(Sha256, MatchesTheStandardsExamples) {
  EXPECT_EQ(sha256(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sha256("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
}

TEST(Sha256, FileOfSeveralPiecesEqualsItsBytes) {
  const test::TemporaryFolder folder;
  const std::string text(3'000'001, 'a');
  write_text_atomically(folder / "a", text);
  int64_t read = 0;
  EXPECT_EQ(sha256_of_file(folder / "a", [&](int64_t bytes) { read += bytes; }), sha256(text));
  EXPECT_EQ(read, 3'000'001);
  EXPECT_EQ(test::code_of([&] { sha256_of_file(folder / "none"); }), ErrorCode::kNotFound);
}

}  // namespace
}  // namespace ms::core
