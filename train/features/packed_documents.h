// Documents that share a sample without seeing each other.
// Source: Megatron's --reset-attention-mask and --reset-position-ids (get_ltor_masks_and_position_ids in
// megatron/training/utils.py), and --dataloader-inter-document-masking (megatron/core/datasets/gpt_dataset.py).
#pragma once

#include "train/features/feature.h"

namespace ms::train {

struct PackedDocumentsConfig {
  bool reset_attention_mask = false;
  bool reset_position_ids = false;
  bool dataloader_inter_document_masking = false;

  template <class Visitor>
  static void fields(Visitor&& field) {
    using C = PackedDocumentsConfig;
    field("reset_attention_mask", &C::reset_attention_mask,
          "Tokens see only their own document, which ends with the end-of-document token (--append-eod of msdata "
          "preprocess); attention computes nothing between documents");
    field("reset_position_ids", &C::reset_position_ids,
          "Positions begin anew after an end-of-document token: learned ones, and with --reset-attention-mask those of "
          "the rotary embedding");
    field("dataloader_inter_document_masking", &C::dataloader_inter_document_masking,
          "Tokens see only their own document, as the data set has documents, and positions begin anew in each: for "
          "data without end-of-document tokens, or with several in a document");
  }
};

// Whether samples of several documents are masked where those of the data set end.
bool masks_documents_of_data(const TrainerConfig& config);

// Whether documents that share a sample do not see each other.
bool keeps_documents_apart(const TrainerConfig& config);

Feature packed_documents_feature();

}  // namespace ms::train
