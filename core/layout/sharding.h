// How the data-parallel ranks share the optimizer state (ZeRO; Rajbhandari et al. 2020), from stage 2 on the gradients,
// and from stage 3 on the parameters. There are two partitions, and checkpoints of both exist:
//   - blocks of flat buffers of a rank's parameters, which mstrain trains with and writes: buffer_cut.h;
//   - ranges of each tensor, which msckpt reshard writes: distributed_range.
// Readers take whatever a manifest lists.
#pragma once

#include <cstdint>

namespace ms::layout {

// What a stage of ZeRO divides among the data-parallel ranks, or those of an instance. With one of them there is
// nothing to divide.
struct Sharding {
  int zero_stage = 0;
  int data_parallel_size = 1;
  int num_instances = 1;              // equal runs of these ranks, each of which divides all of it (hsdp)
  bool state_over_instances = false;  // with ZeRO-3: state is divided over the instances, too (Megatron-FSDP's HFSDP)
  int64_t least_divided_elems = 0;    // parameters of fewer elements of a rank stay whole (MindSpore's hsdp)

  int owners() const { return data_parallel_size / num_instances; }  // ranks that divide it

  bool state() const { return zero_stage >= 1; }  // master weights, and what else the optimizer keeps
  bool gradients() const { return zero_stage >= 2 && owners() > 1; }  // and reduces them every micro-batch
  bool weights() const { return zero_stage >= 3 && owners() > 1; }    // and gathers them when they are read
  // Runs of ranks that have parts of the state of what each rank of an instance owns.
  int parts_of_state() const { return state_over_instances && weights() ? num_instances : 1; }
};

// The part of a flat local tensor of numel elements for which dp_rank keeps state, from ZeRO stage 1 on: equal blocks,
// rounded up to 64 elements; the last ranks may hold less or nothing.
struct FlatRange {
  int64_t begin = 0, end = 0;
};
FlatRange distributed_range(int64_t numel, int dp_size, int dp_rank);

// Elements of the buffer of all parameters of a rank: each parameter starts at a multiple of kStartAlignment, and the
// buffer is padded to a multiple of 128 x data-parallel size (megatron/core/distributed/param_and_grad_buffer.py).
inline constexpr int64_t kStartAlignment = 64;
int64_t aligned_size(int64_t numel);                      // of a parameter in the buffer
int64_t buffer_size(int64_t aligned_sizes, int dp_size);  // of the buffer, from the sum of them
// The block of a buffer of `size` elements whose optimizer state dp_rank has.
FlatRange block_of_buffer(int64_t size, int dp_size, int dp_rank);

}  // namespace ms::layout
