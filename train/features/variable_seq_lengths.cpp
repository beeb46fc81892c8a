#include "train/features/variable_seq_lengths.h"

#include "train/config.h"
#include "train/features/check.h"

namespace ms::train {
namespace {

bool has_own_lengths(const TrainerConfig& config) { return config.parallel.variable_seq_lengths; }

// That every rank can have its part of a micro-batch of any length.
void check_variable_seq_lengths(const TrainerConfig& config, int) {
  if (!has_own_lengths(config)) return;
  const int64_t multiple = sequence_multiple(config.parallel), seq = config.training.seq_length;
  require(seq % multiple == 0, "--variable-seq-lengths: --seq-length ", seq, " is not a multiple of ", multiple,
          ", to which micro-batches are padded for --context-parallel-size and --sequence-parallel");
}

}  // namespace

Feature variable_seq_lengths_feature() {
  return {
      .name = "variable-seq-lengths",
      .level = 0,
      .effect = "Reads one document a sample; each micro-batch computes, sends and holds what its longest sample needs",
      .add_flags = [](core::ConfigFields& fields,
                      TrainerConfig& config) { fields.add<VariableSeqLengthsConfig>("parallel", config.parallel); },
      .is_active = has_own_lengths,
      .check = check_variable_seq_lengths,
  };
}

}  // namespace ms::train
