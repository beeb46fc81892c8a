// Random numbers for tests: the seed is printed once, and MS_TEST_SEED reproduces a run.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

namespace ms::test {

class RandomValues {
 public:
  // salt: gives each use its own sequence.
  explicit RandomValues(uint64_t salt = 0) : engine_(seed() + salt) {}

  // n values, uniform in [-scale, scale].
  template <class T = float>
  std::vector<T> make(int64_t n, float scale = 1.0F) {
    std::uniform_real_distribution<float> distribution(-scale, scale);
    std::vector<T> values;
    values.reserve(static_cast<size_t>(n));
    for (int64_t i = 0; i < n; ++i) values.push_back(static_cast<T>(distribution(engine_)));
    return values;
  }

  // n integers in [low, high].
  std::vector<int32_t> integers(int64_t n, int32_t low, int32_t high) {
    std::uniform_int_distribution<int32_t> distribution(low, high);
    std::vector<int32_t> values(static_cast<size_t>(n));
    for (auto& value : values) value = distribution(engine_);
    return values;
  }

 private:
  static uint64_t seed() {
    static const uint64_t value = [] {
      const char* given = std::getenv("MS_TEST_SEED");
      const uint64_t chosen = given != nullptr ? std::strtoull(given, nullptr, 10) : 20240917;
      std::printf("MS_TEST_SEED=%llu\n", static_cast<unsigned long long>(chosen));
      return chosen;
    }();
    return value;
  }
  std::mt19937_64 engine_;
};

}  // namespace ms::test
