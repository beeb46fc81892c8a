// What msckpt's verbs do, given the flags of the command line (msckpt.cpp). A verb prints its result and returns the
// exit code.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "ckpt/layout.h"
#include "ckpt/retention.h"
#include "convert/megatron/layer_map.h"
#include "convert/script_flags.h"
#include "core/comm/communicator.h"

namespace ms::tools::msckpt {

struct Flags {
  std::vector<std::string> paths;
  bool json = false, tensors = false, fast = false, all = false, dry_run = false, drop_optimizer = false,
       compress = false, resume = false;
  std::string write_path = "auto";
  std::string load_dir, save_dir, tensor, against;
  ckpt::Retention retention;
  std::vector<double> weights;
  ckpt::ModelLayout target;
  int64_t num_layers_per_virtual_pipeline_stage = 0, first_num_layers = 0, last_num_layers = 0, true_vocab_size = 0;
  std::optional<int> expert_tensor_parallel_size;
  int64_t make_vocab_size_divisible_by = 0;
  bool moe_tp_extend_ep = false, moe_grouped_gemm = false;
  bool use_distributed_optimizer = false;
  std::string target_norm_naming, mg_args;
  std::string load_model_type, save_model_type, dtype, params_dtype, max_shard_size = "5GB", hf_cfg_dir, lora, name_map;
  convert::PipelineExtras extras;  // of convert, as the next
  convert::ScriptClaims claims;
  std::vector<std::string> script_flags;
  int64_t mem_mib = 256;
  int threads = static_cast<int>(std::clamp(std::thread::hardware_concurrency(), 1u, 16u));
  core::Communicator* team = nullptr;  // of the processes under mpirun
};

int run_inspect(const Flags& flags);
int run_verify(const Flags& flags);
int run_gc(const Flags& flags);
int run_diff(const Flags& flags);
int run_plan(const Flags& flags);
int run_reshard(const Flags& flags);
int run_merge(const Flags& flags);
int run_convert(const Flags& flags);
int run_families(const Flags& flags);

}  // namespace ms::tools::msckpt
