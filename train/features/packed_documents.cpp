#include "train/features/packed_documents.h"

#include "train/config.h"

namespace ms::train {
namespace {

constexpr const char* kOfData = "--dataloader-inter-document-masking";

bool resets_mask(const TrainerConfig& config) { return config.training.reset_attention_mask; }
bool resets_learned_positions(const TrainerConfig& config) {
  return config.training.reset_position_ids && config.model.position_embedding_type == "learned_absolute";
}

std::vector<std::string> notices_of_ends(const TrainerConfig& config) {
  if (!masks_documents_of_data(config) || (!resets_mask(config) && !config.training.reset_position_ids)) return {};
  return {core::cat("--reset-attention-mask and --reset-position-ids have no effect with ", kOfData,
                    ", which takes the ends of documents from the data set, as in Megatron")};
}

}  // namespace

bool masks_documents_of_data(const TrainerConfig& config) {
  return config.training.dataloader_inter_document_masking && !config.parallel.variable_seq_lengths;
}

bool keeps_documents_apart(const TrainerConfig& config) {
  return resets_mask(config) || masks_documents_of_data(config);
}

Feature packed_documents_feature() {
  return {
      .name = "packed-documents",
      .level = 0,
      .effect =
          "Keeps the documents of a sample apart, which end with end-of-document tokens or as those of the data set: "
          "attention does not cross their ends, or positions begin anew behind them",
      .add_flags = [](core::ConfigFields& fields,
                      TrainerConfig& config) { fields.add<PackedDocumentsConfig>("training", config.training); },
      .is_active = [](const TrainerConfig& c) { return keeps_documents_apart(c) || resets_learned_positions(c); },
      .ineffective = {{[](const TrainerConfig& c) {
                         return c.training.reset_position_ids && !keeps_documents_apart(c) &&
                                !resets_learned_positions(c);
                       },
                       "--reset-position-ids has no effect without --reset-attention-mask or --position-embedding-type "
                       "learned_absolute: rotary scores depend on differences of positions alone"},
                      {[](const TrainerConfig& c) {
                         return c.training.dataloader_inter_document_masking && !masks_documents_of_data(c);
                       },
                       core::cat(kOfData,
                                 " has no effect with --variable-seq-lengths, whose samples are one document each")}},
      .notices = notices_of_ends,
  };
}

}  // namespace ms::train
