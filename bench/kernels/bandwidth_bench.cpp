// Memory-bound kernels on 64 MB and more, compared with the machine's bandwidth for the same mix of reads and writes:
// bandwidth/<isa>/<kernel>/threads:<n>. Kernel and stream movers alternate; %roofline is the median ratio of
// neighbouring runs, each time with the faster mover (plain or streaming stores). Bytes are what a kernel must read and
// write, each counted once.
#include <time.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "bench/bench_support.h"
#include "bench/median.h"
#include "core/arena.h"
#include "core/thread_pool.h"
#include "kernels/activation.h"
#include "kernels/adamw.h"
#include "kernels/bf16.h"
#include "kernels/convert.h"
#include "kernels/cross_entropy.h"
#include "kernels/elementwise.h"
#include "kernels/isa.h"
#include "kernels/norm.h"
#include "kernels/roofline.h"
#include "kernels/rope.h"
#include "tests/support/random_values.h"

namespace ms::kernels {
namespace {

constexpr int64_t kHidden = 768, kFfn = 2048, kVocab = 50304;
constexpr int64_t kFloats = int64_t{22} << 20;  // per operand: 92 MB

// Streams of equal bytes that are read and written. in_place: the first writes go where the first reads came from.
struct Mix {
  int reads, writes;
  bool in_place = false;
};

// Operands of every case: eight buffers of kFloats, allocated from an arena like tensors (on huge pages), touched, with
// moderate values.
class Buffers {
 public:
  Buffers() {
    for (core::Buffer& buffer : buffers_) {
      buffer = arena_.allocate(static_cast<int64_t>(sizeof(float)) * kFloats, core::MemoryTag::kTmp);
    }
    reset();
  }

  // Fills with values in [0.25, 1]: sums of squares and second moments are not negative, and exponents stay small.
  template <class T = float>
  void reset() {
    std::vector<T> values;
    for (const float value : test::RandomValues().make(1 << 16, 0.375F)) values.push_back(T(0.625F + value));
    const auto bytes = static_cast<int64_t>(values.size() * sizeof(T));  // a buffer holds a whole number of these
    for (const core::Buffer& buffer : buffers_) {
      for (int64_t at = 0; at < buffer.size_bytes(); at += bytes) {
        std::memcpy(buffer.data() + at, values.data(), static_cast<size_t>(bytes));
      }
    }
  }

  float* operator[](size_t i) const { return reinterpret_cast<float*>(buffers_[i].data()); }

 private:
  core::Arena arena_;
  std::array<core::Buffer, kMaxStreamReads + kMaxStreamWrites> buffers_;
};

// Index of the result that is checked, to detect a kernel that moves data without computing.
constexpr int64_t kProbe = 5;
using Value = std::function<double(const Buffers&)>;

struct Case {
  std::string name;
  Mix mix;        // as moved by the stream mover
  int64_t bytes;  // that the kernel reads and writes
  int64_t rows;   // to share among threads
  std::function<void(const Buffers&, int64_t begin, int64_t end)> run;
  Value want;  // by its definition in double, before the kernel runs
  Value seen = [](const Buffers& x) { return static_cast<double>(x[4][kProbe]); };
  double tolerance = 1e-5;  // relative
  bool bf16_operands = false;
};

// What a kernel reads besides streams, aligned like tensors (core/arena.h): LayerNorm's gradient is a fifth slower if
// each vector of its sums spans two cache lines.
template <class T>
class Floats {
 public:
  Floats(int64_t n, T value)
      : data_(static_cast<T*>(std::aligned_alloc(64, (static_cast<size_t>(n) * sizeof(T) + 63) / 64 * 64))) {
    if (data_ == nullptr) throw std::bad_alloc();
    std::fill(data_, data_ + n, value);
  }
  ~Floats() { std::free(data_); }
  Floats(const Floats&) = delete;
  Floats& operator=(const Floats&) = delete;

  T* data() const { return data_; }

 private:
  T* data_;
};

double now_s() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

void measure(benchmark::State& state, const Case& c, int threads) {
  static Buffers buffers;
  const auto reset = [&] { c.bf16_operands ? buffers.reset<bf16>() : buffers.reset(); };
  reset();
  core::ThreadPool pool(threads);
  const double want = c.want(buffers);
  c.run(buffers, 0, c.rows);
  if (!(std::abs(c.seen(buffers) - want) <= c.tolerance * std::abs(want))) {
    state.SkipWithError("wrong result");
    return;
  }
  reset();
  Streams streams{};
  for (size_t r = 0; r < kMaxStreamReads; ++r) streams.in[r] = buffers[r];
  for (size_t w = 0; w < kMaxStreamWrites; ++w) streams.out[w] = buffers[c.mix.in_place ? w : kMaxStreamReads + w];
  const double roofline_bytes = 4.0 * kFloats * (c.mix.reads + c.mix.writes);
  const auto timed = [&](int64_t n, int64_t grain, const std::function<void(int64_t, int64_t)>& body) {
    const double start = now_s();
    pool.parallel_for(n, grain, body);
    return now_s() - start;
  };
  std::vector<double> kernel_s, rooflines, shares;
  // In place, a line is in the cache when it is written, so streaming stores gain nothing.
  const bool streams_too = kHasStreamingStores && c.mix.writes > 0 && !c.mix.in_place;
  const MoveStreams plain = stream_mover(c.mix.reads, c.mix.writes, false);
  const MoveStreams streamed = stream_mover(c.mix.reads, c.mix.writes, true);
  for (auto _ : state) {
    double roofline_s = timed(kFloats, 1 << 16, [&](int64_t a, int64_t b) { plain(streams, a, b); });
    if (streams_too) {
      roofline_s =
          std::min(roofline_s, timed(kFloats, 1 << 16, [&](int64_t a, int64_t b) { streamed(streams, a, b); }));
    }
    kernel_s.push_back(timed(c.rows, 1, [&](int64_t a, int64_t b) { c.run(buffers, a, b); }));
    rooflines.push_back(roofline_bytes / roofline_s * 1e-9);
    shares.push_back(static_cast<double>(c.bytes) / kernel_s.back() * 1e-9 / rooflines.back());
    state.SetIterationTime(kernel_s.back());
    if (c.mix.in_place) reset();
  }
  state.counters["GB/s"] = static_cast<double>(c.bytes) / bench::median(kernel_s) * 1e-9;
  state.counters["roofline"] = bench::median(rooflines);
  state.counters["%roofline"] = 100 * bench::median(shares);
}

// The stores that operators request for results of this size.
constexpr Stores kStores = Stores::kNonTemporal;

// One kernel of each element-wise family on flat data, in rows of 4096.
constexpr int64_t kRow = 4096, kFlatRows = kFloats / kRow;
// Rows of a model's width, and of its MLP's.
constexpr int64_t kNormRows = kFloats / kHidden, kGatedRows = kFloats / (2 * kFfn), kLogitRows = kFloats / kVocab;

int64_t at(int64_t row) { return row * kRow; }

double mean_of(int64_t n, const std::function<double(int64_t)>& value) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += value(i);
  return sum / static_cast<double>(n);
}

double silu(double x) { return x / (1 + std::exp(-x)); }
double gelu_tanh(double x) {
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / 3.14159265358979) * (x + 0.044715 * x * x * x)));
}
double slope(double (*f)(double), double x) { return (f(x + 1e-5) - f(x - 1e-5)) / 2e-5; }

// dx of a norm over a row x of h elements with gradient dy and all weights 1. centre: 0 for RMSNorm.
template <class T>
double norm_gradient(const T* dy, const T* x, int64_t h, double centre, double rstd) {
  const auto hat = [&](int64_t i) { return (static_cast<double>(to_float(x[i])) - centre) * rstd; };
  const auto slope_of = [&](int64_t i) { return static_cast<double>(to_float(dy[i])); };
  const double along = mean_of(h, [&](int64_t i) { return slope_of(i) * hat(i); });
  const double dy_mean = centre == 0 ? 0 : mean_of(h, slope_of);
  return rstd * (slope_of(kProbe) - dy_mean - hat(kProbe) * along);
}

constexpr float kMean = 0.625F, kRstd = 4.6F;

// Norm gradients over rows of h elements: RMSNorm's without, LayerNorm's with the residual's gradient.
template <class T>
void add_norm_gradients(int64_t h, std::vector<Case>& cases) {
  const int64_t rows = kFloats * static_cast<int64_t>(sizeof(float) / sizeof(T)) / h;
  const int64_t bytes = rows * h * static_cast<int64_t>(sizeof(T));
  const auto shared = [&](float value, int64_t n) { return std::make_shared<const Floats<T>>(n, T(value)); };
  const auto statistic = [&](float value) { return std::make_shared<const Floats<float>>(rows, value); };
  const auto gamma = shared(1.0F, h);
  const auto mean = statistic(kMean), rstd = statistic(kRstd);
  const auto operand = [](const Buffers& x, size_t i) { return reinterpret_cast<T*>(x[i]); };
  const Value seen = [=](const Buffers& x) { return static_cast<double>(to_float(operand(x, 4)[kProbe])); };
  constexpr bool kIsBf16 = std::is_same_v<T, bf16>;
  constexpr double kTolerance = kIsBf16 ? 0x1p-7 : 1e-5;  // the terms at the probe cancel a little
  const std::string kind = std::string(kIsBf16 ? "/bf16" : "/fp32") + "/hidden:" + std::to_string(h);
  cases.push_back({"rms_norm_backward" + kind,
                   {2, 1},
                   3 * bytes,
                   rows,
                   [=](const Buffers& x, int64_t a, int64_t b) {
                     const Floats<float> dgamma(h, 0.0F);
                     rms_norm_backward<T>(operand(x, 0) + a * h, operand(x, 1) + a * h, gamma->data(), 0.0F,
                                          rstd->data() + a, nullptr, b - a, h, operand(x, 4) + a * h, dgamma.data(),
                                          kStores);
                   },
                   [=](const Buffers& x) { return norm_gradient<T>(operand(x, 0), operand(x, 1), h, 0, kRstd); },
                   seen,
                   kTolerance,
                   kIsBf16});
  cases.push_back({"layer_norm_backward" + kind,
                   {3, 1},
                   4 * bytes,
                   rows,
                   [=](const Buffers& x, int64_t a, int64_t b) {
                     const Floats<float> dgamma(h, 0.0F), dbeta(h, 0.0F);
                     layer_norm_backward<T>(operand(x, 0) + a * h, operand(x, 1) + a * h, gamma->data(), 0.0F,
                                            mean->data() + a, rstd->data() + a, operand(x, 2) + a * h, b - a, h,
                                            operand(x, 4) + a * h, dgamma.data(), dbeta.data(), kStores);
                   },
                   [=](const Buffers& x) {
                     return norm_gradient<T>(operand(x, 0), operand(x, 1), h, kMean, kRstd) +
                            to_float(operand(x, 2)[kProbe]);
                   },
                   seen,
                   kTolerance,
                   kIsBf16});
}

// Kernels that training runs in either type.
template <class T>
void add_typed(std::vector<Case>& cases) {
  constexpr bool kIsBf16 = std::is_same_v<T, bf16>;
  constexpr int64_t kWords = sizeof(float) / sizeof(T);
  constexpr int64_t kFlat = 4 * kFlatRows * kRow, kNorm = 4 * kNormRows * kHidden, kGated = 4 * kGatedRows * kFfn;
  constexpr int64_t kRows = kWords * kFlatRows, kWideRows = kWords * kNormRows, kMlpRows = kWords * kGatedRows;
  const auto gamma = std::make_shared<const Floats<T>>(kHidden, T(1.0F));
  const auto beta = std::make_shared<const Floats<T>>(kHidden, T(0.0F));
  const auto cosine = std::make_shared<const Floats<float>>(kHidden, 0.8F);
  const auto sine = std::make_shared<const Floats<float>>(kHidden, 0.6F);
  const auto operand = [](const Buffers& x, size_t i) { return reinterpret_cast<T*>(x[i]); };
  const auto number = [=](const Buffers& x, size_t i, int64_t j = kProbe) {
    return static_cast<double>(to_float(operand(x, i)[j]));
  };
  const auto add = [&](const char* name, Mix mix, int64_t bytes, int64_t rows, auto run, auto want,
                       double tolerance = 1e-5) {
    const size_t result = mix.in_place ? 0 : 4;
    cases.push_back({std::string(name) + (kIsBf16 ? "/bf16" : "/fp32"), mix, bytes, rows, run, want,
                     [=](const Buffers& x) { return number(x, result); }, kIsBf16 ? 0x1p-7 : tolerance, kIsBf16});
  };
  const auto centred = [=](const Buffers& x, double m) {
    const double square = mean_of(kHidden, [&](int64_t i) { return (number(x, 0, i) - m) * (number(x, 0, i) - m); });
    return (number(x, 0) - m) / std::sqrt(square + 1e-5);
  };
  add(
      "rms_norm", {1, 1}, 2 * kNorm, kWideRows,
      [=](const Buffers& x, int64_t a, int64_t b) {
        rms_norm<T>(operand(x, 0) + a * kHidden, gamma->data(), 0.0F, b - a, kHidden, 1e-5F,
                    operand(x, 4) + a * kHidden, nullptr, kStores);
      },
      [=](const Buffers& x) { return centred(x, 0); });
  add(
      "layer_norm", {1, 1}, 2 * kNorm, kWideRows,
      [=](const Buffers& x, int64_t a, int64_t b) {
        layer_norm<T>(operand(x, 0) + a * kHidden, gamma->data(), 0.0F, beta->data(), b - a, kHidden, 1e-5F,
                      operand(x, 4) + a * kHidden, nullptr, nullptr, kStores);
      },
      [=](const Buffers& x) { return centred(x, mean_of(kHidden, [&](int64_t i) { return number(x, 0, i); })); },
      1e-3 /* the probe may lie near the mean */);
  add(
      "swiglu", {2, 1}, 3 * kGated, kMlpRows,
      [=](const Buffers& x, int64_t a, int64_t b) {
        gated_activation(Activation::kSilu, operand(x, 0) + a * 2 * kFfn, b - a, kFfn, operand(x, 4) + a * kFfn,
                         kStores);
      },
      [=](const Buffers& x) { return silu(number(x, 0)) * number(x, 0, kFfn + kProbe); });
  add(
      "swiglu_backward", {3, 2}, 5 * kGated, kMlpRows,
      [=](const Buffers& x, int64_t a, int64_t b) {
        gated_activation_backward(Activation::kSilu, operand(x, 0) + a * kFfn, operand(x, 1) + a * 2 * kFfn, b - a,
                                  kFfn, operand(x, 4) + a * 2 * kFfn, kStores);
      },
      [=](const Buffers& x) { return number(x, 0) * number(x, 1, kFfn + kProbe) * slope(silu, number(x, 1)); });
  add(
      "gelu_tanh", {1, 1}, 2 * kFlat, kRows,
      [=](const Buffers& x, int64_t a, int64_t b) {
        activation(Activation::kGeluTanh, operand(x, 0) + at(a), at(b - a), operand(x, 4) + at(a), kStores);
      },
      [=](const Buffers& x) { return gelu_tanh(number(x, 0)); });
  add(
      "gelu_tanh_backward", {2, 1}, 3 * kFlat, kRows,
      [=](const Buffers& x, int64_t a, int64_t b) {
        activation_backward(Activation::kGeluTanh, operand(x, 0) + at(a), operand(x, 1) + at(a), at(b - a),
                            operand(x, 4) + at(a), kStores);
      },
      [=](const Buffers& x) { return number(x, 0) * slope(gelu_tanh, number(x, 1)); });
  for (const auto& [name, pairs] :
       {std::pair("rope", RopePairs::kHalves), std::pair("rope_neighbours", RopePairs::kNeighbours)}) {
    const bool halves = pairs == RopePairs::kHalves;
    add(
        name, {1, 1, true}, 2 * kNorm, kWideRows,
        [=, kind = pairs](const Buffers& x, int64_t a, int64_t b) {
          for (int64_t row = a; row < b; ++row) {
            rope(kind, operand(x, 0) + row * kHidden, kHidden / 64, 64, 64, cosine->data(), sine->data(), false);
          }
        },
        [=](const Buffers& x) {
          return 0.8 * number(x, 0) + (halves ? -0.6 * number(x, 0, 32 + kProbe) : 0.6 * number(x, 0, kProbe - 1));
        },
        1e-4);
  }
}

std::vector<Case> cases() {
  constexpr int64_t kFlat = 4 * kFlatRows * kRow, kLogits = 4 * kLogitRows * kVocab;
  static constexpr AdamwScalars kAdamw = {1e-4F, 1e-8F, 0.1F, 1.0F, 0.9F, 0.1F, 0.95F, 0.05F, 0.1F, 0.05F};
  std::vector<Case> all = {
      {"sum_of_squares",
       {1, 0},
       kFlat,
       kFlatRows,
       [](const Buffers& x, int64_t a, int64_t b) {
         benchmark::DoNotOptimize(sum_of_squares(x[0] + at(a), at(b - a)));
       },
       [](const Buffers& x) {
         return kRow * mean_of(kRow, [&](int64_t i) { return static_cast<double>(x[0][i]) * x[0][i]; });
       },
       [](const Buffers& x) { return sum_of_squares(x[0], kRow); }},
      {"add",
       {2, 1},
       3 * kFlat,
       kFlatRows,
       [](const Buffers& x, int64_t a, int64_t b) {
         add(x[0] + at(a), x[1] + at(a), at(b - a), x[4] + at(a), kStores);
       },
       [](const Buffers& x) { return static_cast<double>(x[0][kProbe]) + x[1][kProbe]; }},
      {"accumulate",
       {2, 1, true},
       3 * kFlat,
       kFlatRows,
       [](const Buffers& x, int64_t a, int64_t b) { accumulate(x[0] + at(a), x[1] + at(a), at(b - a)); },
       [](const Buffers& x) { return static_cast<double>(x[0][kProbe]) + x[1][kProbe]; },
       [](const Buffers& x) { return static_cast<double>(x[0][kProbe]); }},
      {"fp32_to_bf16",
       {2, 1},
       kFlat + kFlat / 2,
       kFlatRows,
       [](const Buffers& x, int64_t a, int64_t b) {
         convert(x[0] + at(a), reinterpret_cast<bf16*>(x[4]) + at(a), at(b - a), kStores);
       },
       [](const Buffers& x) { return static_cast<double>(x[0][kProbe]); },
       [](const Buffers& x) { return static_cast<double>(to_float(reinterpret_cast<const bf16*>(x[4])[kProbe])); },
       0x1p-8},
      {"bf16_to_fp32",
       {1, 2},
       kFlat + kFlat / 2,
       kFlatRows,
       [](const Buffers& x, int64_t a, int64_t b) {
         convert(reinterpret_cast<const bf16*>(x[0]) + at(a), x[4] + at(a), at(b - a), kStores);
       },
       [](const Buffers& x) { return static_cast<double>(to_float(reinterpret_cast<const bf16*>(x[0])[kProbe])); }},
      {"row_sum_exp",
       {1, 0},
       kLogits,
       kLogitRows,
       [](const Buffers& x, int64_t a, int64_t b) {
         for (int64_t row = a; row < b; ++row) {
           benchmark::DoNotOptimize(row_sum_exp(x[0] + row * kVocab, kVocab, 1.0F));
         }
       },
       [](const Buffers& x) { return kVocab * mean_of(kVocab, [&](int64_t i) { return std::exp(x[0][i] - 1.0); }); },
       [](const Buffers& x) { return static_cast<double>(row_sum_exp(x[0], kVocab, 1.0F)); }},
      {"cross_entropy_backward",
       {1, 1, true},
       2 * kLogits,
       kLogitRows,
       [](const Buffers& x, int64_t a, int64_t b) {
         for (int64_t row = a; row < b; ++row) {
           row_cross_entropy_backward(x[0] + row * kVocab, kVocab, 1.0F, 4e4F, 17, 1e-3F);
         }
       },
       [](const Buffers& x) { return 1e-3 * std::exp(x[0][kProbe] - 1.0) / 4e4; },
       [](const Buffers& x) { return static_cast<double>(x[0][kProbe]); }},
      {"adamw",
       {4, 4, true},
       8 * kFlat,
       kFlatRows,
       [](const Buffers& x, int64_t a, int64_t b) {
         adamw(x[0] + at(a), x[3] + at(a), x[1] + at(a), x[2] + at(a), nullptr, nullptr, at(b - a), kAdamw);
       },
       [](const Buffers& x) {
         const double g = x[3][kProbe], m = 0.9 * x[1][kProbe] + 0.1 * g, v = 0.95 * x[2][kProbe] + 0.05 * g * g;
         return x[0][kProbe] - 1e-4 * (m / 0.1 / (std::sqrt(v / 0.05) + 1e-8) + 0.1 * x[0][kProbe]);
       },
       [](const Buffers& x) { return static_cast<double>(x[0][kProbe]); }},
  };
  add_typed<float>(all);
  add_typed<bf16>(all);
  for (const int64_t h : {kHidden, int64_t{1600}, int64_t{4096}}) {
    add_norm_gradients<float>(h, all);
    add_norm_gradients<bf16>(h, all);
  }
  return all;
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
