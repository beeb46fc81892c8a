// core/layout/model_layout.h: a checkpoint's layout as JSON, parsed and written again, and whether a model can have it.
#include "core/io/json.h"
#include "core/layout/model_layout.h"
#include "tests/fuzz/reader.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ms;
  fuzz::read_or_refuse([&] {
    const layout::ModelLayout layout = layout::layout_from_json(core::parse_json(fuzz::text_of(data, size), "fuzz"));
    fuzz::require(layout::layout_from_json(layout::layout_to_json(layout)) == layout, "to and from JSON are inverse");
    core::TransformerConfig model;
    model.num_layers = 4;
    model.hidden_size = 32;
    model.num_attention_heads = 4;
    model.vocab_size = 127;
    model.resolve(16);
    layout::validate_layout(layout, model);
    fuzz::require(layout.world_size() > 0, "a layout that is valid has ranks");
  });
  return 0;
}
