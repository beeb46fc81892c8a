// The large collectives of a group that spans machines, in two levels (core/comm/two_levels.h): each rank of a machine
// exchanges a share of the data with one rank of every other machine, and the ranks of a machine exchange the rest, in
// each other's memory where they share it. A machine then sends its data once to the others, not once for each of its
// ranks.
//
// Sums are those of each machine's ranks, in rank order, added in the order of the machines: the result depends on the
// values, the group and who is on one machine.
#pragma once

#include <memory>

#include "core/comm/detail/blocks.h"
#include "core/comm/detail/operation.h"

namespace ms::core::detail {

std::shared_ptr<Operation> make_level_allreduce(Communicator&, const OperationFacts&, const TensorView& data, ReduceOp);
// What input has for other ranks is undefined afterwards.
std::shared_ptr<Operation> make_level_reduce_scatter(Communicator&, const OperationFacts&, const TensorView& input,
                                                     const Blocks&, const TensorView& output, ReduceOp);
std::shared_ptr<Operation> make_level_allgather(Communicator&, const OperationFacts&, const TensorView& input,
                                                const Blocks&, const TensorView& output);

}  // namespace ms::core::detail
