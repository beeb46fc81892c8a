// GEMM on the linear layers of real models, one thread. On fp32 operands, every implementation:
// gemm/<name>/<layer>/<pass>. On bf16 operands (C is bf16, or fp32 for main gradients): gemm_bf16/<isa>/<layer>/<pass>
// runs the chosen implementation with a prepacked weight, alternating with those after it in the list and with oneDNN
// on a prepacked operand (prepacked_matmul.h). "of <name>" is their time divided by its time.
#include <cmath>

#include "bench/bench_support.h"
#if MS_WITH_ONEDNN
#include "bench/kernels/prepacked_matmul.h"
#endif
#include "kernels/bf16.h"
#include "kernels/gemm/gemm.h"
#include "kernels/gemm/packed_operand.h"
#include "kernels/isa.h"
#include "tests/support/random_values.h"

namespace ms::kernels {
namespace {

template <class T>
struct Operands {
  std::vector<T> x, weight, y;   // [tokens, in], [out, in], [tokens, out]
  std::vector<float> main_grad;  // [out, in]
};

template <class T>
GemmProblem problem_of(const std::string& pass, Operands<T>& o, int64_t tokens, int64_t out, int64_t in) {
  GemmProblem p;
  p.a_type = p.b_type = p.c_type = sizeof(T) == 2 ? GemmType::kBf16 : GemmType::kFp32;
  if (pass == "fwd") {
    p.transpose_b = true;
    p.m = tokens, p.n = out, p.k = in;
    p.a = o.x.data(), p.lda = in, p.b = o.weight.data(), p.ldb = in, p.c = o.y.data(), p.ldc = out;
  } else if (pass == "dgrad") {
    p.m = tokens, p.n = in, p.k = out;
    p.a = o.y.data(), p.lda = out, p.b = o.weight.data(), p.ldb = in, p.c = o.x.data(), p.ldc = in;
  } else {
    p.transpose_a = true, p.accumulate = true;
    p.m = out, p.n = in, p.k = tokens;
    p.a = o.y.data(), p.lda = out, p.b = o.x.data(), p.ldb = in;
    p.c = o.main_grad.data(), p.c_type = GemmType::kFp32, p.ldc = in;
  }
  return p;
}

double element_of(const GemmProblem& p, int64_t i, int64_t j) {
  const int64_t at = i * p.ldc + j;
  if (p.c_type == GemmType::kBf16) return to_float(static_cast<const bf16*>(p.c)[at]);
  return static_cast<const float*>(p.c)[at];
}

// Compares one element with its definition in double: a wrong kernel must not win.
template <class T>
bool agrees(const GemmProblem& p, double before) {
  const int64_t i = p.m / 2, j = p.n / 3;
  const auto* a = static_cast<const T*>(p.a);
  const auto* b = static_cast<const T*>(p.b);
  double want = p.accumulate ? before : 0, magnitude = 0;
  for (int64_t q = 0; q < p.k; ++q) {
    const double product = static_cast<double>(to_float(a[p.transpose_a ? q * p.lda + i : i * p.lda + q])) *
                           to_float(b[p.transpose_b ? j * p.ldb + q : q * p.ldb + j]);
    want += product;
    magnitude += std::abs(product);
  }
  const double seen = element_of(p, i, j), storage = p.c_type == GemmType::kFp32 ? 0 : 0x1p-8 * std::abs(want);
  return std::abs(seen - want) <= static_cast<double>(p.k + 2) * 0x1p-24 * (magnitude + std::abs(before)) + storage;
}

template <class T>
Operands<T> random_operands(int64_t tokens, int64_t out, int64_t in) {
  test::RandomValues random;
  return {random.make<T>(tokens * in), random.make<T>(out * in), random.make<T>(tokens * out), random.make(out * in)};
}

// Runs it once. If it fails, returns false and sets the reason in state.
template <class T>
bool works(benchmark::State& state, const GemmImplementation& implementation, const GemmProblem& problem) {
  if (const auto reason = implementation.declines(problem); !reason.empty()) {
    state.SkipWithError(std::string(reason).c_str());
    return false;
  }
  const double before = element_of(problem, problem.m / 2, problem.n / 3);
  implementation.run(problem);
  if (!agrees<T>(problem, before)) {
    state.SkipWithError("wrong result");
    return false;
  }
  return true;
}

void run(benchmark::State& state, const GemmImplementation& implementation, const std::string& pass, int64_t tokens,
         int64_t out, int64_t in) {
  auto operands = random_operands<float>(tokens, out, in);
  const GemmProblem problem = problem_of(pass, operands, tokens, out, in);
  if (!works<float>(state, implementation, problem)) return;
  for (auto _ : state) implementation.run(problem);
  bench::report_flops(state, 2.0 * static_cast<double>(tokens) * static_cast<double>(out) * static_cast<double>(in));
}

void run_bf16(benchmark::State& state, const std::string& pass, int64_t tokens, int64_t out, int64_t in) {
  auto operands = random_operands<bf16>(tokens, out, in);
  const GemmProblem problem = problem_of(pass, operands, tokens, out, in);
  GemmProblem packed = problem;
  std::vector<float> words;
  PackedOperand operand;
  const auto format = packed_format(GemmType::kBf16, false);
  // A weight is packed once for many products, as in train/ops/packed_weight.h.
  if (format && (pass == "fwd" || (pass == "dgrad" && *format == PackedFormat::kAmx))) {
    words.resize(static_cast<size_t>(packed_words(*format, problem.n, problem.k)) + 16);
    const auto misaligned = static_cast<ptrdiff_t>(reinterpret_cast<uintptr_t>(words.data()) / 4 % 16);
    float* const aligned = words.data() + (16 - misaligned) % 16;
    pack_operand(*format, problem, 0, packed_strips(problem.n), aligned);
    operand = {*format, problem.n, problem.k, aligned};
    packed.packed_b = &operand;
  }
  std::vector<std::function<void()>> others;
  std::vector<std::string> names;
  const GemmImplementation& chosen = choose_gemm(packed);
  if (!works<bf16>(state, chosen, packed)) return;
  for (const auto* implementation : gemm_implementations()) {
    if (implementation == &chosen || implementation->name == "eigen" || implementation->name == "naive") continue;
    if (!implementation->declines(problem).empty()) continue;
    others.emplace_back([implementation, &problem] { implementation->run(problem); });
    names.push_back("of " + std::string(implementation->name));
  }
#if MS_WITH_ONEDNN
  bench::PrepackedMatmul prepacked(problem);
  others.emplace_back([&prepacked] { prepacked.run(); });
  names.emplace_back("of onednn_prepacked");
#endif
  state.SetLabel(std::string(chosen.name));
  const auto ratios = bench::in_turns(
      state, [&] { chosen.run(packed); }, others);
  for (size_t i = 0; i < ratios.size(); ++i) state.counters[names[i]] = ratios[i];
  bench::report_flops(state, 2.0 * static_cast<double>(tokens) * static_cast<double>(out) * static_cast<double>(in));
}

}  // namespace

void register_gemm(const std::string& shapes) {
  const auto model = bench::shapes(shapes);
  const int64_t tokens = model["tokens"];
  const std::string isa(isa_name(active_isa()));
  for (const auto& layer : model["linear"]) {
    for (const char* pass : {"fwd", "dgrad", "wgrad"}) {
      const int64_t out = layer["out"], in = layer["in"];
      const std::string name = layer["name"].get<std::string>() + "/" + pass;
      for (const auto* implementation : gemm_implementations()) {
        if (implementation->name == "naive") continue;
        benchmark::RegisterBenchmark(
            ("gemm/" + isa + "/" + std::string(implementation->name) + "/" + name).c_str(),
            [=](benchmark::State& state) { run(state, *implementation, pass, tokens, out, in); })
            ->Unit(benchmark::kMillisecond);
      }
      benchmark::RegisterBenchmark(("gemm_bf16/" + isa + "/" + name).c_str(),
                                   [=](benchmark::State& state) { run_bf16(state, pass, tokens, out, in); })
          ->Unit(benchmark::kMillisecond)
          ->UseManualTime();
    }
  }
}

}  // namespace ms::kernels

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  ms::kernels::register_gemm("llama_124m");
  ms::kernels::register_gemm("gemm_cases");
  benchmark::RunSpecifiedBenchmarks();
}
