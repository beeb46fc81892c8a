// Who wants to know when a stage uses its parameters: data parallelism, which then makes room for their gradients,
// reduces them, or waits for their weights (train/optim/bucket.h).
#pragma once

#include <cstdint>

namespace ms::train {

// Parameters are told apart by their unit (core/layout/buffer_cut.h): kWordsUnit, kPositionsUnit, the layer, and the
// number of layers for the final norm and the output layer. A stage may name units of which it has no parameter.
class ParameterObserver {
 public:
  virtual ~ParameterObserver() = default;
  // An action begins to add to the gradients of these parameters, and has ended to: whatever main_grad is in between,
  // it is these parameters' own, and only in between.
  virtual void acquire_gradients(int64_t unit) = 0;
  virtual void gradients_are_added(int64_t unit) = 0;
  // No more is added to them in this step. May be called again. The embedding's are never announced: they are final
  // when the step's last action has ended.
  virtual void gradients_are_final(int64_t unit) = 0;
  // Returns when these weights may be read: until release_weights, and not behind it. next: those that are acquired
  // next for certain, before any others; kNone: not known.
  static constexpr int64_t kNone = -3;
  virtual void acquire_weights(int64_t unit, int64_t next) = 0;
  virtual void release_weights(int64_t unit) = 0;
};

}  // namespace ms::train
