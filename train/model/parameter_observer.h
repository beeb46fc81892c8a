// Who wants to know when a stage uses its parameters: data parallelism, which then reduces their gradients or waits for
// their weights (train/optim/bucket.h).
#pragma once

#include <cstdint>

namespace ms::train {

// Parameters are told apart by their layer as ParameterSpec has it: -1 for the embedding, the number of layers for the
// final norm and the output layer.
class ParameterObserver {
 public:
  virtual ~ParameterObserver() = default;
  // No more is added to the gradients of these parameters in this step. May be called again. The embedding's are never
  // announced: they are final when the step's last action has ended.
  virtual void gradients_are_final(int64_t layer) = 0;
  // Returns when these weights may be read.
  virtual void await_weights(int64_t layer) = 0;
};

}  // namespace ms::train
