#include "tools/msckpt/layout_flags.h"

#include <string>

#include "core/error.h"
#include "core/printable.h"
#include "tools/command_line.h"

namespace ms::tools::msckpt {

using core::cat;
using core::Error;
using core::ErrorCode;

void add_common_layout_flags(CLI::App& verb, LayoutFlags& flags, const char* of) {
  const auto help = [&](const char* before, const char* after) { return cat(before, of, after); };
  verb.add_option("--target-tensor-parallel-size,--tp", flags.target.tensor_model_parallel_size,
                  help("Tensor-parallel size of ", " (default: 1)"));
  verb.add_option("--target-pipeline-parallel-size,--pp", flags.target.pipeline_model_parallel_size,
                  help("Pipeline-parallel size of ", " (default: 1)"));
  verb.add_option("--num-layers-per-virtual-pipeline-stage", flags.num_layers_per_virtual_pipeline_stage,
                  help("Layers per virtual stage of ",
                       "; virtual stages are assigned to the stages in turn (default: one per stage)"))
      ->check(positive_number());
  verb.add_option("--num-layer-list", flags.target.num_layer_list,
                  help("Layers of each stage of ", ", for example 3,4,4,3 (default: even)"))
      ->delimiter(',');
  verb.add_option(
          "--target-expert-parallel-size,--target-expert-model-parallel-size,--ep",
          flags.target.expert_model_parallel_size,
          help("Expert-parallel size of ", ": ranks over which the experts of each layer are distributed (default: 1)"))
      ->check(positive_number());
  verb.add_option(
          "--expert-tensor-parallel-size", flags.expert_tensor_parallel_size,
          help("Expert-tensor-parallel size of ", ": ranks that share each expert (default: the tensor-parallel size)"))
      ->check(positive_number());
}

void add_layout_flags(CLI::App& verb, LayoutFlags& flags) {
  add_common_layout_flags(verb, flags, "the result");
  verb.add_option(
      "--target-data-parallel-size,--dp", flags.target.data_parallel_size,
      "Data-parallel size of the result; only with --target-zero-stage the ranks hold different state (default: 1)");
  verb.add_option("--decoder-first-pipeline-num-layers", flags.first_num_layers,
                  "Layers of the result's first stage; the other layers are split evenly (default: even)")
      ->check(positive_number());
  verb.add_option("--decoder-last-pipeline-num-layers", flags.last_num_layers,
                  "Layers of the result's last stage; the other layers are split evenly (default: even)")
      ->check(positive_number());
  verb.add_option("--schedules-method", flags.schedules_method,
                  "zb-v or dualpipev: two chunks of layers on each stage of the result, in a V, as mstrain with this "
                  "schedule has them; --num-layer-list then has an entry for each chunk (default: in turn)")
      ->check(CLI::Validator(
          [](const std::string& method) {
            if (method == "zb-v" || method == "dualpipev") return std::string();
            return method == "zb-h1" ? std::string("zb-h1 has the layers of 1F1B: leave the flag out")
                                     : cat(core::shown_value(method), ": expected zb-v or dualpipev");
          },
          "{zb-v,dualpipev}"));
  verb.add_option(
          "--target-zero-stage", flags.target.zero_stage,
          "State sharded over data-parallel ranks: 0 none, 1 and 2 optimizer state, 3 parameters too (default: 0)")
      ->check(CLI::Range(0, 3));
  verb.add_flag_callback(
      "--target-use-distributed-optimizer", [&flags] { flags.target.zero_stage = 1; }, "Same as --target-zero-stage 1");
}

layout::ModelLayout target_layout(const LayoutFlags& flags, const ckpt::Source& source) {
  layout::ModelLayout layout = flags.target;
  layout.size_flags = layout::kTargetSizeFlags;
  const auto& model = source.info().model;
  const int pp = layout.pipeline_model_parallel_size;
  layout.virtual_pipeline_model_parallel_size =
      layout::virtual_pipeline_size(model, pp, flags.num_layers_per_virtual_pipeline_stage);
  if (!flags.schedules_method.empty()) {
    if (flags.num_layers_per_virtual_pipeline_stage > 0 || flags.first_num_layers > 0 || flags.last_num_layers > 0) {
      throw Error(ErrorCode::kInvalidArgument,
                  cat("--schedules-method ", flags.schedules_method,
                      " has two chunks on each stage: leave out --num-layers-per-virtual-pipeline-stage, "
                      "--decoder-first-pipeline-num-layers and --decoder-last-pipeline-num-layers"));
    }
    if (pp == 1) {
      throw Error(ErrorCode::kInvalidArgument,
                  cat("--schedules-method ", flags.schedules_method, " needs --target-pipeline-parallel-size above 1"));
    }
    layout.layer_order = layout::Placement::Order::kV;
    layout.virtual_pipeline_model_parallel_size = 2;
  }
  if (flags.first_num_layers > 0 || flags.last_num_layers > 0) {
    if (!layout.num_layer_list.empty() || flags.num_layers_per_virtual_pipeline_stage > 0) {
      throw Error(ErrorCode::kInvalidArgument,
                  "--decoder-first-pipeline-num-layers and --decoder-last-pipeline-num-layers cannot be combined with "
                  "--num-layer-list or --num-layers-per-virtual-pipeline-stage");
    }
    layout.num_layer_list =
        layout::uneven_layer_list(model.num_layers, pp, flags.first_num_layers, flags.last_num_layers);
  }
  if (!layout.num_layer_list.empty() && flags.num_layers_per_virtual_pipeline_stage > 0) {
    throw Error(ErrorCode::kInvalidArgument,
                "--num-layer-list and --num-layers-per-virtual-pipeline-stage both set the layers of each stage: give "
                "one of them");
  }
  // MindSpeed-LLM's default: the expert-tensor-parallel size is the tensor-parallel size.
  layout.expert_tensor_parallel_size = flags.expert_tensor_parallel_size.value_or(
      flags.target.expert_model_parallel_size > 1 ? layout.tensor_model_parallel_size
                                                  : layout.expert_tensor_parallel_size);
  return layout;
}

}  // namespace ms::tools::msckpt
