#include "train/features/packed_documents.h"

#include "train/config.h"

namespace ms::train {
namespace {

bool resets_mask(const TrainerConfig& config) { return config.training.reset_attention_mask; }
bool resets_learned_positions(const TrainerConfig& config) {
  return config.training.reset_position_ids && config.model.position_embedding_type == "learned_absolute";
}

}  // namespace

Feature packed_documents_feature() {
  return {
      .name = "packed-documents",
      .level = 0,
      .effect =
          "Keeps the documents of a sample apart: attention does not cross an end-of-document token, or positions "
          "begin anew behind it",
      .add_flags = [](core::ConfigFields& fields,
                      TrainerConfig& config) { fields.add<PackedDocumentsConfig>("training", config.training); },
      .is_active = [](const TrainerConfig& c) { return resets_mask(c) || resets_learned_positions(c); },
      .ineffective = {{[](const TrainerConfig& c) {
                         return c.training.reset_position_ids && !resets_mask(c) && !resets_learned_positions(c);
                       },
                       "--reset-position-ids has no effect without --reset-attention-mask or --position-embedding-type "
                       "learned_absolute: rotary scores depend on differences of positions alone"}},
  };
}

}  // namespace ms::train
