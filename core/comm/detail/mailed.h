// Small collectives of ranks that read each other's mailboxes (mailbox.h): one write and one read of each other rank's
// part, without a message. Sums are added in the same order as those by messages.
#pragma once

#include <memory>
#include <vector>

#include "core/comm/detail/operation.h"

namespace ms::core::detail {

// bytes: the largest part that a rank contributes.
bool is_mailed(const Communicator& comm, int64_t bytes);

std::shared_ptr<Operation> make_mailed_allreduce(Communicator&, const OperationFacts&, const TensorView& data,
                                                 ReduceOp);
// counts: elements of each rank's block.
std::shared_ptr<Operation> make_mailed_allgather(Communicator&, const OperationFacts&, const TensorView& input,
                                                 std::vector<int64_t> counts, const TensorView& output);
std::shared_ptr<Operation> make_mailed_bcast(Communicator&, const OperationFacts&, const TensorView& data, int root);

}  // namespace ms::core::detail
