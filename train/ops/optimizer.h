// The arithmetic of optimizers on flat fp32 buffers: AdamW, SGD, and the sum of squares for gradient clipping.
//
// A step takes all tensors of an update as one loop over their elements, because many of them may be small: experts
// have thousands. How elements are divided among threads changes no bit.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/bf16.h"
#include "train/ops/context.h"

namespace ms::ops {

struct AdamwParameters {
  // Doubles, because 1 - beta2 for an fp32 0.999 is off by 1.3e-5. Each factor is rounded to fp32 once, as in PyTorch.
  double lr = 0;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0;
  float grad_scale = 1;  // multiplies the gradient first: clipping, 1 / loss scale
  int64_t step = 1;      // 1 for the first update
  double ema_decay = 0.9999;

  bool operator==(const AdamwParameters&) const = default;
};

// fp32 master weights split into the bf16 weights and the remaining 16 bits (kernels/fp32_halves.h): 4 bytes per
// parameter for both.
struct SharedMaster {
  std::span<kernels::bf16> weights;  // the master weights, rounded to nearest even
  std::span<uint16_t> rest;          // the remaining bits
};

struct AdamwTensor {
  std::span<float> master;  // empty with `shared`
  // These use the sign bits of exp_avg_sq, which is never negative, as one extra bit per parameter; the moment's value
  // is unaffected. Without param_bf16 and ema.
  SharedMaster shared;
  std::span<float> grad, exp_avg, exp_avg_sq;
  std::span<kernels::bf16> param_bf16;  // receives master rounded to nearest even; may be empty
  std::span<float> ema;                 // the moving average of the new master; may be empty
  AdamwParameters parameters;
};

// One step of AdamW (Loshchilov & Hutter 2019), as in apex's FusedAdam with adam_w_mode=1, which Megatron uses:
//   g = grad * grad_scale, m = beta1*m + (1-beta1)*g, v = beta2*v + (1-beta2)*g^2,
//   p -= lr * (m / (1-beta1^step) / (sqrt(v / (1-beta2^step)) + eps) + weight_decay * p)
// grad becomes 0. The average is computed in the same pass, ema = ema_decay*ema + (1-ema_decay)*p (MindSpeed's
// fused_ema_adamw). All spans of a tensor that are not empty have the same size.
void adamw(Context& context, std::span<const AdamwTensor> tensors);
// Of one tensor.
void adamw(Context& context, std::span<float> master, std::span<float> grad, std::span<float> exp_avg,
           std::span<float> exp_avg_sq, const AdamwParameters& parameters, std::span<kernels::bf16> param_bf16,
           std::span<float> ema = {});

struct SgdParameters {
  double lr = 0;
  double momentum = 0.9;
  double weight_decay = 0;  // coupled: added to the gradient
  float grad_scale = 1;     // as of AdamW
};

struct SgdTensor {
  std::span<float> master, grad;
  std::span<float> momentum_buffer;     // empty: without momentum
  std::span<kernels::bf16> param_bf16;  // as of AdamW
  SgdParameters parameters;
};

// One step of SGD, as torch.optim.SGD without dampening and nesterov, which Megatron uses:
//   g = grad * grad_scale + weight_decay * p, momentum_buffer = momentum * momentum_buffer + g,
//   p -= lr * momentum_buffer
// grad becomes 0. momentum_buffer: 0 before the first step. All spans of a tensor that are not empty have the same
// size.
void sgd(Context& context, std::span<const SgdTensor> tensors);

// All spans have one size. split_master splits fp32 master weights; join_master is its exact inverse, after which the
// sign bits of exp_avg_sq are clear again.
void split_master(Context& context, std::span<const float> master, const SharedMaster& shared,
                  std::span<float> exp_avg_sq);
void join_master(Context& context, const SharedMaster& shared, std::span<float> exp_avg_sq, std::span<float> master);

// Sums of squares of tensors in double, of each over blocks of 4096 elements added in order: the same bits for any
// number of threads. All tensors are one loop, because many of them may be small.
void sums_of_squares(Context& context, std::span<const std::span<const float>> tensors, std::span<double> sums);
double sum_of_squares(Context& context, std::span<const float> values);  // of one

}  // namespace ms::ops
