// Every GEMM implementation on the linear layers of a real model, one thread: gemm/<name>/<layer>/<pass>.
#include <cmath>

#include "bench/bench_support.h"
#include "kernels/gemm.h"
#include "kernels/isa.h"
#include "tests/support/random_values.h"

namespace ms::kernels {
namespace {

struct Operands {
  std::vector<float> x, weight, y;  // [tokens, in], [out, in], [tokens, out]
};

GemmProblem problem_of(const std::string& pass, Operands& o, int64_t tokens, int64_t out, int64_t in) {
  GemmProblem p;
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
    p.a = o.y.data(), p.lda = out, p.b = o.x.data(), p.ldb = in, p.c = o.weight.data(), p.ldc = in;
  }
  return p;
}

// One element against its definition in double: a wrong kernel must not win.
bool agrees(const GemmProblem& p, double before) {
  const int64_t i = p.m / 2, j = p.n / 3;
  const auto* a = static_cast<const float*>(p.a);
  const auto* b = static_cast<const float*>(p.b);
  double want = p.accumulate ? before : 0, magnitude = 0;
  for (int64_t q = 0; q < p.k; ++q) {
    const double product = static_cast<double>(a[p.transpose_a ? q * p.lda + i : i * p.lda + q]) *
                           b[p.transpose_b ? j * p.ldb + q : q * p.ldb + j];
    want += product;
    magnitude += std::abs(product);
  }
  const double seen = static_cast<const float*>(p.c)[i * p.ldc + j];
  return std::abs(seen - want) <= static_cast<double>(p.k + 2) * 0x1p-24 * (magnitude + std::abs(before));
}

void run(benchmark::State& state, const GemmImplementation& implementation, const std::string& pass, int64_t tokens,
         int64_t out, int64_t in) {
  test::RandomValues random;
  Operands operands{random.make(tokens * in), random.make(out * in), random.make(tokens * out)};
  const GemmProblem problem = problem_of(pass, operands, tokens, out, in);
  if (const auto reason = implementation.declines(problem); !reason.empty()) {
    state.SkipWithError(std::string(reason).c_str());
    return;
  }
  const double before = static_cast<float*>(problem.c)[problem.m / 2 * problem.ldc + problem.n / 3];
  implementation.run(problem);
  if (!agrees(problem, before)) {
    state.SkipWithError("wrong result");
    return;
  }
  for (auto _ : state) implementation.run(problem);
  bench::report_flops(state, 2.0 * static_cast<double>(tokens) * static_cast<double>(out) * static_cast<double>(in));
}

}  // namespace

void register_gemm(const std::string& shapes) {
  const auto model = bench::shapes(shapes);
  const int64_t tokens = model["tokens"];
  for (const auto* implementation : gemm_implementations()) {
    if (implementation->name == "naive") continue;
    for (const auto& layer : model["linear"]) {
      for (const char* pass : {"fwd", "dgrad", "wgrad"}) {
        const int64_t out = layer["out"], in = layer["in"];
        const std::string name = "gemm/" + std::string(isa_name(active_isa())) + "/" +
                                 std::string(implementation->name) + "/" + layer["name"].get<std::string>() + "/" +
                                 pass;
        benchmark::RegisterBenchmark(name.c_str(), [=](benchmark::State& state) {
          run(state, *implementation, pass, tokens, out, in);
        })->Unit(benchmark::kMillisecond);
      }
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
