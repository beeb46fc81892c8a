// Kernels that memory bounds, on 64 MB and more, against the machine's bandwidth for the same mix of reads and writes:
// bandwidth/<isa>/<kernel>/threads:<n>. Kernel and yardsticks take turns inside every iteration; %ceiling is the ratio
// of their medians. Bytes are what a kernel must read and write, each once.
#include <time.h>

#include <algorithm>
#include <array>
#include <functional>

#include "bench/bench_support.h"
#include "core/thread_pool.h"
#include "kernels/activation.h"
#include "kernels/adamw.h"
#include "kernels/convert.h"
#include "kernels/cross_entropy.h"
#include "kernels/elementwise.h"
#include "kernels/isa.h"
#include "kernels/norm.h"
#include "kernels/rope.h"
#include "tests/support/random_values.h"
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace ms::kernels {
namespace {

constexpr int64_t kHidden = 768, kFfn = 2048, kVocab = 50304;
constexpr int64_t kFloats = int64_t{22} << 20;  // of each operand: 92 MB
constexpr int kMostReads = 4, kMostWrites = 3;

// What moves, in streams of equal bytes. in_place: the first writes go where the first reads came from.
struct Mix {
  int reads, writes;
  bool in_place = false;
};

struct Streams {
  std::array<const float*, kMostReads> in;
  std::array<float*, kMostWrites> out;
};

#if defined(__x86_64__)
constexpr bool kHasStreamingStores = true;

template <int kReads, int kWrites, bool kNonTemporal>
__attribute__((target("avx2"))) void move_streams(const Streams& s, int64_t begin, int64_t end) {
  __m256 total = _mm256_setzero_ps();
  for (int64_t i = begin; i < end; i += 8) {
    __m256 x = _mm256_load_ps(s.in[0] + i);
#pragma GCC unroll 4
    for (int r = 1; r < kReads; ++r) x = _mm256_add_ps(x, _mm256_load_ps(s.in[static_cast<size_t>(r)] + i));
#pragma GCC unroll 4
    for (int w = 0; w < kWrites; ++w) {
      float* const target = s.out[static_cast<size_t>(w)] + i;
      if (kNonTemporal) {
        _mm256_stream_ps(target, x);
      } else {
        _mm256_store_ps(target, x);
      }
    }
    if (kWrites == 0) total = _mm256_add_ps(total, x);
  }
  if (kNonTemporal) _mm_sfence();
  benchmark::DoNotOptimize(total);
}
#else
constexpr bool kHasStreamingStores = false;

template <int kReads, int kWrites, bool kNonTemporal>
void move_streams(const Streams& s, int64_t begin, int64_t end) {
  float total = 0;
  for (int64_t i = begin; i < end; ++i) {
    float x = 0;
    for (int r = 0; r < kReads; ++r) x += s.in[static_cast<size_t>(r)][i];
    for (int w = 0; w < kWrites; ++w) s.out[static_cast<size_t>(w)][i] = x;
    total += x;
  }
  benchmark::DoNotOptimize(total);
}
#endif

using Move = void (*)(const Streams&, int64_t begin, int64_t end);

template <bool kNonTemporal>
Move choose_move(const Mix& mix) {
  switch (10 * mix.reads + mix.writes) {
    case 10:
      return move_streams<1, 0, kNonTemporal>;
    case 11:
      return move_streams<1, 1, kNonTemporal>;
    case 12:
      return move_streams<1, 2, kNonTemporal>;
    case 21:
      return move_streams<2, 1, kNonTemporal>;
    case 31:
      return move_streams<3, 1, kNonTemporal>;
    case 32:
      return move_streams<3, 2, kNonTemporal>;
    case 43:
      return move_streams<4, 3, kNonTemporal>;
    default:
      throw std::logic_error("bandwidth: no yardstick for this mix");
  }
}

// Operands of every case: seven buffers of kFloats, aligned, touched, of moderate values.
class Buffers {
 public:
  Buffers() {
    const auto values = test::RandomValues().make(1 << 16);
    for (auto& buffer : buffers_) {
      buffer = static_cast<float*>(std::aligned_alloc(size_t{2} << 20, sizeof(float) * kFloats));
      if (buffer == nullptr) throw std::bad_alloc();
    }
    reset();
  }
  ~Buffers() {
    for (float* buffer : buffers_) std::free(buffer);
  }
  Buffers(const Buffers&) = delete;
  Buffers& operator=(const Buffers&) = delete;

  // Values in [0.25, 1], whatever the last case left: sums of squares and second moments are not negative, exponents
  // stay small.
  void reset() {
    const auto values = test::RandomValues().make(1 << 16, 0.375F);
    for (float* buffer : buffers_) {
      for (int64_t i = 0; i < kFloats; ++i) buffer[i] = 0.625F + values[static_cast<size_t>(i % (1 << 16))];
    }
  }

  float* operator[](size_t i) const { return buffers_[i]; }

 private:
  std::array<float*, 7> buffers_{};
};

struct Case {
  const char* name;
  Mix mix;        // as the yardstick moves it
  int64_t bytes;  // of the kernel, read and written
  int64_t rows;   // that threads share
  std::function<void(const Buffers&, int64_t begin, int64_t end)> run;
};

double now_s() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<int64_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

void measure(benchmark::State& state, const Case& c, int threads) {
  static Buffers buffers;
  buffers.reset();
  core::ThreadPool pool(threads);
  Streams streams{};
  for (size_t r = 0; r < kMostReads; ++r) streams.in[r] = buffers[r];
  for (size_t w = 0; w < kMostWrites; ++w) streams.out[w] = buffers[c.mix.in_place ? w : kMostReads + w];
  const double yard_bytes = 4.0 * kFloats * (c.mix.reads + c.mix.writes);
  const auto timed = [&](int64_t n, int64_t grain, const std::function<void(int64_t, int64_t)>& body) {
    const double start = now_s();
    pool.parallel_for(n, grain, body);
    return now_s() - start;
  };
  std::vector<double> kernel_s, plain_s, streamed_s;
  // In place a line is in the cache when it is written: streaming past it gains nothing.
  const bool streams_too = kHasStreamingStores && c.mix.writes > 0 && !c.mix.in_place;
  const Move plain = choose_move<false>(c.mix), streamed = choose_move<true>(c.mix);
  for (auto _ : state) {
    plain_s.push_back(timed(kFloats, 1 << 16, [&](int64_t a, int64_t b) { plain(streams, a, b); }));
    if (streams_too) {
      streamed_s.push_back(timed(kFloats, 1 << 16, [&](int64_t a, int64_t b) { streamed(streams, a, b); }));
    }
    kernel_s.push_back(timed(c.rows, 1, [&](int64_t a, int64_t b) { c.run(buffers, a, b); }));
    state.SetIterationTime(kernel_s.back());
    if (c.mix.in_place) {
      state.PauseTiming();
      buffers.reset();
      state.ResumeTiming();
    }
  }
  const double seen = static_cast<double>(c.bytes) / median(kernel_s) * 1e-9;
  double ceiling = yard_bytes / median(plain_s) * 1e-9;
  if (!streamed_s.empty()) ceiling = std::max(ceiling, yard_bytes / median(streamed_s) * 1e-9);
  state.counters["GB/s"] = seen;
  state.counters["ceiling"] = ceiling;
  state.counters["%ceiling"] = 100 * seen / ceiling;
}

// One of each element-wise family on flat data, in rows of 4096.
constexpr int64_t kRow = 4096, kFlatRows = kFloats / kRow;
// Rows of a model's width, and of its MLP.
constexpr int64_t kNormRows = kFloats / kHidden, kGatedRows = kFloats / (2 * kFfn), kLogitRows = kFloats / kVocab;

int64_t at(int64_t row) { return row * kRow; }

std::vector<Case> cases() {
  constexpr int64_t kFlat = 4 * kFlatRows * kRow, kNorm = 4 * kNormRows * kHidden;
  constexpr int64_t kGated = 4 * kGatedRows * kFfn, kLogits = 4 * kLogitRows * kVocab;
  static std::vector<float> gamma(kHidden, 1.0F), beta(kHidden, 0.0F), cosine(kHidden, 0.8F), sine(kHidden, 0.6F);
  static std::vector<float> mean(kNormRows, 0.625F), rstd(kNormRows, 4.6F);
  static constexpr AdamwScalars kAdamw = {1e-4F, 1e-8F, 0.1F, 1.0F, 0.9F, 0.1F, 0.95F, 0.05F, 0.1F, 0.05F};
  return {
      {"sum_of_squares",
       {1, 0},
       kFlat,
       kFlatRows,
       [](const Buffers& x, int64_t a, int64_t b) {
         benchmark::DoNotOptimize(sum_of_squares(x[0] + at(a), at(b - a)));
       }},
      {"add",
       {2, 1},
       3 * kFlat,
       kFlatRows,
       [](const Buffers& x, int64_t a, int64_t b) { add(x[0] + at(a), x[1] + at(a), at(b - a), x[4] + at(a)); }},
      {"accumulate",
       {2, 1, true},
       3 * kFlat,
       kFlatRows,
       [](const Buffers& x, int64_t a, int64_t b) { accumulate(x[0] + at(a), x[1] + at(a), at(b - a)); }},
      {"fp32_to_bf16",
       {2, 1},
       kFlat + kFlat / 2,
       kFlatRows,
       [](const Buffers& x, int64_t a, int64_t b) {
         convert(x[0] + at(a), reinterpret_cast<bf16*>(x[4]) + at(a), at(b - a));
       }},
      {"bf16_to_fp32",
       {1, 2},
       kFlat + kFlat / 2,
       kFlatRows,
       [](const Buffers& x, int64_t a, int64_t b) {
         convert(reinterpret_cast<const bf16*>(x[0]) + at(a), x[4] + at(a), at(b - a));
       }},
      {"rms_norm",
       {1, 1},
       2 * kNorm,
       kNormRows,
       [](const Buffers& x, int64_t a, int64_t b) {
         rms_norm(x[0] + a * kHidden, gamma.data(), 0.0F, b - a, kHidden, 1e-5F, x[4] + a * kHidden, nullptr);
       }},
      {"rms_norm_backward",
       {2, 1},
       3 * kNorm,
       kNormRows,
       [](const Buffers& x, int64_t a, int64_t b) {
         std::vector<float> dgamma(kHidden);
         rms_norm_backward<float>(x[0] + a * kHidden, x[1] + a * kHidden, gamma.data(), 0.0F, rstd.data() + a, nullptr,
                                  b - a, kHidden, x[4] + a * kHidden, dgamma.data());
       }},
      {"layer_norm",
       {1, 1},
       2 * kNorm,
       kNormRows,
       [](const Buffers& x, int64_t a, int64_t b) {
         layer_norm<float>(x[0] + a * kHidden, gamma.data(), 0.0F, beta.data(), b - a, kHidden, 1e-5F,
                           x[4] + a * kHidden, nullptr, nullptr);
       }},
      {"layer_norm_backward",
       {3, 1},
       4 * kNorm,
       kNormRows,  // with the residual's gradient
       [](const Buffers& x, int64_t a, int64_t b) {
         std::vector<float> dgamma(kHidden), dbeta(kHidden);
         layer_norm_backward<float>(x[0] + a * kHidden, x[1] + a * kHidden, gamma.data(), 0.0F, mean.data() + a,
                                    rstd.data() + a, x[2] + a * kHidden, b - a, kHidden, x[4] + a * kHidden,
                                    dgamma.data(), dbeta.data());
       }},
      {"swiglu",
       {2, 1},
       3 * kGated,
       kGatedRows,
       [](const Buffers& x, int64_t a, int64_t b) {
         gated_activation(Activation::kSilu, x[0] + a * 2 * kFfn, b - a, kFfn, x[4] + a * kFfn);
       }},
      {"swiglu_backward",
       {3, 2},
       5 * kGated,
       kGatedRows,
       [](const Buffers& x, int64_t a, int64_t b) {
         gated_activation_backward(Activation::kSilu, x[0] + a * kFfn, x[1] + a * 2 * kFfn, b - a, kFfn,
                                   x[4] + a * 2 * kFfn);
       }},
      {"gelu_tanh",
       {1, 1},
       2 * kFlat,
       kFlatRows,
       [](const Buffers& x, int64_t a, int64_t b) {
         activation(Activation::kGeluTanh, x[0] + at(a), at(b - a), x[4] + at(a));
       }},
      {"gelu_tanh_backward",
       {2, 1},
       3 * kFlat,
       kFlatRows,
       [](const Buffers& x, int64_t a, int64_t b) {
         activation_backward(Activation::kGeluTanh, x[0] + at(a), x[1] + at(a), at(b - a), x[4] + at(a));
       }},
      {"rope",
       {1, 1, true},
       2 * kNorm,
       kNormRows,
       [](const Buffers& x, int64_t a, int64_t b) {
         for (int64_t row = a; row < b; ++row) {
           rope(RopePairs::kHalves, x[0] + row * kHidden, kHidden / 64, 64, 64, cosine.data(), sine.data(), false);
         }
       }},
      {"row_sum_exp",
       {1, 0},
       kLogits,
       kLogitRows,
       [](const Buffers& x, int64_t a, int64_t b) {
         for (int64_t row = a; row < b; ++row) {
           benchmark::DoNotOptimize(row_sum_exp(x[0] + row * kVocab, kVocab, 1.0F));
         }
       }},
      {"cross_entropy_backward",
       {1, 1, true},
       2 * kLogits,
       kLogitRows,
       [](const Buffers& x, int64_t a, int64_t b) {
         for (int64_t row = a; row < b; ++row) {
           row_cross_entropy_backward(x[0] + row * kVocab, kVocab, 1.0F, 4e4F, 17, 1e-3F);
         }
       }},
      {"adamw",
       {4, 3, true},
       7 * kFlat,
       kFlatRows,
       [](const Buffers& x, int64_t a, int64_t b) {
         adamw(x[0] + at(a), x[3] + at(a), x[1] + at(a), x[2] + at(a), nullptr, at(b - a), kAdamw);
       }},
  };
}

}  // namespace

void register_bandwidth() {
  for (const Case& c : cases()) {
    for (const int threads : {1, 2}) {
      const std::string name =
          "bandwidth/" + std::string(isa_name(active_isa())) + "/" + c.name + "/threads:" + std::to_string(threads);
      benchmark::RegisterBenchmark(name.c_str(), [=](benchmark::State& state) { measure(state, c, threads); })
          ->Unit(benchmark::kMillisecond)
          ->UseManualTime()
          ->Iterations(9);
    }
  }
}

}  // namespace ms::kernels

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  ms::core::flush_denormals_in_this_thread();
  ms::kernels::register_bandwidth();
  benchmark::RunSpecifiedBenchmarks();
}
