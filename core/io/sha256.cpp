#include "core/io/sha256.h"

#include <openssl/evp.h>

#include <algorithm>
#include <array>
#include <vector>

#include "core/error.h"
#include "core/io/file.h"

namespace ms::core {

struct Sha256::Context {
  struct Free {
    void operator()(EVP_MD_CTX* context) const { EVP_MD_CTX_free(context); }
  };
  std::unique_ptr<EVP_MD_CTX, Free> state{EVP_MD_CTX_new()};
};

Sha256::Sha256() : context_(std::make_unique<Context>()) {
  MS_CHECK(context_->state != nullptr && EVP_DigestInit_ex(context_->state.get(), EVP_sha256(), nullptr) == 1,
           "libcrypto has no SHA-256");
}

Sha256::~Sha256() = default;

void Sha256::update(std::span<const std::byte> bytes) {
  MS_CHECK(EVP_DigestUpdate(context_->state.get(), bytes.data(), bytes.size()) == 1, "libcrypto");
}

std::string Sha256::hex() {
  std::array<unsigned char, 32> digest{};
  MS_CHECK(EVP_DigestFinal_ex(context_->state.get(), digest.data(), nullptr) == 1, "libcrypto");
  std::string text;
  for (const unsigned char byte : digest) {
    text += "0123456789abcdef"[byte >> 4];
    text += "0123456789abcdef"[byte & 15];
  }
  return text;
}

std::string sha256_of_file(const std::string& path, const std::function<void(int64_t bytes)>& read) {
  const File file = File::open_read(path);
  const int64_t size = file.size_bytes();
  std::vector<std::byte> buffer(static_cast<size_t>(std::clamp<int64_t>(size, 1, 1 << 20)));
  Sha256 hash;
  for (int64_t at = 0; at < size;) {
    const auto piece = std::span(buffer).first(static_cast<size_t>(std::min<int64_t>(size - at, 1 << 20)));
    file.pread(piece, at);
    hash.update(piece);
    at += static_cast<int64_t>(piece.size());
    if (read) read(static_cast<int64_t>(piece.size()));
  }
  return hash.hex();
}

}  // namespace ms::core
