// Samples that are one document each, and micro-batches as long as their longest.
// Source: Megatron's and MindSpeed's --variable-seq-lengths, where stages tell each other the shape before each hidden
// state. Here every stage reads the batch, and needs no such message.
#pragma once

#include "train/features/feature.h"

namespace ms::train {

struct VariableSeqLengthsConfig {
  bool variable_seq_lengths = false;

  template <class Visitor>
  static void fields(Visitor&& field) {
    field("variable_seq_lengths", &VariableSeqLengthsConfig::variable_seq_lengths,
          "Each sample is one document, of which --seq-length tokens are read at most, and each micro-batch is as long "
          "as its longest sample; for data whose documents are examples, as in fine-tuning");
  }
};

Feature variable_seq_lengths_feature();

}  // namespace ms::train
