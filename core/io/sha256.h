// SHA-256 of files, the same as `sha256sum` (FIPS 180-4, by OpenSSL's libcrypto), for sums that other programs check.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>

namespace ms::core {

class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(const Sha256&) = delete;
  Sha256& operator=(const Sha256&) = delete;
  void update(std::span<const std::byte> bytes);
  std::string hex();  // 64 lower-case digits; no update() afterwards

 private:
  struct Context;
  std::unique_ptr<Context> context_;
};

// SHA-256 of a whole file, read 1 MiB at a time. read: called with the size of each piece; may throw to stop. Throws
// like File::open_read.
std::string sha256_of_file(const std::string& path, const std::function<void(int64_t bytes)>& read = {});

}  // namespace ms::core
