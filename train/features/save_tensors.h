// What modules compute in chosen steps, written by name, to be compared between layouts (msckpt diff --tensors).
// Source: Megatron's --save-activations-interval, --save-dgrads-interval and --save-wgrads-interval; perturbed runs as
// a measure of rounding: TTrace (arXiv 2506.09280).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "train/features/feature.h"

namespace ms::train {

struct SaveTensorsConfig {
  std::vector<int64_t> save_tensors;
  std::string save_tensors_dir;
  std::string save_tensors_filter;
  double save_tensors_perturbation = 0;
  int64_t save_activations_interval = 0;
  int64_t save_dgrads_interval = 0;
  int64_t save_wgrads_interval = 0;

  template <class Visitor>
  static void fields(Visitor&& field) {
    using C = SaveTensorsConfig;
    field("save_tensors", &C::save_tensors,
          "Iterations of which to write what modules compute: their outputs, the gradients of these, and the gradients "
          "of the weights, whole tensors whatever the layout; `msckpt diff --tensors` compares two such folders");
    field("save_tensors_dir", &C::save_tensors_dir,
          "Folder for --save-tensors, one checkpoint-like directory per iteration");
    field("save_tensors_filter", &C::save_tensors_filter,
          "Regular expression: write only tensors in whose name it is found, such as "
          "\"layers\\.3\\..*:grad\". Default: all. Until the end of the step a rank holds copies of what it writes");
    field("save_tensors_perturbation", &C::save_tensors_perturbation,
          "In the iterations whose tensors are written: multiply each element of the embedding's output by 1 + or - "
          "this, whatever the layout, such as 1e-7 (rounding of fp32) or 4e-3 (of bf16). How far such a run is from a "
          "plain one says how far rounding alone may carry: msckpt diff --tensors --noise. Default: 0");
    field("save_activations_interval", &C::save_activations_interval,
          "Iterations between those whose outputs of modules are written; 0: none");
    field("save_dgrads_interval", &C::save_dgrads_interval, "The same of the gradients of outputs");
    field("save_wgrads_interval", &C::save_wgrads_interval, "The same of the gradients of weights");
  }
};

// What is written of an iteration.
struct SavedTensorKinds {
  bool outputs = false, output_gradients = false, weight_gradients = false;
  bool any() const { return outputs || output_gradients || weight_gradients; }
};
SavedTensorKinds saved_tensor_kinds(const SaveTensorsConfig& config, int64_t iteration);

Feature save_tensors_feature();

}  // namespace ms::train
